//! The steps of a cleanup: for each PV that is due, what comes next.
//!
//! [`Planner::reconcile_due`], [`Planner::next_step`] and [`Planner::start_cleanups`] decide alone, in this order; the
//! first match wins. What a cleaning Job means is in `jobs.rs`. An attempt runs to its end without waiting or retrying,
//! and leaves a [`CleanupState`].

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::host::identity::is_made;
use crate::host::mounts::DeviceNumber;
use crate::inventory::Volume;
use crate::types::VolumeMode;
use crate::view::{Phase, PvView};
use crate::wipe::method::Method;

use super::consent::consents_to_forget;
use super::delete_pvs::{FORGOTTEN, PAUSED};
use super::jobs::{JOB_PENDING_LIMIT, is_running};
use super::verdict::may_clean;
use super::{
    Action, CleanOrder, Cleanup, CleanupState, JobTerms, JobWrite, Planner, PvLocation, Settings,
    Snapshot, Track, VolumeState, reasons,
};

/// What a cleanup waits for while `maxConcurrentCleanups` others run.
pub const FOR_A_SLOT: &str = "for a permit";

/// The error, and its fix, when no image for cleaning Jobs is known.
pub const NO_JOB_IMAGE: &str = "useJobForCleaning is on, but the environment variable JOB_CONTAINER_IMAGE, which names the image of \
    the Jobs, is not set, so no device is cleaned; set it in the DaemonSet to the image of the provisioner (the chart \
    does), or switch useJobForCleaning off";

/// Why a volume that may be cleaned is not.
const BUSY: &str = "a write of its PV is under way or tried again soon, or its path is being cleaned for another PV; see the log";

/// How long the watch may show our finalizer after its removal. After that, the PV is another one of this UID.
const REMOVED_FINALIZER_LIMIT: Duration = Duration::from_secs(10);

/// How a volume is cleaned.
fn method(volume: &Volume) -> Method {
    let (class, candidate) = (&volume.class, &volume.candidate);
    if class.makes_filesystems() && is_made(&candidate.identity) {
        return Method::Reformat;
    }
    Method::of(candidate.kind, &class.cleaner)
}

