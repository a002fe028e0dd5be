//! What this process does and has found out, and no watch shows.

mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::inventory::{Skip, Volume};
use crate::retry;
use crate::types::HostPath;
use crate::view::{PvView, Tenancy};

use super::{Cleanup, OtherPvs, OwnerQuery};
use writes::Writes;

/// How many searched marks, and how many unfinished offers, are kept. Beyond that, the PVs of marks are searched again, and
/// the volumes of unfinished offers may need a consent.
const MAX_KEPT: usize = 10_000;
/// How long the refusal of a removed entry is kept, once the next check is due.
const REFUSAL_TTL: Duration = Duration::from_mins(10);

/// Why a volume is not offered, by its inspection or a list of the PVs of other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The identity of what was inspected.
    pub identity: String,
    /// The reason.
    pub skip: Skip,
    /// When the next check is due.
    pub retry_at: Duration,
}

/// Why volumes are not offered, by path.
#[derive(Clone, Debug, Default)]
pub struct Refusals(pub(super) BTreeMap<HostPath, Refusal>);

impl Refusals {
    /// The refusal of a volume, unless its identity has changed since.
    pub fn of(&self, volume: &Volume) -> Option<&Refusal> {
        let found = self.0.get(&volume.path);
        found.filter(|it| it.identity == volume.candidate.identity.text)
    }

    /// Lets all be tried again.
    fn end_pauses(&mut self, now: Duration) {
        for refusal in self.0.values_mut() {
            refusal.retry_at = now.min(refusal.retry_at);
        }
    }

    /// Records why a volume is not offered until a pause is over. Returns whether the reason is new.
    pub fn record(&mut self, volume: &Volume, skip: Skip, pause: Duration, now: Duration) -> bool {
        let refusal = Refusal {
            identity: volume.candidate.identity.text.clone(),
            skip,
            retry_at: now + pause,
        };
        let before = self.0.insert(volume.path.clone(), refusal.clone());
        self.0.retain(|_, it| now < it.retry_at + REFUSAL_TTL);
        let is_same = |it: Refusal| it.identity == refusal.identity && it.skip == refusal.skip;
        !before.is_some_and(is_same)
    }

    /// Forgets the refusal of a volume.
    pub fn remove(&mut self, path: &HostPath) {
        self.0.remove(path);
    }
}

/// What this process does and has found out. Times count from its start, as [`super::Snapshot::now`] does.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The cleanups, by tenancy. A snapshot has those of the ProcTable.
    pub cleanups: BTreeMap<Tenancy, Cleanup>,
    /// [`super::Plan::missing_since`] of the last plan.
    pub missing_since: BTreeMap<String, Duration>,
    /// The writes that failed, or were too many.
    pub writes: Writes,
    /// What a write or a list is in flight for: the names of PVs and Jobs, the paths of volumes, the links of disks, the tokens
    /// of links, the UIDs of tenancies and of the Node, [`super::OWNER_LIST`]; in [`Self::at`] also what backs off. The next decision must wait for its result.
    pub writing: BTreeSet<String>,
    /// Paths of volumes whose next scan is awaited, and of PVs that are being created and that [`super::Snapshot::pvs`] may not have yet, with their recorded
    /// identities. They may come from an earlier configuration, with other names.
    pub creating: BTreeMap<HostPath, String>,
    /// The paths of the volumes whose marks or entries were made since the last pass. A scan from before must not be judged.
    pub marked: BTreeSet<HostPath>,
    /// The marks whose PVs were searched by name, so that the cache has those that exist.
    pub searched: BTreeSet<String>,
    /// The offers that this process has begun and not made: without a PV, nothing was written to their volumes.
    pub unborn: BTreeSet<String>,
    /// The volumes that could not be inspected or are in use, and those that other nodes offer.
    pub refusals: Refusals,
    /// What became of the search for PVs of other nodes whose disks were moved here, by path: why a volume waits, or (any
    /// other reason) that there is none.
    pub moved: Refusals,
    /// Why disks could not be taken in when this was tried last, by the paths of their entries.
    pub untaken: BTreeMap<HostPath, String>,
    /// The links that were made, by token, each with the [`super::Snapshot::epoch`] in which the API server has confirmed its
    /// PV, or why the link was not made.
    pub linked: BTreeMap<String, Result<u64, String>>,
    /// The latest change of the labels of the Node, and until when the watch may not show it.
    pub labelled: Option<(BTreeMap<String, Option<String>>, Duration)>,
    /// The PVs of other nodes with the identities of ours, by [`OwnerQuery::key`].
    pub others: BTreeMap<String, OtherPvs>,
}

impl Ledger {
    /// The ledger for a plan at this time.
    pub fn at(&mut self, now: Duration) -> Self {
        self.writes.prune(now);
        let mut copy = self.clone();
        let waiting = self.writes.waiting(now).map(|(name, _)| name.clone());
        copy.writing.extend(waiting);
        copy
    }

    /// When the first failed write is tried again.
    pub(super) fn first_retry(&self, now: Duration) -> Option<Duration> {
        let first = self.writes.waiting(now).map(|(_, until)| until).min();
        first.map(|until| until.max(now + retry::WRITE_PASS))
    }

    /// Lets what waits for the API server be tried again.
    pub fn end_pauses(&mut self, now: Duration) {
        self.writes.end_pauses();
        self.refusals.end_pauses(now);
    }

    /// Records that the PV of a mark was searched.
    pub fn record_searched(&mut self, mark: String) {
        keep(&mut self.searched, mark);
    }

    /// Records that a PV is about to be created, by the token of its offer.
    pub fn begin_offer(&mut self, token: &str) {
        keep(&mut self.unborn, token.to_owned());
    }

    /// Records that PVs with these tokens exist, or did.
    pub fn end_offers<'a>(&mut self, tokens: impl IntoIterator<Item = &'a String>) {
        for token in tokens {
            self.unborn.remove(token);
        }
    }

    /// Records which PVs of other nodes have the identity of a volume of ours.
    pub fn record_others(&mut self, query: &OwnerQuery, found: &OtherPvs, now: Duration) {
        let pause = match self.others.contains_key(&query.key) {
            _ if !found.owners.is_empty() => retry::OWNED_DISK,
            true => retry::FREE_DISK,
            false => retry::NEW_DISK,
        };
        let list_at = query.identity.is_unique.then_some(now + pause);
        let found = OtherPvs { list_at, here: Vec::new(), ..found.clone() };
        self.others.insert(query.key.clone(), found);
    }

    /// Drops what is known about other PVs than these.
    pub fn forget_others(&mut self, pvs: &[PvView]) {
        let links = pvs.iter().filter_map(|pv| pv.link.as_ref());
        let tokens: BTreeSet<_> = links.map(|link| &link.token).collect();
        self.linked.retain(|token, _| tokens.contains(token));
        let hashes = pvs.iter().filter_map(|pv| pv.identity_hash.as_ref());
        let keys: BTreeSet<_> = pvs.iter().map(|pv| &pv.uid).chain(hashes).collect();
        self.others.retain(|key, _| keys.contains(key));
    }
}

/// Adds to a set that must not grow without limit.
fn keep(all: &mut BTreeSet<String>, one: String) {
    if all.len() >= MAX_KEPT {
        all.clear();
    }
    all.insert(one);
}
