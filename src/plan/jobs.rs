//! Cleaning Jobs: whose they are, and what they stand in the way of.

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
    /// Sends Jobs away whose PVs are gone. One that is at work comes to its end first: what it has begun
    /// is not offered half clean.
    pub(super) fn collect_jobs(&mut self) {
        let is_over = |job: &&JobView| {
            let pv_uid = job.pv_uid.as_deref();
            let is_known = self.pvs.iter().any(|pv| pv_uid == Some(&pv.uid));
            let is_busy = self.snapshot.writing.contains(&job.name);
            // Without the PV's name it is none of ours, nor the Go provisioner's.
            job.pv_uid.is_some()
                && job.pv.is_some()
                && !(is_known || is_busy || job.deleting)
                && job.state != JobState::Running
        };
        let over = self.snapshot.jobs.values().filter(is_over);
        let collected = over.cloned().map(Action::Collect);
        self.plan.actions.extend(collected);
    }

    /// The Job of a PV's, whichever claim's data it deletes.
    pub(super) fn job_of(&self, pv: &PvView) -> Option<&JobView> {
        let mut jobs = self.snapshot.jobs.values();
        jobs.find(|job| job.pv_uid.as_ref() == Some(&pv.uid))
    }

    /// Sends the PV's Job away, if it has one that waits to start.
    pub(super) fn call_off_pending(&mut self, pv: &PvView, why: &str) {
        let job = self.job_of(pv);
        if let Some(job) = job.filter(|job| job.state == JobState::Pending) {
            let job = job.clone();
            self.call_off(job, why);
        }
    }

    /// Deletes a Job, unless that is under way.
    pub(super) fn delete_job(&mut self, job: &JobView, why: &str) {
        if !job.deleting && !self.snapshot.writing.contains(&job.name) {
            let action = Action::DeleteJob(job.clone(), why.to_owned());
            self.plan.actions.push(action);
        }
    }

    pub(super) fn call_off(&mut self, job: JobView, why: &str) {
        if !job.deleting && !self.snapshot.writing.contains(&job.name) {
            self.plan.actions.push(Action::CallOff(job, why.to_owned()));
        }
    }

    /// The terms of the Job that cleans a volume of this kind, if one does.
    pub(super) fn job_terms(&self, kind: VolumeMode) -> Option<JobTerms> {
        let config = &self.settings.config;
        (config.use_job_for_cleaning && kind == VolumeMode::Block).then(|| JobTerms {
            hostname: self.node.hostname.clone(),
            tolerations: config.job_tolerations.clone(),
        })
    }

    /// The UID of the Job that failed to clean this PV. When it is deleted, cleaning is tried again.
    pub(super) fn failed_job(&self, pv: &PvView) -> Option<&str> {
        let job = self.snapshot.jobs.get(&job_name(&pv.name))?;
        let failed = job.is_for(&pv.tenancy()) && matches!(job.state, JobState::Failed(_));
        (failed && !job.deleting).then_some(job.uid.as_str())
    }
}
