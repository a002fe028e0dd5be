//! The ProcTable: all that this process remembers. Each cleanup has an entry with its state, the progress of its task and
//! its wiped volume. The rest is the [`Ledger`], which every plan sees.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::plan::{CleanOrder, Cleanup, CleanupState, FOR_A_SLOT, Ledger, Track};
use crate::retry;
use crate::types::HostPath;
use crate::view::Tenancy;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

use super::Stop;
use super::monitor::STALL_LIMIT;
use super::release::Wiped;

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
    is_external: bool,
    first_seen: Duration,
}

impl ProcEntry {
    /// The consecutive attempts, including the current one.
    pub fn attempts(&self) -> u32 {
        let has_failed = matches!(self.cleanup.state, CleanupState::Failed { .. });
        self.failures + u32::from(!has_failed)
    }

    /// How long the cleanup has been in its state.
    pub fn lasted(&self, table: &ProcTable) -> Duration {
        table.now().saturating_sub(self.cleanup.since)
    }

    fn new(pv: String, path: HostPath, state: CleanupState, since: Duration) -> Self {
        Self {
            cleanup: Cleanup {
                pv,
                path,
                identity: String::new(),
                state,
                since,
                running: false,
                stalled: false,
                suspended: false,
                disks: BTreeSet::new(),
                basis: 0,
            },
            failures: 0,
            release_failures: 0,
            last_error: None,
            progress: Progress::default(),
            wiped: None,
            is_external: false,
            first_seen: since,
        }
    }

    fn enter(&mut self, state: CleanupState, now: Duration) {
        // Waits for a slot and for a Job have lasted for different times, and so have uses that are reported, and
        // blocks that are not.
        let kind = |state: &CleanupState| {
            let is_other = match state {
                CleanupState::Waiting { job, .. } => job.is_some(),
                CleanupState::Blocked { notify_at, .. } => notify_at.is_some(),
                _ => false,
            };
            (std::mem::discriminant(state), is_other)
        };
        if kind(&self.cleanup.state) != kind(&state) {
            self.cleanup.since = now;
        }
        self.cleanup.state = state;
    }

    fn fail(&mut self, error: &str) {
        self.failures += 1;
        self.last_error = Some(error.to_owned());
    }
}

/// The cleanups and the ledger. Cleanups are kept by tenancy, so that the state of an old PV or claim never applies to a
/// new one.
#[derive(Debug)]
pub struct ProcTable {
    entries: DashMap<Tenancy, ProcEntry>,
    facts: Mutex<Ledger>,
    epoch: Instant,
}

impl ProcTable {
    /// An empty table. `epoch` is the zero point of [`crate::plan::Snapshot::now`].
    pub fn new(epoch: Instant) -> Self {
        Self { entries: DashMap::new(), facts: Mutex::default(), epoch }
    }

