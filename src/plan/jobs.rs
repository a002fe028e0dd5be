//! Cleaning Jobs: the PV that each belongs to, the paths that they block, what they mean for the cleanup of their device,
//! and their deletion.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::host::mounts::DeviceNumber;
use crate::names::job_name;
use crate::types::HostPath;
use crate::view::{JobState, JobView, PvView, Tenancy};

use super::job_object::fingerprint;
use super::{
    Action, CleanOrder, Cleanup, CleanupState, JobWrite, Planner, Settings, Snapshot, VolumeState,
    reasons,
};

/// The path of the device of a Job.
pub(super) fn path(settings: &Settings, job: &JobView) -> Option<HostPath> {
    let device = Path::new(job.device.as_deref()?);
    let (dir, entry) = (device.parent()?, device.file_name()?.to_str()?);
    let mut classes = settings.config.classes.values();
    let class = classes.find(|class| class.mount_dir.as_path() == dir)?;
    Some(class.host_dir.join(entry))
}

/// The paths of the devices that have a Job.
pub(super) fn paths(settings: &Settings, snapshot: &Snapshot) -> BTreeSet<HostPath> {
    let jobs = snapshot.jobs.values();
    jobs.filter_map(|job| path(settings, job)).collect()
}

/// For how long a Job may be pending before it holds no slot and is reported.
pub(super) const JOB_PENDING_LIMIT: Duration = Duration::from_mins(2);
/// For how long this process waits for a Job before it replaces it because its template changed. During an update of the
/// provisioner two of them run on the node, and each would replace the other's Job without end.
const JOB_TEMPLATE_GRACE: Duration = Duration::from_secs(30);

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

    /// Decides what the Job of a device means for its next step. Returns whether it waits for that Job.
    pub(super) fn is_up_to_job(&mut self, pv: &'a PvView, order: &mut CleanOrder) -> bool {
        let Some(job) = self.snapshot.jobs.get(&job_name(&pv.name)) else {
            return false;
        };
        let source = &self.snapshot.job_source;
        let terms = order.job.as_ref();
        let template = terms.map(|terms| fingerprint(order, terms, source));
        let shown = source.shown(&pv.name);
        let waited = self.waited_for_job(pv);
        if let Some(why) = is_in_the_way(job, order, template.as_deref(), waited) {
            self.write_job(job, JobWrite::Delete(why.to_owned()));
            let reason = format!("for the end of Job {shown}, {why}");
            self.wait(pv, reason, Some(shown), order.basis);
            return true;
        }
        match &job.state {
            JobState::Succeeded => order.cleaned_by = Some(job.clone()),
            JobState::Failed(why) => self.job_failed(pv, &shown, why, order.basis),
            JobState::Pending | JobState::Running => self.job_pending(pv, shown, order, waited),
        }
        job.state != JobState::Succeeded
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

    /// Deletes Jobs whose PVs are gone, unless they run: a volume must not be offered partly clean.
    pub(super) fn delete_orphaned_jobs(&mut self) {
        let snapshot = self.snapshot;
        for job in snapshot.jobs.values() {
            // Every Job of ours and of the Go provisioner has the PV's name.
            let (Some(pv_uid), Some(_)) = (&job.pv_uid, &job.pv) else {
                continue;
            };
            let is_known = self.by_uid.contains_key(pv_uid.as_str());
            if !is_known && job.state != JobState::Running {
                self.write_job(job, JobWrite::Collect);
            }
        }
    }

    /// The Job of a PV, for any of its claims.
    pub(super) fn job_of(&self, pv: &PvView) -> Option<&'a JobView> {
        let mut jobs = self.snapshot.jobs.values();
        jobs.find(|job| job.pv_uid.as_ref() == Some(&pv.uid))
    }

    /// Deletes the PV's Job if it is pending.
    pub(super) fn cancel_pending_job(&mut self, pv: &PvView, why: &str) {
        let job = self.job_of(pv);
        if let Some(job) = job.filter(|job| job.state == JobState::Pending) {
            self.write_job(job, JobWrite::Cancel(why.to_owned()));
        }
    }

    /// Writes to a Job, unless it is being written, cancelled or deleted already.
    pub(super) fn write_job(&mut self, job: &JobView, write: JobWrite) {
        let cancels =
            |it: &Action| matches!(it, Action::Cancel(it) if it.job.as_ref() == Some(job));
        let is_cancelled = self.plan.actions.iter().any(cancels);
        if !job.deleting && !is_cancelled && !self.snapshot.ledger.writing.contains(&job.name) {
            let action = Action::WriteJob(job.clone(), write);
            self.plan.actions.push(action);
        }
    }

    /// The UID of the Job that failed to clean this PV. When that Job is deleted, cleaning is retried.
    pub(super) fn failed_job(&self, pv: &PvView) -> Option<&str> {
        let job = self.snapshot.jobs.get(&job_name(&pv.name))?;
        let failed = job.is_for(&pv.tenancy()) && matches!(job.state, JobState::Failed(_));
        (failed && !job.deleting).then_some(job.uid.as_str())
    }
}
