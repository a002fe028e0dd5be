//! The ProcTable: the state of each cleanup, and what only a process can hold: its task, its wiped volume.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::plan::{CleanOrder, Cleanup, CleanupState, FOR_A_SLOT, Track};
use crate::view::Tenancy;

use super::Tell;
use super::oversee::STANDS_STILL;
use super::release::Unreleased;
use super::wipe::Wiped;
use crate::wipe::progress::Progress;

/// The first pause after a failed attempt; each further one is twice as long, up to the last.
const FAILED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));
/// The same after a failed release.
const UNRELEASED: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// How often a volume in use is inspected in the first minute; later, the longest pause.
const BLOCKED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// How long udev and its like look at a disk.
const SHORT_USE: Duration = Duration::from_secs(3);
/// How long a use lasts that usually ends by itself.
const LONG_USE: Duration = Duration::from_mins(1);

/// How the pauses between the attempts of a failing cleanup grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Each pause is twice as long as the one before.
    Growing,
    /// Each is as short as the first.
    Constant,
    /// Each is the longest: an operator has to act first.
    Longest,
}

/// One cleanup.
#[derive(Clone, Debug)]
pub struct ProcEntry {
    /// What the plan sees.
    pub cleanup: Cleanup,
    /// The failures in a row.
    pub failures: u32,
    release_failures: u32,
    /// The cause of the last failure.
    pub last_error: Option<String>,
    /// The cleaner's counters, and the way to stop it.
    pub progress: Progress,
    wiped: Option<Arc<Wiped>>,
}

