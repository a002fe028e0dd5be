//! The writes in flight. Passes ignore their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::plan::PvDraft;
use crate::types::HostPath;

/// How many searched marks, and how many unfinished offers, are kept. Beyond that, the PVs of marks are searched again, and
/// the volumes of unfinished offers may need a consent.
const MAX_KEPT: usize = 10_000;

/// The shared set of the writes in flight.
#[derive(Clone, Debug, Default)]
pub struct InFlightWrites(Arc<Mutex<InFlight>>);

/// A snapshot of the writes in flight.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// The names of the PVs and Jobs that are written.
    pub names: BTreeSet<String>,
    /// The paths of the PVs that are created, with the recorded identities.
    pub creating: BTreeMap<HostPath, String>,
    /// The paths of the volumes whose marks were written since the last call of [`InFlightWrites::take_marked`].
    marked: BTreeSet<HostPath>,
    /// The marks whose PVs were searched.
    pub searched: BTreeSet<String>,
    /// The offers whose marks were written, and whose PVs were not created so far.
    pub unborn: BTreeSet<String>,
}

impl InFlightWrites {
    /// The current set. Read it before the PVs: a PV that is created in between is then in one of both.
    pub fn now(&self) -> InFlight {
        self.0.lock().clone()
    }

    /// Records that the mark of a volume was written.
    pub(super) fn mark_written(&self, path: &HostPath) {
        self.0.lock().marked.insert(path.clone());
    }

    /// Records that a PV is about to be created, by the token of its offer.
    pub(super) fn offer_begins(&self, token: &str) {
        keep(&mut self.0.lock().unborn, token.to_owned());
    }

    /// Records that PVs with these tokens exist, or did.
    pub fn offers_are_made<'a>(&self, tokens: impl Iterator<Item = &'a str>) {
        let unborn = &mut self.0.lock().unborn;
        if unborn.is_empty() {
            return;
        }
        for token in tokens {
            unborn.remove(token);
        }
    }

    /// Records that the PV of a mark was searched.
    pub(super) fn searched(&self, mark: String) {
        keep(&mut self.0.lock().searched, mark);
    }

    /// The volumes whose marks were written since the last call. A scan from before must not be judged.
    pub fn take_marked(&self) -> BTreeSet<HostPath> {
        std::mem::take(&mut self.0.lock().marked)
    }

    /// Adds a name, and the path of a PV to create, until the guard is dropped. `None` if either is in flight already.
    pub(super) fn enter(&self, name: &str, new: Option<&PvDraft>) -> Option<InFlightGuard> {
        let mut in_flight = self.0.lock();
        let is_creating = new.is_some_and(|draft| in_flight.creating.contains_key(&draft.path));
        if is_creating || !in_flight.names.insert(name.to_owned()) {
            return None;
        }
        let path = new.map(|draft| draft.path.clone());
        if let Some(draft) = new {
            let identity = draft.candidate.identity.text.clone();
            in_flight.creating.insert(draft.path.clone(), identity);
        }
        let (writes, name) = (self.clone(), name.to_owned());
        Some(InFlightGuard { writes, name, path })
    }
}

/// Adds to a set that must not grow without limit.
fn keep(all: &mut BTreeSet<String>, one: String) {
    if all.len() >= MAX_KEPT {
        all.clear();
    }
    all.insert(one);
}

/// Removes its entry from the set when it is dropped.
pub(super) struct InFlightGuard {
    writes: InFlightWrites,
    pub(super) name: String,
    path: Option<HostPath>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut in_flight = self.writes.0.lock();
        in_flight.names.remove(&self.name);
        if let Some(path) = &self.path {
            in_flight.creating.remove(path);
        }
    }
}
