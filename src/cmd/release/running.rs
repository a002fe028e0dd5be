//! What still runs when an installation is released: its Pods and its cleaning Jobs.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use kube::api::ListParams;

use super::{Left, Releaser, api};
use crate::cluster::PodView;
use crate::names::LABEL_JOB_PV_UID;
use crate::view::PvView;

impl Releaser {
    /// Deletes the cleaning Jobs of these PVs, whose Pods are deleted first.
    ///
    /// # Errors
    /// [`Left`] with what is left of them.
    pub(super) async fn end_jobs(&self, namespace: &str, pvs: &[PvView]) -> Result<()> {
        let uids: BTreeSet<_> = pvs.iter().map(|pv| pv.uid.as_str()).collect();
        let is_ours = |uid: Option<&String>| uid.is_some_and(|uid| uids.contains(uid.as_str()));
        let jobs = self.cluster.list_jobs(namespace, LABEL_JOB_PV_UID).await;
        let mut jobs = jobs.map_err(api("listing the cleaning Jobs"))?;
        jobs.retain(|job| is_ours(job.pv_uid.as_ref()));
        for job in jobs.iter().filter(|job| !job.deleting) {
            self.ensure_gone().await?;
            let deleted = self.cluster.delete_job(namespace, job).await;
            deleted.map_err(api(format!("deleting Job {namespace}/{}", job.name)))?;
        }
        let of_jobs = |pod: &PodView| is_ours(pod.job_pv_uid.as_ref());
        self.ensure_ended(namespace, of_jobs).await?;
        let count = jobs.len();
        ensure!(
            count == 0,
            Left(format!("{count} cleaning Jobs are being deleted"))
        );
        Ok(())
    }

    /// # Errors
    /// [`Left`] with the running Pods, which the garbage collector deletes after the DaemonSet or the Job.
    pub(super) async fn ensure_ended(
        &self,
        namespace: &str,
        is_one: impl Fn(&PodView) -> bool,
    ) -> Result<()> {
        let is_left = |pod: &PodView| !pod.terminal && is_one(pod);
        let pods = self
            .cluster
            .pods(Some(namespace), ListParams::default(), is_left);
        let pods = pods
            .await
            .map_err(api("looking for the Pods of the DaemonSet and its Jobs"))?;
        let Some(first) = pods.first() else {
            return Ok(());
        };
        let (count, name, node) = (pods.len(), &first.name, &first.node);
        bail!(Left(format!(
            "{count} Pods of the DaemonSet or its Jobs are left, such as {name} on {node}"
        )))
    }
}
