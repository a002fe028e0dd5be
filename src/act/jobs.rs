//! Deletes cleaning Jobs and removes their ownerReferences.

use super::Actor;
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::{About, JobWrite, reasons};
use crate::view::{JobState, JobView};

impl Actor {
    /// Changes or deletes a Job.
    pub(super) async fn change_job(&self, job: &JobView, write: JobWrite) -> Result<(), ApiError> {
        match write {
            JobWrite::Disown => self.remove_owner_reference(job).await,
            JobWrite::Collect => self.garbage_collect(job).await,
            JobWrite::Delete(why) => self.delete_job(job, &why).await,
            JobWrite::Cancel(why) => {
                self.delete_job(job, &why).await?;
                if job.state != JobState::Pending {
                    self.report_data_lost(job, &why);
                }
                Ok(())
            }
        }
    }

    /// Deletes a Job.
    async fn delete_job(&self, job: &JobView, why: &str) -> Result<(), ApiError> {
        let (cluster, namespace) = (&self.context.cluster, &self.context.jobs.namespace);
        let pv = job.pv.as_deref().unwrap_or_default();
        crash_point("delete-job");
        let deleted = cluster.delete_job(namespace, job).await;
        match &deleted {
            Ok(()) => tracing::info!(pv, job = job.name, "deleted the Job: {why}"),
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) => {
                tracing::warn!(
                    pv, job = job.name, %error,
                    "cannot delete the Job ({why}); the next pass retries; \
                     to delete it by hand: kubectl --namespace {namespace} delete job {}", job.name
                );
            }
        }
        deleted
    }

    /// Warns that a Job may have deleted data that the cancelled cleanup was to keep.
    fn report_data_lost(&self, job: &JobView, why: &str) {
        let pv = job.pv.as_deref().unwrap_or_default();
        let text = format!(
            "Job {}/{} had started before it was deleted ({why}): at least a part of the data is gone",
            self.context.jobs.namespace, job.name
        );
        tracing::warn!(pv, job = job.name, "{text}");
        let about = About::Pv(pv.to_owned(), job.pv_uid.clone().unwrap_or_default());
        let (reporter, reason) = (&self.context.reporter, reasons::VOLUME_FAILED_DELETE);
        reporter.warning(&about, reason, "CallOff", &text);
    }

    /// Removes the ownerReference of a running Job. The Job works with it as well.
    async fn remove_owner_reference(&self, job: &JobView) -> Result<(), ApiError> {
        let (cluster, namespace) = (&self.context.cluster, &self.context.jobs.namespace);
        let disowned = cluster.disown_job(namespace, job).await;
        match &disowned {
            Ok(()) | Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) => {
                let pv = job.pv.as_deref().unwrap_or_default();
                tracing::warn!(
                    pv, job = job.name, %error,
                    "cannot remove the ownerReference of the running Job; cleaning continues; until it ends, keep the finalizers of the PV: Kubernetes would delete the Job"
                );
            }
        }
        disowned
    }

    /// Deletes the Job of a PV that no longer exists. It reads the PV first.
    async fn garbage_collect(&self, job: &JobView) -> Result<(), ApiError> {
        let pv = job.pv.as_deref().unwrap_or_default();
        let found = self.context.cluster.pv(pv).await?;
        if found.is_some_and(|found| Some(&found.uid) == job.pv_uid.as_ref()) {
            return Ok(());
        }
        self.delete_job(job, "its PV is gone").await?;
        let namespace = &self.context.jobs.namespace;
        let text = format!(
            "deleted Job {namespace}/{}, because its PV {pv} is gone",
            job.name
        );
        let (reporter, reason) = (&self.context.reporter, reasons::VOLUME_DELETE);
        reporter.normal(&About::Pod, reason, "Collect", &text);
        Ok(())
    }
}
