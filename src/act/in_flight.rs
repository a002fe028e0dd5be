//! A step in flight, whose objects passes ignore.

use std::sync::Arc;

use super::Execution;
use crate::cleanup::table::ProcTable;
use crate::plan::PvDraft;
use crate::types::HostPath;

/// Removes its entries from the table when it is dropped.
pub(super) struct InFlight {
    table: Arc<ProcTable>,
    pub(super) name: String,
    path: Option<HostPath>,
}

impl Execution {
    /// Adds a name, and the path of a PV to create, to the table. `None` if either is in flight already.
    pub(super) fn enter(&self, name: &str, new: Option<&PvDraft>) -> Option<InFlight> {
        let mut held = self.context.table.facts();
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
            table: Arc::clone(&self.context.table),
            name: name.to_owned(),
            path: volume.map(|volume| volume.path.clone()),
        })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut ledger = self.table.facts();
        ledger.writing.remove(&self.name);
        if let Some(path) = &self.path {
            ledger.creating.remove(path);
        }
    }
}