    /// The time since the process started, see [`crate::plan::Snapshot::now`].
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// What was done and found out otherwise.
    pub fn facts(&self) -> MutexGuard<'_, Ledger> {
        self.facts.lock()
    }

    /// Starts an attempt. `None` if one is running, or the volume is clean.
    pub fn begin(&self, order: &CleanOrder) -> Option<Progress> {
        let now = self.now();
        let mut entry = self.entries.entry(order.pv.tenancy()).or_insert_with(|| {
            let (reason, job) = (FOR_A_SLOT.to_owned(), None);
            let state = CleanupState::Waiting { reason, job };
            ProcEntry::new(order.pv.name.clone(), order.volume.path.clone(), state, now)
        });
        let is_clean =
            matches!(entry.cleanup.state, CleanupState::Wiped { .. } | CleanupState::Released);
        if entry.cleanup.running || is_clean {
            return None;
        }
        if entry.cleanup.basis != order.basis {
            entry.failures = 0;
        }
        let candidate = &order.volume.candidate;
        entry.cleanup.basis = order.basis;
        entry.cleanup.identity.clone_from(&candidate.identity.text);
        entry.cleanup.disks.clone_from(&candidate.rotational);
        entry.cleanup.running = true;
        entry.is_external = matches!(order.method, Method::Command(_));
        entry.progress = Progress::default();
        Some(entry.progress.clone())
    }

    /// Records the state that the plan derived from the cluster. A running cleanup records its own state.
    pub fn track(&self, track: Track) {
        let now = self.now();
        let mut entry = self
            .entries
            .entry(track.tenancy)
            .or_insert_with(|| ProcEntry::new(track.pv, track.path, track.state.clone(), now));
        if !entry.cleanup.running {
            if let CleanupState::Failed { error, .. } = &track.state {
                entry.fail(error);
            }
            entry.cleanup.basis = track.basis;
            entry.enter(track.state, now);
        }
    }

    /// The attempt starts to delete data.
    pub fn mark_wiping(&self, tenancy: &Tenancy) {
        self.change(tenancy, |entry, now| entry.enter(CleanupState::Wiping, now));
    }

    /// The volume is in use, or its state changed during the checks (`notify_after` is `None`: not reported).
    pub fn mark_blocked(&self, tenancy: &Tenancy, reason: &str, notify_after: Option<Duration>) {
        self.end(tenancy, |entry, now| {
            entry.wiped = None;
            let state = |since: Duration| {
                let lasted = now.saturating_sub(since);
                let pause = if lasted < retry::LONG_USE {
                    retry::IN_USE
                } else {
                    (lasted / 6).min(retry::LONGEST_IN_USE)
                };
                CleanupState::Blocked {
                    reason: reason.to_owned(),
                    notify_at: notify_after.map(|after| since + after),
                    retry_at: now + pause,
                }
            };
            entry.enter(state(now), now);
            entry.cleanup.state = state(entry.cleanup.since);
        });
    }

    /// The Job was created. The next pass follows it.
    pub fn mark_job(&self, tenancy: &Tenancy, job: &str) {
        let reason = format!("for Job {job}, whose pod does not run");
        self.mark_blocked(tenancy, &reason, None);
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
    pub(super) fn mark_unreleased(&self, tenancy: &Tenancy, why: &Stop) {
        self.end(tenancy, |entry, now| {
            let pause = retry::RELEASE.pause(entry.release_failures);
            entry.release_failures += 1;
            // A transient error is reported if it lasts.
            let is_reported = matches!(why, Stop::Failed(_)) || pause == retry::RELEASE.longest;
            let error = is_reported.then(|| why.message().to_owned());
            let retry_at = now + pause;
            entry.enter(CleanupState::Wiped { error, retry_at }, now);
        });
    }

    /// Starts the release of a wiped volume. `None` if it is running.
    pub fn begin_release(&self, tenancy: &Tenancy) -> Option<Arc<Wiped>> {
        let mut entry = self.entries.get_mut(tenancy)?;
        if entry.cleanup.running {
            return None;
        }
        let wiped = entry.wiped.clone()?;
        entry.cleanup.running = true;
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

    /// The attempt failed. Returns the pause before the next attempt.
    pub fn mark_failed(&self, tenancy: &Tenancy, error: &str) -> Duration {
        let mut pause = Duration::ZERO;
        self.end(tenancy, |entry, now| {
            pause = retry::CLEANUP.pause(entry.failures);
            entry.fail(error);
            entry.wiped = None;
            let (error, retry_at) = (error.to_owned(), now + pause);
            entry.enter(CleanupState::Failed { error, retry_at }, now);
        });
        pause
    }

    /// Removes a cleanup, unless a task runs for it.
    pub fn forget(&self, tenancy: &Tenancy) {
        self.entries.remove_if(tenancy, |_, entry| !entry.cleanup.running);
    }

    /// Whether any task runs.
    pub fn is_running(&self) -> bool {
        self.entries.iter().any(|entry| entry.cleanup.running)
    }

    /// A copy of one cleanup's entry.
    pub fn get(&self, tenancy: &Tenancy) -> Option<ProcEntry> {
        self.entries.get(tenancy).map(|entry| entry.clone())
    }

    /// For how long this process has known that the volume is to be cleaned.
    pub fn known_for(&self, tenancy: &Tenancy) -> Duration {
        let seen = self.entries.get(tenancy).map(|entry| entry.first_seen);
        seen.map_or(Duration::ZERO, |seen| self.now().saturating_sub(seen))
    }

    /// The entry of each PV: the running cleanup, or else the newest.
    pub fn by_pv(&self) -> BTreeMap<String, ProcEntry> {
        let mut entries: Vec<_> = self.entries.iter().map(|entry| entry.clone()).collect();
        entries.sort_by_key(|ProcEntry { cleanup, .. }| {
            let is_over =
                matches!(cleanup.state, CleanupState::Failed { .. } | CleanupState::Released);
            (cleanup.running || !is_over, cleanup.since)
        });
        // Of several entries of a PV, the last one stays.
        let by_pv = entries.into_iter();
        by_pv.map(|it| (it.cleanup.pv.clone(), it)).collect()
    }

    /// The state of all cleanups, for the plan.
    pub fn view(&self) -> BTreeMap<Tenancy, Cleanup> {
        let view = |entry: &ProcEntry| Cleanup {
            stalled: entry.progress.stalled() >= STALL_LIMIT,
            suspended: entry.progress.is_suspended(),
            ..entry.cleanup.clone()
        };
        self.entries.iter().map(|entry| (entry.key().clone(), view(&entry))).collect()
    }

    /// Ends the pauses of all that waits for the API server or a user.
    pub fn end_back_offs(&self) {
        let now = self.now();
        self.facts().end_pauses(now);
        for mut entry in self.entries.iter_mut() {
            entry.release_failures = 0;
            let state = &mut entry.cleanup.state;
            if let CleanupState::Blocked { retry_at, .. } | CleanupState::Wiped { retry_at, .. } =
                state
            {
                *retry_at = now.min(*retry_at);
            }
        }
    }

    /// Suspends or resumes a cleaner.
    pub fn suspend(&self, tenancy: &Tenancy, is_suspended: bool) {
        self.change(tenancy, |entry, _| {
            // An external cleaner does not read the progress.
            if !entry.is_external {
                entry.progress.suspend(is_suspended);
            }
        });
    }

    /// Cancels the cleaner of a wipe whose reason has ended.
    pub fn cancel(&self, tenancy: &Tenancy, because: &str) {
        self.change(tenancy, |entry, _| entry.progress.end(because));
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
            entry.cleanup.running = false;
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
