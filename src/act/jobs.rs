//! Deletes cleaning Jobs and removes their ownerReferences.

use super::Execution;
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::{About, JobWrite, reasons};
use crate::view::{JobState, JobView};

impl Execution {
    /// Changes or deletes a Job.
    pub(super) async fn change_job(&self, job: &JobView, write: &JobWrite) -> Result<(), ApiError> {
        let (cluster, namespace) = (&self.context.cluster, &self.context.jobs.namespace);
        let (pv, name) = (job.pv.as_deref().unwrap_or_default(), &job.name);
        let pv_uid = job.pv_uid.clone().unwrap_or_default();
        let (done, what, why) = match write {
            JobWrite::Disown => {
                let done = cluster.disown_job(namespace, job).await;
                (done, "removed the owner of", "it runs")
            }
            JobWrite::Collect => {
                let found = cluster.pv(pv).await?;
                if found.is_some_and(|found| found.uid == pv_uid) {
                    return Ok(());
                }
                (self.delete_job(job).await, "deleted", "its PV is gone")
            }
            JobWrite::Delete(why) | JobWrite::Cancel(why) => {
                (self.delete_job(job).await, "deleted", &**why)
            }
        };
        done?;
        tracing::info!("{what} the cleaning Job: {why}");
        let reporter = &self.context.reporter;
        match write {
            JobWrite::Collect => {
                let text = format!("deleted Job {namespace}/{name}, because its PV {pv} is gone");
                reporter.normal(&About::Pod, reasons::VOLUME_DELETE, "Collect", &text);
            }
            // The Job may have deleted data that the cancelled cleanup was to keep.
            JobWrite::Cancel(_) if job.state != JobState::Pending => {
                let text = format!(
                    "Job {namespace}/{name} may have started before it was deleted ({why}): a part of the data may be gone"
                );
                tracing::warn!("{text}");
                let about = About::Pv(pv.to_owned(), pv_uid);
                reporter.warning(&about, reasons::VOLUME_FAILED_DELETE, "CallOff", &text);
            }
            JobWrite::Disown | JobWrite::Delete(_) | JobWrite::Cancel(_) => {}
        }
        Ok(())
    }

    async fn delete_job(&self, job: &JobView) -> Result<(), ApiError> {
        crash_point("delete-job");
        let (cluster, namespace) = (&self.context.cluster, &self.context.jobs.namespace);
        cluster.delete_job(namespace, job).await
    }
}
