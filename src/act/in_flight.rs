//! A write in flight, whose objects passes ignore.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Actor;
use crate::plan::{Ledger, PvDraft};
use crate::types::HostPath;

/// Removes its entries from the ledger when it is dropped.
pub(super) struct InFlight {
    ledger: Arc<Mutex<Ledger>>,
    pub(super) name: String,
    path: Option<HostPath>,
}

impl Actor {
    /// Adds a name, and the path of a PV to create, to the ledger. `None` if either is in flight already.
    pub(super) fn enter(&self, name: &str, new: Option<&PvDraft>) -> Option<InFlight> {
        let mut held = self.ledger.lock();
        let volume = new.map(|draft| &draft.volume);
        let is_creating = volume.is_some_and(|it| held.creating.contains_key(&it.path));
        if is_creating || !held.writing.insert(name.to_owned()) {
            return None;
        }
        if let Some(volume) = volume {
            let identity = volume.candidate.identity.text.clone();
            held.creating.insert(volume.path.clone(), identity);
        }
        Some(InFlight {
            ledger: Arc::clone(&self.ledger),
            name: name.to_owned(),
            path: volume.map(|volume| volume.path.clone()),
        })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut ledger = self.ledger.lock();
        ledger.writing.remove(&self.name);
        if let Some(path) = &self.path {
            ledger.creating.remove(path);
        }
    }
}