impl<'a> Planner<'a> {
    pub(super) fn cleanup(&self, pv: &PvView) -> Option<&'a Cleanup> {
        self.snapshot.ledger.cleanups.get(&pv.tenancy())
    }

    /// Forgets cleanups whose PV is gone or no longer due.
    pub(super) fn forget_cleanups(&mut self) {
        let orphans = self.orphans();
        let is_orphan = |tenancy| orphans.iter().any(|(it, _)| it == tenancy);
        for (tenancy, cleanup) in &self.snapshot.ledger.cleanups {
            let pv = self.by_uid.get(tenancy.pv_uid.as_str()).copied();
            let ends_here =
                matches!(cleanup.state, CleanupState::Wiped { .. } | CleanupState::Released);
            let is_needed = pv.is_some_and(|pv| {
                pv.tenancy() == *tenancy && (ends_here || !self.must_not_clean(pv))
            });
            let job_runs = || {
                let mut jobs = self.snapshot.jobs.values();
                jobs.any(|job| is_running(job, tenancy))
            };
            // Of a wiped orphan no PV is released. Its volume is scanned again.
            let is_unfinished = !ends_here && is_orphan(tenancy);
            if cleanup.running || is_needed || is_unfinished || job_runs() {
                continue;
            }
            if let (CleanupState::JobRunning { job }, None) = (&cleanup.state, pv)
                && !self.snapshot.jobs.values().any(|job| job.is_for(tenancy))
            {
                let message = format!(
                    "Job {job} was deleted while it cleaned {}, and PV {} is gone too: the volume is only partly clean; without a mark it is offered as it is; clean it by hand",
                    cleanup.path, cleanup.pv
                );
                self.notice(super::About::Pod, reasons::VOLUME_FAILED_DELETE, message);
            }
            self.plan.actions.push(Action::Forget(tenancy.clone()));
        }
    }

    /// Handles a cleanup that runs or has wiped the volume. Returns `false` if there is none.
    pub(super) fn reconcile_running(&mut self, pv: &'a PvView) -> bool {
        let Some(cleanup) = self.cleanup(pv) else {
            return false;
        };
        let state = match &cleanup.state {
            // The PV was restored with etcd. A wipe vouches for one release.
            CleanupState::Wiped { .. } | CleanupState::Released if pv.phase == Phase::Bound => {
                if !cleanup.running {
                    self.plan.actions.push(Action::Forget(pv.tenancy()));
                }
                return false;
            }
            CleanupState::Wiped { .. } => VolumeState::Cleaning,
            CleanupState::Released => {
                let is_kept = pv.has_finalizer() || !pv.deleting;
                if is_kept && self.snapshot.now >= cleanup.since + REMOVED_FINALIZER_LIMIT {
                    self.plan.actions.push(Action::Forget(pv.tenancy()));
                }
                VolumeState::Cleaned
            }
            CleanupState::Wiping if cleanup.suspended => VolumeState::Paused,
            CleanupState::Wiping if cleanup.running => VolumeState::Cleaning,
            _ if cleanup.running => VolumeState::Waiting,
            _ => return false,
        };
        self.states.insert(&pv.name, (state, None));
        if state == VolumeState::Paused {
            self.problem(pv, reasons::CLEANING_PAUSED, state, PAUSED.into());
        }
        self.notify_blocked(pv, cleanup);
        self.release(pv, cleanup);
        true
    }

    /// Releases the PV of a wiped volume. Its Job is deleted first, so that its pod cannot touch the next
    /// tenant's data.
    fn release(&mut self, pv: &'a PvView, cleanup: &Cleanup) {
        let CleanupState::Wiped { error, retry_at } = &cleanup.state else {
            return;
        };
        if let Some(job) = self.job_of(pv) {
            if self.snapshot.now.saturating_sub(cleanup.since) >= JOB_PENDING_LIMIT {
                let namespace = &self.snapshot.job_source.namespace;
                let message = format!(
                    "the volume is clean, but its PV stays: Job {namespace}/{} and its pods have not gone for {JOB_PENDING_LIMIT:?}; see kubectl --namespace {namespace} get jobs,pods --selector pvuuid={}",
                    job.name, pv.uid
                );
                self.notice(pv, reasons::VOLUME_FAILED_DELETE, message);
            }
            return self.write_job(job, JobWrite::Delete("the volume is clean".to_owned()));
        }
        if let Some(error) = error {
            let reason = reasons::VOLUME_FAILED_DELETE;
            self.problem(pv, reason, VolumeState::Refused, error.clone());
        }
        if self.snapshot.now < *retry_at {
            self.wake_at(*retry_at);
        } else if !cleanup.running {
            self.plan.actions.push(Action::Release(pv.tenancy()));
        }
    }

    /// Reconciles a PV whose volume has to be cleaned.
    pub(super) fn reconcile_due(&mut self, pv: &'a PvView, location: &PvLocation<'a>) {
        let disks = location.candidate().map(|it| it.rotational.clone());
        if self.reconcile_running_job(pv, &disks.unwrap_or_default()) {
            return;
        }
        if consents_to_forget(pv) {
            if !self.keep_data(pv, location) {
                self.withdraw(pv, FORGOTTEN);
            }
            return;
        }
        if self.plan.paused || pv.paused {
            self.cancel_pending_job(pv, PAUSED);
            return self.problem(pv, reasons::CLEANING_PAUSED, VolumeState::Paused, PAUSED.into());
        }
        if matches!(location, PvLocation::Unknown) {
            let wait = "its directory cannot be read at the moment; cleaning waits until it can";
            self.states.insert(&pv.name, (VolumeState::Due, Some(wait.into())));
            return;
        }
        let config = &self.settings.config;
        let verdict = may_clean(pv, self.settings, self.node, location, &self.occupied);
        let (Ok(_), PvLocation::Volume(volume)) = (&verdict, location) else {
            if let Err(refusal) = verdict {
                self.cancel_pending_job(pv, &refusal.message);
                self.problem(pv, refusal.reason, refusal.state, refusal.message);
            }
            return;
        };
        let source = &self.snapshot.job_source;
        let is_judged = self.settings.judges(&volume.candidate);
        let job = match &source.image {
            _ if !config.use_job_for_cleaning || volume.candidate.kind != VolumeMode::Block => None,
            Some(image) => Some(JobTerms {
                hostname: self.node.hostname.clone(),
                tolerations: config.job_tolerations.clone(),
                image: image.clone(),
                state_directory: is_judged.and(source.state_directory.clone()),
            }),
            None => {
                let reason = reasons::VOLUME_FAILED_DELETE;
                return self.problem(pv, reason, VolumeState::Refused, NO_JOB_IMAGE.into());
            }
        };
        if self.is_busy(pv) {
            self.states.insert(&pv.name, (VolumeState::Due, Some(BUSY.into())));
            return;
        }
        self.states.insert(&pv.name, (VolumeState::Due, None));
        let mut order = self.clean_order(pv.clone(), volume);
        order.job = job;
        order.basis = self.basis(pv, location);
        self.next_step(pv, order);
    }

    /// How the volume of an entry is cleaned, by this process unless a Job is set.
    pub(super) fn clean_order(&self, pv: PvView, volume: &Arc<Volume>) -> CleanOrder {
        let generation = self.settings.generation;
        CleanOrder {
            pv,
            volume: Arc::clone(volume),
            method: method(volume),
            job: None,
            cleaned_by: None,
            basis: generation,
            generation,
            orphan_on: None,
        }
    }

    /// A hash of the facts that a cleanup depends on. When it changes, a failed cleanup is retried at once.
    /// It excludes what our own writes change.
    fn basis(&self, pv: &PvView, location: &PvLocation<'a>) -> u64 {
        let found = location.candidate().map(|it| (&it.identity.text, it.read_only, &it.in_use));
        let (policy, job) = (&pv.policy, self.failed_job(pv));
        let mut hasher = DefaultHasher::new();
        let generation = self.settings.generation;
        (generation, &pv.consent, policy, pv.phase, job, found).hash(&mut hasher);
        hasher.finish()
    }

    /// Decides the next step for a volume that may be cleaned.
    pub(super) fn next_step(&mut self, pv: &'a PvView, mut order: CleanOrder) {
        if let Some(cleanup) = self.cleanup(pv) {
            self.notify_blocked(pv, cleanup);
            if !cleanup.is_attempt_due(self.snapshot.now, order.basis) {
                self.postponed(pv, cleanup);
                return;
            }
        }
        if order.volume.candidate.kind == VolumeMode::Block && self.is_up_to_job(pv, &mut order) {
            return;
        }
        self.due.push(order);
    }

    /// The next attempt is not due yet.
    fn postponed(&mut self, pv: &'a PvView, cleanup: &Cleanup) {
        match &cleanup.state {
            CleanupState::Blocked { retry_at, notify_at, .. } => {
                // A Job may have been created that the watch does not show yet.
                let lasted = self.snapshot.now.saturating_sub(cleanup.since);
                if notify_at.is_none() && lasted < JOB_PENDING_LIMIT {
                    self.slots.hold(&cleanup.disks);
                }
                self.wake_at(*retry_at);
                self.states.insert(&pv.name, (VolumeState::Waiting, None));
            }
            CleanupState::Failed { retry_at, error, .. } => {
                self.wake_at(*retry_at);
                // A failed attempt reports its failure itself; a failed Job does not.
                if self.failed_job(pv).is_some() {
                    self.notice(pv, reasons::VOLUME_FAILED_DELETE, error.clone());
                }
                let state = (VolumeState::CleaningFailed, None);
                self.states.insert(&pv.name, state);
            }
            _ => {}
        }
    }

    fn notify_blocked(&mut self, pv: &PvView, cleanup: &Cleanup) {
        if let CleanupState::Blocked { reason, notify_at: Some(notify_at), .. } = &cleanup.state {
            if self.snapshot.now >= *notify_at {
                self.notice(pv, reasons::VOLUME_IN_USE, reason.clone());
            } else {
                self.wake_at(*notify_at);
            }
        }
    }

    pub(super) fn wait(&mut self, pv: &'a PvView, reason: String, job: Option<String>, basis: u64) {
        self.states.insert(&pv.name, (VolumeState::Waiting, None));
        self.track(pv, CleanupState::Waiting { reason, job }, basis);
    }

    pub(super) fn track(&mut self, pv: &PvView, state: CleanupState, basis: u64) {
        let known = self.cleanup(pv);
        if known.is_some_and(|cleanup| cleanup.state == state && cleanup.basis == basis) {
            return;
        }
        if let Some(path) = pv.path() {
            self.plan.actions.push(Action::Track(Box::new(Track {
                tenancy: pv.tenancy(),
                pv: pv.name.clone(),
                path: path.clone(),
                state,
                basis,
            })));
        }
    }

    /// Gives the slots to the oldest releases.
    pub(super) fn start_cleanups(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        due.sort_by_cached_key(|order| (order.pv.released_at, order.pv.name.clone()));
        for order in due {
            if self.slots.take(&order.volume.candidate.rotational) {
                self.plan.actions.push(Action::Clean(Box::new(order)));
                continue;
            }
            // A blocked or failed cleanup keeps its state, which names the cause.
            let cleanup = self.snapshot.ledger.cleanups.get(&order.pv.tenancy());
            let is_new = cleanup.is_none_or(|it| {
                matches!(it.state, CleanupState::Waiting { .. } | CleanupState::JobRunning { .. })
            });
            let Some(pv) = self.by_uid.get(order.pv.uid.as_str()).copied() else {
                continue;
            };
            if is_new {
                self.wait(pv, FOR_A_SLOT.into(), None, order.basis);
            } else {
                let waits = format!("the next attempt waits {FOR_A_SLOT}");
                self.states.insert(&pv.name, (VolumeState::Due, Some(waits)));
            }
        }
    }

    fn wake_at(&mut self, at: Duration) {
        let earliest = self.plan.wake_at.map_or(at, |other| other.min(at));
        self.plan.wake_at = Some(earliest);
    }
}

