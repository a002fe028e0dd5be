//! Jobs whose PVs are gone.

use super::Actor;
use crate::cluster::ApiError;
use crate::plan::{About, reasons};
use crate::view::{JobState, JobView};

impl Actor {
    /// Deletes the Job of a PV that is not to be cleaned (now).
    pub(super) async fn call_off(&self, job: &JobView, why: &str) {
        let (cluster, namespace) = (&self.ground.cluster, &self.ground.jobs.namespace);
        let pv = job.pv.as_deref().unwrap_or_default();
        match cluster.delete_job(namespace, job).await {
            Ok(()) => {
                tracing::info!(
                    pv,
                    job = job.name,
                    "deleted Job {namespace}/{}: {why}",
                    job.name
                );
                if job.state != JobState::Pending {
                    self.tell_of_data_lost(job, why);
                }
            }
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) => {
                tracing::warn!(
                    pv, job = job.name, %error,
                    "the Job of a PV that is not to be cleaned could not be deleted ({why}); the next pass tries again; \
                     if it must not start: kubectl --namespace {namespace} delete job {}", job.name
                );
            }
        }
    }

    /// Warns whoever wants to keep what is on the volume.
    fn tell_of_data_lost(&self, job: &JobView, why: &str) {
        let pv = job.pv.as_deref().unwrap_or_default();
        let text = format!(
            "Job {}/{} was at work on the volume, or had ended, when it was deleted ({why}): at least a part of the data is gone",
            self.ground.jobs.namespace, job.name
        );
        tracing::warn!(pv, job = job.name, "{text}");
        let about = About::Pv(pv.to_owned(), job.pv_uid.clone().unwrap_or_default());
        let (reporter, reason) = (&self.ground.reporter, reasons::VOLUME_FAILED_DELETE);
        reporter.warning(&about, reason, "CallOff", &text);
    }

    /// Deletes the Job of a PV that is gone, after another look for it.
    pub(super) async fn collect(&self, job: &JobView) {
        let (cluster, namespace) = (&self.ground.cluster, &self.ground.jobs.namespace);
        let pv = job.pv.as_deref().unwrap_or_default();
        let failed = |error: ApiError| {
            tracing::warn!(job = job.name, pv, %error, "the Job of a PV that is gone could not be deleted; the next pass tries again");
        };
        match cluster.pv(pv).await {
            Ok(Some(found)) if Some(&found.uid) == job.pv_uid.as_ref() => return,
            Ok(_) => {}
            Err(error) => return failed(error),
        }
        match cluster.delete_job(namespace, job).await {
            Ok(()) => {
                let text = format!(
                    "deleted Job {namespace}/{}, since its PV {pv} is gone",
                    job.name
                );
                tracing::info!(job = job.name, pv, "{text}");
                let reason = reasons::VOLUME_DELETE;
                self.ground
                    .reporter
                    .normal(&About::Pod, reason, "Collect", &text);
            }
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) => failed(error),
        }
    }
}
