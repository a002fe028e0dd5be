//! The steps of a cleanup: for each PV that is due, what comes next.
//!
//! [`Planner::reconcile_due`] and [`Planner::next_step`] decide alone; the first match wins. An attempt runs to its
//! end without waiting or retrying, and leaves a [`CleanupState`].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::host::mounts::DeviceNumber;
use crate::names::job_name;
use crate::types::VolumeMode;
use crate::view::{JobState, JobView, Phase, PvView, Tenancy};

use super::delete_pvs::PAUSED;
use super::job_object::fingerprint;
use super::{
    Action, CleanOrder, Cleanup, CleanupState, JobWrite, Planner, Track, VolumeState, reasons,
};

/// What a cleanup waits for while `maxConcurrentCleanups` others run.
pub const FOR_A_SLOT: &str = "for a permit";

/// For how long a Job may be pending before it holds no slot and is reported.
const JOB_PENDING_LIMIT: Duration = Duration::from_mins(2);
/// For how long this process waits for a Job before it replaces it because its template changed. During an update of the
/// provisioner two of them run on the node, and each would replace the other's Job without end.
const JOB_TEMPLATE_GRACE: Duration = Duration::from_secs(30);

/// How long the watch may show our finalizer after its removal. After that, the PV is another one of this UID.
const REMOVED_FINALIZER_LIMIT: Duration = Duration::from_secs(10);

/// Why a Job that does not [run](is_running) has to be deleted before the next attempt. `template` is the fingerprint
/// of the Job that would be created now, and `waited` how long this process has waited for the Job.
fn is_in_the_way(
    job: &JobView,
    order: &CleanOrder,
    template: Option<&str>,
    waited: Duration,
) -> Option<&'static str> {
    let has_jobs = order.job.is_some();
    let is_old = waited >= JOB_TEMPLATE_GRACE;
    match &job.state {
        _ if job.deleting => Some("which is being deleted"),
        _ if !job.is_for(&order.pv.tenancy()) => {
            Some("which belongs to another PV or to an earlier claim")
        }
        JobState::Pending | JobState::Running if !has_jobs => {
            Some("which has not started, and Jobs are switched off now")
        }
        JobState::Pending | JobState::Running if job.template.as_deref() != template && is_old => {
            Some("which has not started, and whose template has changed")
        }
        JobState::Succeeded if job.cleaner != Some(order.volume.class.cleaner.to_string()) => {
            Some("which cleaned by another method than the class has now")
        }
        JobState::Failed(_) if !has_jobs => Some("which failed, and Jobs are switched off now"),
        _ => None,
    }
}

/// Whether a Job deletes the data of this tenancy now.
pub(super) fn is_running(job: &JobView, tenancy: &Tenancy) -> bool {
    !job.deleting && job.state == JobState::Running && job.is_for(tenancy)
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

    /// Handles a Job that deletes the data. Returns `false` if there is none.
    pub(super) fn reconcile_running_job(
        &mut self,
        pv: &'a PvView,
        disks: &BTreeSet<DeviceNumber>,
    ) -> bool {
        let job = self.snapshot.jobs.get(&job_name(&pv.name));
        let Some(job) = job.filter(|job| is_running(job, &pv.tenancy())) else {
            return false;
        };
        self.slots.hold(disks);
        if job.owned {
            self.write_job(job, JobWrite::Disown);
        }
        let job = self.snapshot.job_source.shown(&pv.name);
        let basis = self.cleanup(pv).map_or(0, |cleanup| cleanup.basis);
        self.track(pv, CleanupState::JobRunning { job }, basis);
        self.states.insert(&pv.name, (VolumeState::Cleaning, None));
        true
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
        if let Some(job) = self.snapshot.jobs.get(&job_name(&pv.name))
            && order.volume.candidate.kind == VolumeMode::Block
        {
            let source = &self.snapshot.job_source;
            let terms = order.job.as_ref();
            let template = terms.map(|terms| fingerprint(&order, terms, source));
            let shown = source.shown(&pv.name);
            let waited = self.waited_for_job(pv);
            if let Some(why) = is_in_the_way(job, &order, template.as_deref(), waited) {
                self.write_job(job, JobWrite::Delete(why.to_owned()));
                let reason = format!("for the end of Job {shown}, {why}");
                return self.wait(pv, reason, Some(shown), order.basis);
            }
            match &job.state {
                JobState::Succeeded => order.cleaned_by = Some(job.clone()),
                JobState::Failed(why) => return self.job_failed(pv, &shown, why, order.basis),
                JobState::Pending | JobState::Running => {
                    return self.job_pending(pv, shown, &order, waited);
                }
            }
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

    /// How long a cleanup has waited for its Job.
    fn waited_for_job(&self, pv: &PvView) -> Duration {
        let waits = |it: &&Cleanup| matches!(it.state, CleanupState::Waiting { job: Some(_), .. });
        let cleanup = self.cleanup(pv).filter(waits);
        cleanup.map_or(Duration::ZERO, |it| self.snapshot.now.saturating_sub(it.since))
    }

    fn job_pending(&mut self, pv: &'a PvView, shown: String, order: &CleanOrder, waited: Duration) {
        let mut reason = format!("for Job {shown}, whose pod does not run");
        if waited >= JOB_PENDING_LIMIT {
            let namespace = &self.snapshot.job_source.namespace;
            let name = job_name(&pv.name);
            reason = format!(
                "Job {shown} has not run for {JOB_PENDING_LIMIT:?}, so {} is not cleaned; fix what keeps its pod from running: kubectl --namespace {namespace} describe job {name}; if the Job is wrong, delete it",
                order.volume.path
            );
            self.notice(pv, reasons::VOLUME_FAILED_DELETE, reason.clone());
        } else {
            self.slots.hold(&order.volume.candidate.rotational);
        }
        self.wait(pv, reason, Some(shown), order.basis);
    }

    fn job_failed(&mut self, pv: &'a PvView, shown: &str, why: &str, basis: u64) {
        let namespace = &self.snapshot.job_source.namespace;
        let error = format!(
            "Job {shown} failed ({why}), so the volume is not clean; it is retried only after the Job is deleted; fix the cause, then run: kubectl --namespace {namespace} delete job {}",
            job_name(&pv.name)
        );
        self.notice(pv, reasons::VOLUME_FAILED_DELETE, error.clone());
        self.states.insert(&pv.name, (VolumeState::CleaningFailed, None));
        let retry_at = Duration::MAX;
        self.track(pv, CleanupState::Failed { error, retry_at }, basis);
    }

    fn wait(&mut self, pv: &'a PvView, reason: String, job: Option<String>, basis: u64) {
        self.states.insert(&pv.name, (VolumeState::Waiting, None));
        self.track(pv, CleanupState::Waiting { reason, job }, basis);
    }

    fn track(&mut self, pv: &PvView, state: CleanupState, basis: u64) {
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
            if is_new && let Some(pv) = self.by_uid.get(order.pv.uid.as_str()).copied() {
                self.wait(pv, FOR_A_SLOT.into(), None, order.basis);
            }
        }
    }

    fn wake_at(&mut self, at: Duration) {
        let earliest = self.plan.wake_at.map_or(at, |other| other.min(at));
        self.plan.wake_at = Some(earliest);
    }
}
