//! The ProcTable: the state of each cleanup, with what exists only in this process: the progress of its
//! task and its wiped volume.

mod pauses;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::time::Instant;

use crate::plan::{CleanOrder, Cleanup, CleanupState, FOR_A_SLOT, Track};
use crate::types::HostPath;
use crate::view::Tenancy;

use super::NotifyAfter;
use super::oversee::STALL_LIMIT;
use super::release::Unreleased;
use super::wipe::Wiped;
use crate::wipe::progress::Progress;
use pauses::{FAILURE, RELEASE, blocked_pause};

/// One cleanup.
#[derive(Clone, Debug)]
pub struct ProcEntry {
    /// The state that the plan uses.
    pub cleanup: Cleanup,
    /// The consecutive failures.
    pub failures: u32,
    release_failures: u32,
    /// The cause of the last failure.
    pub last_error: Option<String>,
    /// The cleaner's counters and cancellation.
    pub progress: Progress,
    wiped: Option<Arc<Wiped>>,
}

impl ProcEntry {
    /// The consecutive attempts, including the current one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        let has_failed = matches!(self.cleanup.state, CleanupState::Failed { .. });
        self.failures + u32::from(!has_failed)
    }

    /// How long the cleanup has been in its state.
    #[must_use]
    pub fn lasted(&self, table: &ProcTable) -> Duration {
        table.now().saturating_sub(self.cleanup.since)
    }

    fn new(pv: String, path: HostPath, state: CleanupState, since: Duration) -> Self {
        Self {
            cleanup: Cleanup {
                pv,
                path,
                state,
                since,
                at_work: false,
                stalled: false,
                disks: BTreeSet::new(),
                basis: 0,
            },
            failures: 0,
            release_failures: 0,
            last_error: None,
            progress: Progress::default(),
            wiped: None,
        }
    }

    fn enter(&mut self, state: CleanupState, now: Duration) {
        let is_same_kind =
            std::mem::discriminant(&self.cleanup.state) == std::mem::discriminant(&state);
        if !is_same_kind {
            self.cleanup.since = now;
        }
        self.cleanup.state = state;
    }

    fn fail(&mut self, error: &str) {
        self.failures += 1;
        self.last_error = Some(error.to_owned());
    }

    /// Counts a failure that the plan has recorded.
    fn note_failure(&mut self) {
        if let CleanupState::Failed { error, .. } = self.cleanup.state.clone() {
            self.fail(&error);
        }
    }
}

/// The number of cleanups in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the states")]
pub struct Stats {
    pub waiting: usize,
    pub running: usize,
    pub succeeded: usize,
    pub failed: usize,
}

/// All cleanups, by tenancy, so that the state of an old PV or claim never applies to a new one.
#[derive(Debug)]
pub struct ProcTable {
    entries: DashMap<Tenancy, ProcEntry>,
    epoch: Instant,
}

impl ProcTable {
    /// An empty table. `epoch` is the zero point of [`crate::plan::Snapshot::now`].
    #[must_use]
    pub fn new(epoch: Instant) -> Self {
        Self {
            entries: DashMap::new(),
            epoch,
        }
    }

    /// The time since the process started, see [`crate::plan::Snapshot::now`].
    #[must_use]
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Starts an attempt. `None` if one is running or the volume is already clean.
    #[must_use]
    pub fn begin(&self, order: &CleanOrder) -> Option<Progress> {
        let now = self.now();
        let mut entry = self.entries.entry(order.pv.tenancy()).or_insert_with(|| {
            let (reason, job) = (FOR_A_SLOT.to_owned(), None);
            let state = CleanupState::Waiting { reason, job };
            ProcEntry::new(order.pv.name.clone(), order.path.clone(), state, now)
        });
        let is_done = matches!(
            entry.cleanup.state,
            CleanupState::Wiped { .. } | CleanupState::Released
        );
        if entry.cleanup.at_work || is_done {
            return None;
        }
        if entry.cleanup.basis != order.basis {
            entry.failures = 0;
        }
        entry.cleanup.basis = order.basis;
        entry.cleanup.disks.clone_from(&order.rotational);
        entry.cleanup.at_work = true;
        entry.progress = Progress::default();
        Some(entry.progress.clone())
    }

    /// Records the state that the plan derived from the cluster. A running cleanup records its own state.
    pub fn track(&self, track: Track) {
        let now = self.now();
        let mut entry = match self.entries.entry(track.tenancy) {
            Entry::Vacant(vacant) => {
                let entry = ProcEntry::new(track.pv, track.path, track.state.clone(), now);
                vacant.insert(entry)
            }
            Entry::Occupied(present) => present.into_ref(),
        };
        if !entry.cleanup.at_work {
            entry.cleanup.basis = track.basis;
            entry.enter(track.state, now);
            entry.note_failure();
        }
    }

    /// The attempt starts to delete data.
    pub fn mark_wiping(&self, tenancy: &Tenancy) {
        self.change(tenancy, |entry, now| entry.enter(CleanupState::Wiping, now));
    }

    /// The volume is in use, or its state changed during the checks (`notify` is `None`: not reported).
    pub fn mark_blocked(&self, tenancy: &Tenancy, reason: &str, notify: Option<NotifyAfter>) {
        self.end(tenancy, |entry, now| {
            let since = match entry.cleanup.state {
                // What is reported and what is not (a Job, a change) have lasted for different times.
                CleanupState::Blocked { notify_at, .. }
                    if notify_at.is_some() == notify.is_some() =>
                {
                    entry.cleanup.since
                }
                _ => now,
            };
            let lasted = now.saturating_sub(since);
            let pause = blocked_pause(lasted);
            let state = CleanupState::Blocked {
                reason: reason.to_owned(),
                notify_at: notify.map(|notify| since + notify.duration()),
                retry_at: now + pause,
            };
            entry.enter(state, now);
            entry.cleanup.since = since;
        });
    }

