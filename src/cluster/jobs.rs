//! The requests about cleaning Jobs. They are not among those that the Go provisioner's metrics count.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::lost::{has, or_look};
use super::{ApiError, Cluster, json_patch};
use crate::names::{LABEL_HOSTNAME, LABEL_JOB_PV_UID};
use crate::view::{JobState, JobView};

/// The resource in the words of RBAC.
pub(crate) const JOBS: &str = "jobs.batch";

/// What selects the Jobs of a node, by the value of its hostname label.
pub(crate) fn jobs_of(hostname: &str) -> String {
    format!("{LABEL_HOSTNAME}={hostname}")
}

impl Cluster {
    /// The Jobs of a namespace.
    pub(crate) fn jobs(&self, namespace: &str) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Lists the Jobs of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_jobs(
        &self,
        namespace: &str,
        hostname: &str,
    ) -> Result<Vec<JobView>, ApiError> {
        let api = self.jobs(namespace);
        let params = ListParams::default().labels(&jobs_of(hostname));
        let jobs = self.limited(JOBS, "list", api.list(&params)).await?;
        Ok(jobs.items.iter().map(JobView::from_api).collect())
    }

    /// Reads a Job.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn job(&self, namespace: &str, name: &str) -> Result<Option<JobView>, ApiError> {
        let api = self.jobs(namespace);
        let job = self.limited(JOBS, "get", api.get_opt(name)).await?;
        Ok(job.as_ref().map(JobView::from_api))
    }

    /// Makes a Job.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_job(&self, namespace: &str, job: &Job) -> Result<(), ApiError> {
        let api = self.jobs(namespace);
        let params = PostParams::default();
        let create = api.create(&params, job);
        let create = async || self.limited(JOBS, "create", create).await.map(drop);
        let look = async || {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let found = self.limited(JOBS, "get", api.get_opt(name)).await?;
            // They say when it was made, to the nanosecond.
            let wanted = json!({ "annotations": job.metadata.annotations });
            let is_made = found.is_some_and(|found| has(&found.metadata, &wanted));
            Ok(is_made.then_some(()))
        };
        or_look(create, look).await
    }

    /// Lists the pods that Jobs for this PV, by UID, have left and that have not ended: their names.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of_jobs(
        &self,
        namespace: &str,
        pv_uid: &str,
    ) -> Result<Vec<String>, ApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels(&format!("{LABEL_JOB_PV_UID}={pv_uid}"));
        let pods = self.limited("pods", "list", api.list(&params)).await?;
        let phase = |pod: &Pod| pod.status.as_ref()?.phase.clone();
        let has_ended = |pod: &Pod| matches!(phase(pod).as_deref(), Some("Succeeded" | "Failed"));
        let pods = pods.items.into_iter().filter(|pod| !has_ended(pod));
        Ok(pods.filter_map(|pod| pod.metadata.name).collect())
    }

    /// Takes the owner off a Job, if it is still that very object: it no longer goes with its PV.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if it has none, or is another one by now.
    pub async fn disown_job(&self, namespace: &str, job: &JobView) -> Result<(), ApiError> {
        let operations = json!([
            { "op": "test", "path": "/metadata/uid", "value": job.uid },
            { "op": "remove", "path": "/metadata/ownerReferences" },
        ]);
        let (params, patch) = (PatchParams::default(), json_patch(operations)?);
        let api = self.jobs(namespace);
        let patched = async {
            let patched = api.patch(&job.name, &params, &patch).await;
            patched.map_err(conflict_if_refused)
        };
        self.limited(JOBS, "patch", patched).await.map(drop)
    }

    /// Deletes a Job, if it is still that very object, in the foreground: it is gone when its pods
    /// are. One that had not started is deleted only as it was seen: by now it may be at work, or done.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when it is to be looked at again.
    pub async fn delete_job(&self, namespace: &str, job: &JobView) -> Result<(), ApiError> {
        let as_seen = (job.state == JobState::Pending).then(|| job.resource_version.clone());
        let params = DeleteParams::foreground().preconditions(Preconditions {
            uid: Some(job.uid.clone()),
            resource_version: as_seen.flatten(),
        });
        let api = self.jobs(namespace);
        let delete = api.delete(&job.name, &params);
        let delete = async || self.limited(JOBS, "delete", delete).await.map(drop);
        let look = async || {
            let found = self.job(namespace, &job.name).await?;
            let stays = found.is_some_and(|now| now.uid == job.uid && !now.deleting);
            Ok((!stays).then_some(()))
        };
        or_look(delete, look).await
    }
}

/// A `test` that fails is answered with 422.
fn conflict_if_refused(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(mut status) if status.code == 422 => {
            (status.code, status.reason) = (409, "Conflict".into());
            kube::Error::Api(status)
        }
        error => error,
    }
}
