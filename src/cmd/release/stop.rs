//! Ends the provisioner: its last cleanups, then its DaemonSet and Pods.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{ApiError, Cluster, DaemonSetView};

use super::super::run::Misuse;
use super::others::names;
use super::patience::{a_while, patiently};
use super::{ReleaseError, Request, Unclean, api, held, unclean};

/// How often to look at the Pods, and at all PVs, of which there may be many thousands.
const LOOK_AT_PODS: Duration = Duration::from_millis(500);
const LOOK_AT_PVS: Duration = Duration::from_secs(2);

/// The DaemonSet's place and name.
pub(super) struct Installation<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Installation<'_> {
    /// The DaemonSet; `None` when it is gone.
    pub(super) async fn find(
        &self,
        cluster: &Cluster,
        out: &mut (dyn Write + Send),
    ) -> Result<Option<DaemonSetView>, ReleaseError> {
        let found = patiently(a_while(), out, async || self.read(cluster).await).await?;
        match &found {
            None => writeln!(out, "DaemonSet {self} is gone already.")?,
            Some(set) if !set.is_provisioner => return Err(self.is_another().into()),
            Some(_) => {}
        }
        Ok(found)
    }

    /// Nothing else is deleted, whatever the command line says.
    fn is_another(&self) -> Misuse {
        Misuse(format!(
            "DaemonSet {self} is no provisioner: no container of it has MY_NODE_NAME and the configuration; nothing was changed, see `kubectl get daemonsets --all-namespaces` for the right name"
        ))
    }

    async fn read(&self, cluster: &Cluster) -> Result<Option<DaemonSetView>, ReleaseError> {
        let found = cluster.daemon_set(self.namespace, self.name).await;
        found.map_err(api(format!("reading DaemonSet {self}")))
    }

    async fn delete(&self, cluster: &Cluster, set: &DaemonSetView) -> Result<(), ReleaseError> {
        let deleted = cluster.delete_daemon_set(self.namespace, self.name, &set.uid);
        match deleted.await {
            // Somebody was faster.
            Err(ApiError::NotFound) => Ok(()),
            result => result.map_err(api(format!("deleting DaemonSet {self}"))),
        }
    }
}

impl fmt::Display for Installation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Deletes the DaemonSet and waits until its Pods are gone. While volumes are still to be cleaned, it
/// waits for that first, as nobody is left to do it afterwards.
///
/// Returns the volumes that were not cleaned in time; then nothing was changed.
pub(super) async fn stop(
    cluster: &Cluster,
    installation: &Installation<'_>,
    set: &DaemonSetView,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Vec<Unclean>, ReleaseError> {
    if request.dry_run {
        writeln!(out, "DaemonSet {installation} would be deleted.")?;
        return Ok(Vec::new());
    }
    if !set.deleting {
        if !request.abandon_uncleaned {
            let left = wait_for_cleanups(cluster, request, out).await?;
            if !left.is_empty() {
                return Ok(left);
            }
        }
        let delete = async || installation.delete(cluster, set).await;
        patiently(a_while(), out, delete).await?;
    }
    wait_for_pods(cluster, installation, set, request.timeout, out).await?;
    writeln!(out, "DaemonSet {installation} and its Pods are gone.")?;
    Ok(Vec::new())
}

/// Waits until no volume is left to be cleaned, or time is up; returns those that are left.
async fn wait_for_cleanups(
    cluster: &Cluster,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Vec<Unclean>, ReleaseError> {
    let deadline = Instant::now() + request.timeout;
    let mut told = None;
    loop {
        let looking = async || held(cluster, &request.scope).await;
        let left = unclean(patiently(deadline, out, looking).await?);
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left);
        }
        if told.replace(left.len()) != Some(left.len()) {
            writeln!(
                out,
                "Waiting up to {:?} until the provisioner has cleaned {} more volumes.",
                request.timeout,
                left.len()
            )?;
        }
        tokio::time::sleep(LOOK_AT_PVS).await;
    }
}

/// Waits until the DaemonSet's object is gone and none of its Pods is left.
async fn wait_for_pods(
    cluster: &Cluster,
    installation: &Installation<'_>,
    set: &DaemonSetView,
    limit: Duration,
    out: &mut (dyn Write + Send),
) -> Result<(), ReleaseError> {
    let deadline = Instant::now() + limit;
    let mut told = String::new();
    loop {
        let looking = async || remains(cluster, installation, set).await;
        let Some(left) = patiently(deadline, out, looking).await? else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(ReleaseError::PodsStay {
                name: installation.to_string(),
                waited: limit,
                pods: left,
            });
        }
        if told != left {
            writeln!(
                out,
                "DaemonSet {installation} is being deleted; its Pods: {left}"
            )?;
            told = left;
        }
        tokio::time::sleep(LOOK_AT_PODS).await;
    }
}

/// What is left of the DaemonSet, in words; `None` when it and its Pods are gone.
async fn remains(
    cluster: &Cluster,
    installation: &Installation<'_>,
    set: &DaemonSetView,
) -> Result<Option<String>, ReleaseError> {
    let pods = cluster
        .pods_of_daemon_set(installation.namespace, set)
        .await;
    let pods = pods.map_err(api(format!("listing the Pods of {installation}")))?;
    let now = installation.read(cluster).await?;
    let there = now.is_some_and(|now| now.uid == set.uid);
    Ok(match (pods.is_empty(), there) {
        (true, false) => None,
        (true, true) => Some("none, only the object itself".into()),
        (false, _) => Some(names(&pods)),
    })
}
