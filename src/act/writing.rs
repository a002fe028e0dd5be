//! What writes are under way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The names of PVs that a write is under way for.
#[derive(Clone, Debug, Default)]
pub struct Writing(Arc<Mutex<BTreeSet<String>>>);

impl Writing {
    /// The names.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Enters a name, for as long as the answer lives; `None` if it is there already.
    pub(super) fn enter(&self, name: &str) -> Option<Entered> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned()).then(|| Entered {
            writing: self.clone(),
            name: name.into(),
        })
    }
}

/// A name that a write is under way for.
pub(super) struct Entered {
    writing: Writing,
    name: String,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.writing
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
    }
}
