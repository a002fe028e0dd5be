//! Jobs whose PVs are gone.

use super::Actor;
use crate::cluster::ApiError;
use crate::plan::{About, reasons};
use crate::view::JobView;

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
