//! Cleaning Jobs: the PV that each belongs to, the paths that they block, and their deletion.

use std::collections::BTreeSet;
use std::path::Path;

use crate::names::job_name;
use crate::types::HostPath;
use crate::view::{JobState, JobView, PvView};

use super::{Action, JobWrite, Planner, Settings, Snapshot};

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

impl<'a> Planner<'a> {
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