impl ProcEntry {
    /// The attempts in a row, with the present one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        let has_failed = matches!(self.cleanup.state, CleanupState::Failed { .. });
        self.failures + u32::from(!has_failed)
    }

    /// The time that the state has lasted.
    #[must_use]
    pub fn lasted(&self, table: &ProcTable) -> Duration {
        table.now().saturating_sub(self.cleanup.since)
    }

    fn new(cleanup: Cleanup) -> Self {
        Self {
            cleanup,
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
}

/// How many cleanups are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the states")]
pub struct Stats {
    pub waiting: usize,
    pub running: usize,
    pub succeeded: usize,
    pub failed: usize,
}

/// All cleanups, by tenancy: the state of an earlier PV or claim never counts for a later one.
#[derive(Debug)]
pub struct ProcTable {
    entries: DashMap<Tenancy, ProcEntry>,
    epoch: Instant,
}

impl ProcTable {
    /// An empty table. `epoch` is the zero of [`crate::plan::Snapshot::now`].
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

    /// Begins an attempt. `None` if one is at work, or the volume is clean already.
    #[must_use]
    pub fn begin(&self, order: &CleanOrder) -> Option<Progress> {
        let now = self.now();
        let mut entry = self.entries.entry(order.pv.tenancy()).or_insert_with(|| {
            ProcEntry::new(Cleanup {
                pv: order.pv.name.clone(),
                path: order.path.clone(),
                state: CleanupState::Waiting {
                    reason: FOR_A_SLOT.to_owned(),
                    job: None,
                },
                since: now,
                at_work: false,
                stalled: false,
                disks: order.rotational.clone(),
                basis: order.basis,
            })
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

    /// Records what the plan has read off the cluster. A cleanup at work records its own state.
    pub fn track(&self, track: Track) {
        let now = self.now();
        let cleanup = Cleanup {
            pv: track.pv,
            path: track.path,
            state: track.state,
            since: now,
            at_work: false,
            stalled: false,
            disks: std::collections::BTreeSet::new(),
            basis: track.basis,
        };
        match self.entries.entry(track.tenancy) {
            Entry::Vacant(vacant) => {
                let mut entry = ProcEntry::new(cleanup);
                entry.note_failure();
                vacant.insert(entry);
            }
            Entry::Occupied(mut present) if !present.get().cleanup.at_work => {
                let entry = present.get_mut();
                entry.cleanup.basis = cleanup.basis;
                entry.enter(cleanup.state, now);
                entry.note_failure();
            }
            Entry::Occupied(_) => {}
        }
    }

    /// The attempt deletes data from here on.
    pub fn mark_wiping(&self, tenancy: &Tenancy) {
        self.change(tenancy, |entry, now| entry.enter(CleanupState::Wiping, now));
    }

    /// The attempt found a user, or facts that had changed (`notify`: none, an operator need not know).
    pub fn mark_blocked(&self, tenancy: &Tenancy, reason: &str, notify: Option<Tell>) {
        self.end(tenancy, |entry, now| {
            let since = match entry.cleanup.state {
                CleanupState::Blocked { .. } => entry.cleanup.since,
                _ => now,
            };
            let lasted = now.saturating_sub(since);
            let pause = if lasted < LONG_USE {
                BLOCKED.0
            } else {
                (lasted / 6).min(BLOCKED.1)
            };
            let state = CleanupState::Blocked {
                reason: reason.to_owned(),
                notify_at: notify.map(|notify| {
                    since
                        + match notify {
                            Tell::AtOnce => Duration::ZERO,
                            Tell::Soon => SHORT_USE,
                            Tell::IfItLasts => LONG_USE,
                        }
                }),
                retry_at: now + pause,
            };
            entry.enter(state, now);
        });
    }

    /// The Job was created; the next pass sees it.
    pub fn mark_job(&self, tenancy: &Tenancy, job: &str) {
        self.mark_blocked(
            tenancy,
            &format!("for Job {job}, whose pod does not run"),
            None,
        );
        self.change(tenancy, |entry, _| entry.last_error = None);
    }

    /// The volume is clean. Its PV is released next.
    pub(super) fn mark_wiped(&self, tenancy: &Tenancy, wiped: Arc<Wiped>) {
        self.end(tenancy, |entry, now| {
            entry.wiped = Some(wiped);
            let (error, retry_at) = (None, now);
            entry.enter(CleanupState::Wiped { error, retry_at }, now);
        });
    }

    /// The volume is clean, and its PV could not be released.
    pub(super) fn mark_unreleased(&self, tenancy: &Tenancy, wiped: Arc<Wiped>, why: Unreleased) {
        self.end(tenancy, |entry, now| {
            entry.wiped = Some(wiped);
            let pause = backoff(UNRELEASED, entry.release_failures);
            entry.release_failures += 1;
            let is_reported = !why.is_passing || pause == UNRELEASED.1;
            let state = CleanupState::Wiped {
                error: is_reported.then_some(why.message),
                retry_at: now + pause,
            };
            entry.enter(state, now);
        });
    }

    /// Begins to release a wiped volume. `None` if that is under way.
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

    /// The attempt failed. Returns the pause before the next one.
    #[allow(clippy::must_use_candidate, reason = "the pause is only for the log")]
    pub fn mark_failed(&self, tenancy: &Tenancy, error: &str, growth: Backoff) -> Duration {
        let mut pause = FAILED.0;
        self.end(tenancy, |entry, now| {
            pause = match growth {
                Backoff::Growing => backoff(FAILED, entry.failures),
                Backoff::Constant => FAILED.0,
                Backoff::Longest => FAILED.1,
            };
            entry.fail(error);
            entry.wiped = None;
            let state = CleanupState::Failed {
                error: error.to_owned(),
                retry_at: now + pause,
                lasts: growth == Backoff::Longest,
            };
            entry.enter(state, now);
        });
        pause
    }

    /// Forgets a cleanup that no task works on.
    pub fn forget(&self, tenancy: &Tenancy) {
        self.entries
            .remove_if(tenancy, |_, entry| !entry.cleanup.at_work);
    }

    /// Whether a task is at work.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.entries.iter().any(|entry| entry.cleanup.at_work)
    }

    /// A copy of one cleanup's entry.
    #[must_use]
    pub fn get(&self, tenancy: &Tenancy) -> Option<ProcEntry> {
        self.entries.get(tenancy).map(|entry| entry.clone())
    }

    /// The entry of each PV: the one at work, or else the newest.
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

    /// How many are in which state.
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

    /// What the plan sees.
    #[must_use]
    pub fn view(&self) -> BTreeMap<Tenancy, Cleanup> {
        let view = |entry: &ProcEntry| Cleanup {
            stalled: entry.progress.stalled() >= STANDS_STILL,
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

    /// Changes the entry of the attempt that ends now.
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

impl ProcEntry {
    /// Counts a failure that the plan has recorded.
    fn note_failure(&mut self) {
        if let CleanupState::Failed { error, .. } = self.cleanup.state.clone() {
            self.fail(&error);
        }
    }
}

fn backoff((first, longest): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(longest)
}