/// The free slots for cleanups: `maxConcurrentCleanups` in all, and one for each rotational disk.
#[derive(Debug, Default)]
pub(super) struct Slots {
    limit: usize,
    held: usize,
    /// Running wipes, including stalled ones, which hold no slot.
    wipes: usize,
    disks: BTreeSet<DeviceNumber>,
}

impl Slots {
    pub(super) fn of(settings: &Settings, snapshot: &Snapshot) -> Self {
        let mut slots =
            Self { limit: settings.config.max_concurrent_cleanups.get().into(), ..Self::default() };
        for cleanup in snapshot.ledger.cleanups.values().filter(|it| it.running) {
            if !matches!(cleanup.state, CleanupState::Wiped { .. }) {
                slots.wipes += 1;
                slots.held += usize::from(!cleanup.stalled && !cleanup.suspended);
                slots.disks.extend(&cleanup.disks);
            }
        }
        slots
    }

    /// Acquires a slot, if one is free.
    pub(super) fn take(&mut self, disks: &BTreeSet<DeviceNumber>) -> bool {
        let is_free =
            self.held < self.limit && self.wipes < 2 * self.limit && self.disks.is_disjoint(disks);
        if is_free {
            self.hold(disks);
        }
        is_free
    }

    pub(super) fn hold(&mut self, disks: &BTreeSet<DeviceNumber>) {
        self.held += 1;
        self.wipes += 1;
        self.disks.extend(disks);
    }
}
