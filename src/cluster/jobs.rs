//! The requests about cleaning Jobs. The metrics of the Go provisioner do not count them.

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster, PodView, only};
use crate::names::{LABEL_HOSTNAME, LABEL_JOB_PV_UID};
use crate::view::{Job, JobState, JobView};

/// The resource as RBAC names it.
pub(crate) const JOBS: &str = "jobs.batch";

/// The label selector of the Jobs of a node, by its hostname label.
pub(crate) fn jobs_of(hostname: &str) -> String {
    format!("{LABEL_HOSTNAME}={hostname}")
}

impl Cluster {
    /// The Jobs of a namespace.
    pub(crate) fn jobs(&self, namespace: &str) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Lists the Jobs of a namespace with these labels.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn list_jobs(&self, namespace: &str, labels: &str) -> Result<Vec<JobView>, ApiError> {
        let params = ListParams::default().labels(labels);
        let keep = |job| Some(JobView::from_api(&job));
        self.list_pages(JOBS, self.jobs(namespace), params, keep).await
    }

    /// Reads a Job.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn job(&self, namespace: &str, name: &str) -> Result<Option<JobView>, ApiError> {
        let api = self.jobs(namespace);
        let job = self.find(JOBS, api.get_opt(name)).await?;
        Ok(job.as_ref().map(JobView::from_api))
    }

    /// Creates a Job.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_job(&self, namespace: &str, job: &Value) -> Result<(), ApiError> {
        let created = self.create::<Job>(Some(namespace), job)?;
        self.limited(JOBS, "create", created).await.map(drop)
    }

    /// The running pods of Jobs for this PV, by UID. The Jobs themselves may be deleted.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of_jobs(
        &self,
        namespace: &str,
        pv_uid: &str,
    ) -> Result<Vec<PodView>, ApiError> {
        let params = ListParams::default().labels(&format!("{LABEL_JOB_PV_UID}={pv_uid}"));
        let is_running = |pod: &PodView| !pod.terminal;
        self.pods(Some(namespace), params, is_running).await
    }

    /// Removes the owner of a Job with this UID, so that it is not garbage-collected with its PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn disown_job(&self, namespace: &str, job: &JobView) -> Result<(), ApiError> {
        let metadata = json!({ "uid": job.uid, "ownerReferences": null });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let (api, params) = (self.jobs(namespace), PatchParams::default());
        let patched = api.patch(&job.name, &params, &patch);
        self.limited(JOBS, "patch", patched).await.map(drop)
    }

    /// Deletes a Job with this UID in the foreground: it disappears after its pods. A pending Job must also have
    /// the version that was seen, since it may have started or finished by now.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when the Job must be read again.
    pub async fn delete_job(&self, namespace: &str, job: &JobView) -> Result<(), ApiError> {
        let is_pending = job.state == JobState::Pending;
        let version = job.resource_version.as_deref().filter(|_| is_pending);
        let params = DeleteParams::foreground().preconditions(only(&job.uid, version));
        let api = self.jobs(namespace);
        let delete = api.delete(&job.name, &params);
        self.limited(JOBS, "delete", delete).await.map(drop)
    }
}
