//! What still runs when an installation is released: its Pods, its cleaning Jobs, and other provisioners.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::{Left, Releaser, api};
use crate::cluster::ProvisionerPod;
use crate::names::LABEL_JOB_PV_UID;
use crate::view::PvView;

impl Releaser {
    /// Looks for the Pods of other provisioners in all namespaces. The Go provisioner, which ignores the finalizer, looks
    /// the same.
    ///
    /// # Errors
    /// [`Left`] with the Pods of the DaemonSet, which the garbage collector deletes after it. Until they end, they clean
    /// volumes and add the finalizer again.
    pub(super) async fn other_provisioners(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>> {
        let is_own = |pod: &ProvisionerPod| {
            let owner = pod.name.split('/').next().zip(pod.daemon_set.as_deref());
            owner == Some((namespace, name))
        };
        let wanted = |pod: &ProvisionerPod| pod.is_provisioner || is_own(pod);
        let pods = self.cluster.running_pods(None, wanted).await;
        let pods = pods.map_err(api("looking for provisioners"))?;
        let (own, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(is_own);
        match names(&own) {
            Some(own) => bail!(Left(own)),
            None => Ok(names(&others)),
        }
    }

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
        let of_jobs = |pod: &ProvisionerPod| is_ours(pod.job_pv_uid.as_ref());
        let pods = self.cluster.running_pods(Some(namespace), of_jobs).await;
        let pods = pods.map_err(api("looking for the Pods of cleaning Jobs"))?;
        if let Some(pods) = names(&pods) {
            bail!(Left(pods));
        }
        let count = jobs.len();
        ensure!(count == 0, Left(format!("{count} cleaning Jobs")));
        Ok(())
    }
}

/// The number of Pods, and the first of them with its node; `None` without any.
fn names(pods: &[ProvisionerPod]) -> Option<String> {
    let first = pods.first()?;
    let count = pods.len();
    Some(format!(
        "{count} Pods, such as {} on {}",
        first.name, first.node
    ))
}
