//! Cleaning Jobs: the PV that each belongs to, the paths that they block, and their deletion.

use std::collections::BTreeSet;

use crate::names::job_name;
use crate::types::{HostPath, VolumeMode};
use crate::view::{JobState, JobView, PvView};

use super::{Action, JobTerms, Planner, Settings, Snapshot};

/// The paths of the devices that have a Job.
pub(super) fn paths(settings: &Settings, snapshot: &Snapshot) -> BTreeSet<HostPath> {
    let path = |job: &JobView| {
        let device = job.device.as_deref()?;
        settings.config.classes.values().find_map(|class| {
            let entry = device
                .strip_prefix(&class.mount_dir.to_string())?
                .strip_prefix('/')?;
            let is_entry = !entry.is_empty() && !entry.contains('/');
            is_entry.then(|| class.host_dir.join(entry))
        })
    };
    snapshot.jobs.values().filter_map(path).collect()
}

impl Planner<'_> {
    /// Deletes Jobs whose PVs are gone, unless they run: a volume must not be offered partly clean.
    pub(super) fn delete_orphaned_jobs(&mut self) {
        let is_orphaned = |job: &&JobView| {
            let pv_uid = job.pv_uid.as_deref();
            let is_known = self.pvs.iter().any(|pv| pv_uid == Some(&pv.uid));
            let is_busy = self.snapshot.writing.contains(&job.name);
            // Every Job of ours and of the Go provisioner has the PV's name.
            job.pv_uid.is_some()
                && job.pv.is_some()
                && !(is_known || is_busy || job.deleting)
                && job.state != JobState::Running
        };
        let orphaned = self.snapshot.jobs.values().filter(is_orphaned);
        let collected = orphaned.cloned().map(Action::Collect);
        self.plan.actions.extend(collected);
    }

    /// The Job of a PV, for any of its claims.
    pub(super) fn job_of(&self, pv: &PvView) -> Option<&JobView> {
        let mut jobs = self.snapshot.jobs.values();
        jobs.find(|job| job.pv_uid.as_ref() == Some(&pv.uid))
    }

    /// Deletes the PV's Job if it is pending.
    pub(super) fn cancel_pending_job(&mut self, pv: &PvView, why: &str) {
        let job = self.job_of(pv);
        if let Some(job) = job.filter(|job| job.state == JobState::Pending) {
            let job = job.clone();
            self.cancel_job(job, why);
        }
    }

    /// Deletes a Job, unless it is being written or deleted already.
    pub(super) fn delete_job(&mut self, job: &JobView, why: &str) {
        if !job.deleting && !self.snapshot.writing.contains(&job.name) {
            let action = Action::DeleteJob(job.clone(), why.to_owned());
            self.plan.actions.push(action);
        }
    }

    pub(super) fn cancel_job(&mut self, job: JobView, why: &str) {
        if !job.deleting && !self.snapshot.writing.contains(&job.name) {
            self.plan.actions.push(Action::CallOff(job, why.to_owned()));
        }
    }

    /// What a Job for a volume of this kind gets, if Jobs clean such volumes.
    pub(super) fn job_terms(&self, kind: VolumeMode) -> Option<JobTerms> {
        let config = &self.settings.config;
        (config.use_job_for_cleaning && kind == VolumeMode::Block).then(|| JobTerms {
            hostname: self.node.hostname.clone(),
            tolerations: config.job_tolerations.clone(),
        })
    }

    /// The UID of the Job that failed to clean this PV. When that Job is deleted, cleaning is retried.
    pub(super) fn failed_job(&self, pv: &PvView) -> Option<&str> {
        let job = self.snapshot.jobs.get(&job_name(&pv.name))?;
        let failed = job.is_for(&pv.tenancy()) && matches!(job.state, JobState::Failed(_));
        (failed && !job.deleting).then_some(job.uid.as_str())
    }
}
