//! The ProcTable: which cleanup is how far.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::plan::{CleanupState, CleanupView};
use crate::types::HostPath;
use crate::view::Tenancy;

use super::progress::Progress;

/// How long the first failed cleanup waits for its next try; each further one twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// The longest wait.
const LAST_RETRY: Duration = Duration::from_mins(5);
/// What a cleanup waits for first.
pub const FOR_A_PERMIT: &str = "for a permit";

/// How far one cleanup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcState {
    /// For a permit, or for whoever still uses the volume. The text says for what.
    Waiting(String),
    /// At work on the volume or on releasing its PV.
    Running,
    /// Released; stays until the object is gone, so that nothing takes the path for a new one.
    Succeeded,
    /// Failed.
    Failed {
        /// The cause.
        error: String,
        /// When to try again.
        retry_at: Instant,
    },
}

impl ProcState {
    /// Whether somebody waits or works.
    fn is_active(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Running)
    }
}

/// How the pauses between the tries of a failing cleanup go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Each twice as long as the one before.
    Growing,
    /// All as short as the first.
    Constant,
    /// All as long as the longest: somebody has to do something first.
    Long,
}

/// One cleanup. A copy: nothing in it is a guard on the table.
#[derive(Clone, Debug)]
pub struct ProcEntry {
    /// The PV's name.
    pub pv: String,
    /// The volume's path on the host.
    pub path: HostPath,
    /// How far it is.
    pub state: ProcState,
    /// When the present state began.
    pub since: Instant,
    /// How often it was begun.
    pub attempts: u32,
    /// What the last decision to clean was made on.
    pub basis: u64,
    /// Why it failed the last time.
    pub last_error: Option<String>,
    /// Whether it is to fail again until somebody does something.
    pub lasts: bool,
    /// Why the PV of the clean volume could not be released so far.
    pub release_error: Option<String>,
    /// The Job that cleans, `namespace/name`.
    pub job: Option<String>,
    /// What the cleaner counts, and the way to stop it.
    pub progress: Progress,
}

/// A change that does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A cleanup of that tenancy is at work already, or done.
    #[error("a cleanup of PV {0} is under way already")]
    Present(String),
    /// No cleanup of that tenancy is in the table.
    #[error("no cleanup of that volume is under way")]
    Absent,
    /// A running cleanup cannot be forgotten.
    #[error("the cleanup of PV {0} is still running")]
    StillRunning(String),
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

