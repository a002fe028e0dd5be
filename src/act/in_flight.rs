//! The writes in flight. Passes ignore their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::ANNOTATION_IDENTITY;
use crate::plan::PvDraft;
use crate::types::HostPath;

/// The shared set of the writes in flight.
#[derive(Clone, Debug, Default)]
pub struct InFlightWrites(Arc<Mutex<InFlight>>);

/// A snapshot of the writes in flight.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// The names of the PVs and Jobs that are written.
    pub names: BTreeSet<String>,
    /// The paths of the PVs that are created, with the recorded identities.
    pub making: BTreeMap<HostPath, String>,
}

impl InFlightWrites {
    /// The current set. Read it before the PVs: a PV that is created in between is then in one of both.
    #[must_use]
    pub fn now(&self) -> InFlight {
        self.lock().clone()
    }

    /// Adds a name until the guard is dropped. `None` if it is in flight already.
    pub(super) fn enter(&self, name: &str) -> Option<InFlightGuard> {
        let fresh = self.lock().names.insert(name.to_owned());
        fresh.then(|| self.guard(name, None))
    }

    /// Adds the name and path of a PV to create. `None` if either is in flight already.
    pub(super) fn enter_new(&self, draft: &PvDraft) -> Option<InFlightGuard> {
        let mut in_flight = self.lock();
        if in_flight.making.contains_key(&draft.path) || !in_flight.names.insert(draft.name.clone())
        {
            return None;
        }
        let identity = draft.annotations.get(ANNOTATION_IDENTITY);
        let identity = identity.cloned().unwrap_or_default();
        in_flight.making.insert(draft.path.clone(), identity);
        Some(self.guard(&draft.name, Some(draft.path.clone())))
    }

    fn guard(&self, name: &str, path: Option<HostPath>) -> InFlightGuard {
        InFlightGuard {
            writes: self.clone(),
            name: name.to_owned(),
            path,
        }
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes its entry from the set when it is dropped.
pub(super) struct InFlightGuard {
    writes: InFlightWrites,
    name: String,
    path: Option<HostPath>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut in_flight = self.writes.lock();
        in_flight.names.remove(&self.name);
        if let Some(path) = &self.path {
            in_flight.making.remove(path);
        }
    }
}