    /// The Job was created. The next pass follows it.
    pub fn mark_job(&self, tenancy: &Tenancy, job: &str) {
        self.mark_blocked(
            tenancy,
            &format!("for Job {job}, whose pod does not run"),
            None,
        );
        self.change(tenancy, |entry, _| entry.last_error = None);
    }

    /// The volume is clean, and its PV is released next.
    pub(super) fn mark_wiped(&self, tenancy: &Tenancy, wiped: Arc<Wiped>) {
        self.end(tenancy, |entry, now| {
            entry.wiped = Some(wiped);
            let (error, retry_at) = (None, now);
            entry.enter(CleanupState::Wiped { error, retry_at }, now);
        });
    }

    /// The volume is clean, but the release of its PV failed.
    pub(super) fn mark_unreleased(&self, tenancy: &Tenancy, wiped: Arc<Wiped>, why: Unreleased) {
        self.end(tenancy, |entry, now| {
            entry.wiped = Some(wiped);
            let pause = RELEASE.pause(entry.release_failures);
            entry.release_failures += 1;
            let is_reported = !why.is_passing || pause == RELEASE.longest;
            let state = CleanupState::Wiped {
                error: is_reported.then_some(why.message),
                retry_at: now + pause,
            };
            entry.enter(state, now);
        });
    }

    /// Starts the release of a wiped volume. `None` if it is running.
    #[must_use]
    pub fn begin_release(&self, tenancy: &Tenancy) -> Option<Arc<Wiped>> {
        let mut entry = self.entries.get_mut(tenancy)?;
        if entry.cleanup.at_work {
            return None;
        }
        let wiped = entry.wiped.clone()?;
        entry.cleanup.at_work = true;
        Some(wiped)
    }

    /// The PV is released.
    pub fn mark_released(&self, tenancy: &Tenancy) {
        self.end(tenancy, |entry, now| {
            entry.wiped = None;
            entry.failures = 0;
            entry.enter(CleanupState::Released, now);
        });
    }

    /// The attempt failed. Returns the pause before the next attempt, which is the longest if the failure `lasts`:
    /// an operator must act first.
    #[allow(clippy::must_use_candidate, reason = "callers only log the pause")]
    pub fn mark_failed(&self, tenancy: &Tenancy, error: &str, lasts: bool) -> Duration {
        let mut pause = FAILURE.longest;
        self.end(tenancy, |entry, now| {
            if !lasts {
                pause = FAILURE.pause(entry.failures);
            }
            entry.fail(error);
            entry.wiped = None;
            let state = CleanupState::Failed {
                error: error.to_owned(),
                retry_at: now + pause,
                lasts,
            };
            entry.enter(state, now);
        });
        pause
    }

    /// Removes a cleanup, unless a task runs for it.
    pub fn forget(&self, tenancy: &Tenancy) {
        self.entries
            .remove_if(tenancy, |_, entry| !entry.cleanup.at_work);
    }

    /// Whether any task runs.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.entries.iter().any(|entry| entry.cleanup.at_work)
    }

    /// A copy of one cleanup's entry.
    #[must_use]
    pub fn get(&self, tenancy: &Tenancy) -> Option<ProcEntry> {
        self.entries.get(tenancy).map(|entry| entry.clone())
    }

    /// The entry of each PV: the running cleanup, or else the newest.
    #[must_use]
    pub fn by_pv(&self) -> BTreeMap<String, ProcEntry> {
        let mut newest: BTreeMap<String, ProcEntry> = BTreeMap::new();
        let rank = |entry: &ProcEntry| {
            let cleanup = &entry.cleanup;
            let is_over = matches!(
                cleanup.state,
                CleanupState::Failed { .. } | CleanupState::Released
            );
            (cleanup.at_work || !is_over, cleanup.since)
        };
        for entry in &self.entries {
            let pv = &entry.cleanup.pv;
            if newest.get(pv).is_none_or(|it| rank(it) < rank(&entry)) {
                newest.insert(pv.clone(), entry.clone());
            }
        }
        newest
    }

    /// The number of cleanups in each state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for entry in &self.entries {
            *match entry.cleanup.state {
                CleanupState::Waiting { .. } | CleanupState::Blocked { .. } => &mut stats.waiting,
                CleanupState::Wiping | CleanupState::JobRunning { .. } => &mut stats.running,
                CleanupState::Wiped { .. } | CleanupState::Released => &mut stats.succeeded,
                CleanupState::Failed { .. } => &mut stats.failed,
            } += 1;
        }
        stats
    }

    /// The state of all cleanups, for the plan.
    #[must_use]
    pub fn view(&self) -> BTreeMap<Tenancy, Cleanup> {
        let view = |entry: &ProcEntry| Cleanup {
            stalled: entry.progress.stalled() >= STALL_LIMIT,
            ..entry.cleanup.clone()
        };
        self.entries
            .iter()
            .map(|entry| (entry.key().clone(), view(&entry)))
            .collect()
    }

    /// Cancels all cleaners.
    pub fn cancel_all(&self) {
        for entry in &self.entries {
            entry.progress.cancel();
        }
    }

    /// Changes the entry at the end of an attempt.
    fn end(&self, tenancy: &Tenancy, change: impl FnOnce(&mut ProcEntry, Duration)) {
        self.change(tenancy, |entry, now| {
            entry.cleanup.at_work = false;
            change(entry, now);
        });
    }

    fn change(&self, tenancy: &Tenancy, change: impl FnOnce(&mut ProcEntry, Duration)) {
        let now = self.now();
        if let Some(mut entry) = self.entries.get_mut(tenancy) {
            change(&mut entry, now);
        }
    }
}