/// All cleanups, by tenancy: a state of an earlier PV or an earlier claim never counts for a later
/// one.
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

    /// Enters a cleanup that is about to begin, as Waiting.
    ///
    /// # Errors
    /// [`TableError::Present`] if one is at work, or done and not yet forgotten.
    pub fn begin(
        &self,
        tenancy: &Tenancy,
        pv: &str,
        path: &HostPath,
        basis: u64,
    ) -> Result<Progress, TableError> {
        let progress = Progress::default();
        let entry = |attempts, last_error| ProcEntry {
            pv: pv.to_owned(),
            path: path.clone(),
            state: ProcState::Waiting(FOR_A_PERMIT.into()),
            since: Instant::now(),
            attempts,
            basis,
            last_error,
            lasts: false,
            release_error: None,
            job: None,
            progress: progress.clone(),
        };
        match self.entries.entry(tenancy.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(entry(1, None));
            }
            Entry::Occupied(mut present) => {
                let failed = present.get();
                if !matches!(failed.state, ProcState::Failed { .. }) {
                    return Err(TableError::Present(pv.to_owned()));
                }
                // New facts, new patience.
                let attempts = if failed.basis == basis {
                    failed.attempts + 1
                } else {
                    1
                };
                let last_error = failed.last_error.clone();
                present.insert(entry(attempts, last_error));
            }
        }
        Ok(progress)
    }

    /// Says what a waiting cleanup waits for.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn mark_waiting(&self, tenancy: &Tenancy, what_for: &str) -> Result<(), TableError> {
        self.change(tenancy, |entry| {
            if !matches!(entry.state, ProcState::Waiting(_)) {
                entry.since = Instant::now();
            }
            entry.state = ProcState::Waiting(what_for.to_owned());
        })
    }

    /// From here on, data is being destroyed.
    ///
    /// # Errors
    /// [`TableError::Present`] if it runs already, [`TableError::Absent`] if it was never begun.
    pub fn mark_running(&self, tenancy: &Tenancy) -> Result<(), TableError> {
        let mut entry = self.entries.get_mut(tenancy).ok_or(TableError::Absent)?;
        if !matches!(entry.state, ProcState::Waiting(_)) {
            return Err(TableError::Present(entry.pv.clone()));
        }
        entry.state = ProcState::Running;
        entry.since = Instant::now();
        Ok(())
    }

    /// A Job does the work (`namespace/name`), or no longer does.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn mark_job(&self, tenancy: &Tenancy, job: Option<String>) -> Result<(), TableError> {
        self.change(tenancy, |entry| entry.job = job)
    }

    /// Another try is under way in another place: what it fails at is news, if it is the same.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn forget_error(&self, tenancy: &Tenancy) -> Result<(), TableError> {
        self.change(tenancy, |entry| entry.last_error = None)
    }

    /// The volume is clean, and its PV could not be released for this reason.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn mark_unreleased(&self, tenancy: &Tenancy, error: &str) -> Result<(), TableError> {
        self.change(tenancy, |entry| {
            entry.release_error = Some(error.to_owned());
        })
    }

    /// The volume is clean and its PV released.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn mark_succeeded(&self, tenancy: &Tenancy) -> Result<(), TableError> {
        self.change(tenancy, |entry| {
            entry.state = ProcState::Succeeded;
            entry.release_error = None;
            entry.since = Instant::now();
        })
    }

    /// It failed; says for how long it is left alone.
    ///
    /// # Errors
    /// [`TableError::Absent`].
    pub fn mark_failed(
        &self,
        tenancy: &Tenancy,
        error: &str,
        patience: Patience,
    ) -> Result<Duration, TableError> {
        let mut pause = FIRST_RETRY;
        self.change(tenancy, |entry| {
            pause = match patience {
                Patience::Growing => retry_after(entry.attempts),
                Patience::Constant => FIRST_RETRY,
                Patience::Long => LAST_RETRY,
            };
            entry.last_error = Some(error.to_owned());
            entry.lasts = patience == Patience::Long;
            let retry_at = Instant::now() + pause;
            entry.state = ProcState::Failed {
                error: error.to_owned(),
                retry_at,
            };
            entry.since = Instant::now();
        })?;
        Ok(pause)
    }

    /// Forgets a cleanup that is not running.
    ///
    /// # Errors
    /// [`TableError::StillRunning`].
    pub fn remove_entry(&self, tenancy: &Tenancy) -> Result<Option<ProcEntry>, TableError> {
        let idle = |_: &Tenancy, entry: &ProcEntry| !matches!(entry.state, ProcState::Running);
        if let Some((_, entry)) = self.entries.remove_if(tenancy, idle) {
            return Ok(Some(entry));
        }
        match self.get(tenancy) {
            Some(entry) => Err(TableError::StillRunning(entry.pv)),
            None => Ok(None),
        }
    }

    /// Whether data is being destroyed.
    #[must_use]
    pub fn is_running(&self, tenancy: &Tenancy) -> bool {
        self.get(tenancy)
            .is_some_and(|entry| entry.state == ProcState::Running)
    }

    /// Whether nothing at all is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A copy of one cleanup's entry.
    #[must_use]
    pub fn get(&self, tenancy: &Tenancy) -> Option<ProcEntry> {
        self.entries.get(tenancy).map(|entry| entry.clone())
    }

    /// What is to be told of each PV: a copy of the entry that is under way, or else of the newest. Of a
    /// claim before there may be another one, which failed.
    #[must_use]
    pub fn by_pv(&self) -> BTreeMap<String, ProcEntry> {
        let mut told: BTreeMap<String, ProcEntry> = BTreeMap::new();
        for entry in &self.entries {
            let rank = |it: &ProcEntry| (it.state.is_active(), it.since);
            if told
                .get(&entry.pv)
                .is_none_or(|other| rank(other) < rank(&entry))
            {
                told.insert(entry.pv.clone(), entry.clone());
            }
        }
        told
    }

    /// How many are in which state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for entry in &self.entries {
            *match entry.state {
                ProcState::Waiting(_) => &mut stats.waiting,
                ProcState::Running if entry.release_error.is_some() => &mut stats.succeeded,
                ProcState::Running => &mut stats.running,
                ProcState::Succeeded => &mut stats.succeeded,
                ProcState::Failed { .. } => &mut stats.failed,
            } += 1;
        }
        stats
    }

    /// What the plan needs of it.
    #[must_use]
    pub fn view(&self) -> BTreeMap<Tenancy, CleanupView> {
        let view = |entry: &ProcEntry| CleanupView {
            path: entry.path.clone(),
            release_error: entry.release_error.clone(),
            state: match entry.state {
                ProcState::Waiting(_) => CleanupState::Waiting,
                ProcState::Running => CleanupState::Running,
                ProcState::Succeeded => CleanupState::Succeeded,
                ProcState::Failed { retry_at, .. } => CleanupState::Failed {
                    retry_at: retry_at.duration_since(self.epoch),
                    basis: entry.basis,
                },
            },
        };
        self.entries
            .iter()
            .map(|entry| (entry.key().clone(), view(&entry)))
            .collect()
    }

    /// Tells all cleaners to stop.
    pub fn cancel_all(&self) {
        for entry in &self.entries {
            entry.progress.cancel();
        }
    }

    fn change(
        &self,
        tenancy: &Tenancy,
        change: impl FnOnce(&mut ProcEntry),
    ) -> Result<(), TableError> {
        let mut entry = self.entries.get_mut(tenancy).ok_or(TableError::Absent)?;
        change(&mut entry);
        Ok(())
    }
}

fn retry_after(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    FIRST_RETRY.saturating_mul(1 << doublings).min(LAST_RETRY)
}
