//! What writes are under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::ANNOTATION_IDENTITY;
use crate::plan::PvDraft;
use crate::types::HostPath;

/// The writes under way.
#[derive(Clone, Debug, Default)]
pub struct Writing(Arc<Mutex<UnderWay>>);

/// The writes under way at one moment.
#[derive(Clone, Debug, Default)]
pub struct UnderWay {
    /// The names of their PVs and Jobs.
    pub names: BTreeSet<String>,
    /// The paths that PVs are being made for, under whatever names, and the identities recorded on these.
    pub making: BTreeMap<HostPath, String>,
}

impl Writing {
    /// What is under way. Whoever reads this before the PVs misses no PV that is made meanwhile.
    #[must_use]
    pub fn now(&self) -> UnderWay {
        self.lock().clone()
    }

    /// Enters a name, for as long as the answer lives; `None` if it is there already.
    pub(super) fn enter(&self, name: &str) -> Option<Entered> {
        let fresh = self.lock().names.insert(name.to_owned());
        fresh.then(|| self.entered(name, None))
    }

    /// Enters a PV that is to be made, by its name and path; `None` if either is there already.
    pub(super) fn enter_new(&self, draft: &PvDraft) -> Option<Entered> {
        let mut under_way = self.lock();
        if under_way.making.contains_key(&draft.path) || !under_way.names.insert(draft.name.clone())
        {
            return None;
        }
        let identity = draft.annotations.get(ANNOTATION_IDENTITY);
        let identity = identity.cloned().unwrap_or_default();
        under_way.making.insert(draft.path.clone(), identity);
        Some(self.entered(&draft.name, Some(draft.path.clone())))
    }

    fn entered(&self, name: &str, path: Option<HostPath>) -> Entered {
        Entered {
            writing: self.clone(),
            name: name.to_owned(),
            path,
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a write is under way for.
pub(super) struct Entered {
    writing: Writing,
    name: String,
    path: Option<HostPath>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut under_way = self.writing.lock();
        under_way.names.remove(&self.name);
        if let Some(path) = &self.path {
            under_way.making.remove(path);
        }
    }
}
