//! Ends the provisioner: its last cleanups, then its DaemonSet and Pods.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cluster, DaemonSetView, ProvisionerPod};

use super::{ReleaseError, Request, Unclean, api, held, unclean};

/// How often to look at the Pods, and at all PVs, of which there may be many thousands.
const LOOK_AT_PODS: Duration = Duration::from_millis(500);
const LOOK_AT_PVS: Duration = Duration::from_secs(2);

/// The DaemonSet's place and name.
pub(super) struct Installation<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Deletes the DaemonSet and waits until its Pods are gone. While volumes are still to be cleaned, it
/// waits for that first, as nobody is left to do it afterwards.
///
/// Returns the volumes that were not cleaned in time; then nothing was changed.
pub(super) async fn stop(
    cluster: &Cluster,
    installation: &Installation<'_>,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Vec<Unclean>, ReleaseError> {
    let Installation { namespace, name } = installation;
    let reading = || format!("reading DaemonSet {namespace}/{name}");
    let found = cluster.daemon_set(namespace, name).await;
    let Some(set) = found.map_err(api(reading()))? else {
        writeln!(out, "DaemonSet {namespace}/{name} is gone already.")?;
        return Ok(Vec::new());
    };
    if request.dry_run {
        writeln!(out, "DaemonSet {namespace}/{name} would be deleted.")?;
        return Ok(Vec::new());
    }
    if !set.deleting {
        if !request.abandon_uncleaned {
            let left = wait_for_cleanups(cluster, request, out).await?;
            if !left.is_empty() {
                return Ok(left);
            }
        }
        cluster
            .delete_daemon_set(namespace, name, &set.uid)
            .await
            .map_err(api(format!("deleting DaemonSet {namespace}/{name}")))?;
    }
    wait_for_pods(cluster, installation, &set, request.timeout, out).await?;
    writeln!(out, "DaemonSet {namespace}/{name} and its Pods are gone.")?;
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
        let left = match held(cluster, &request.scope).await {
            Ok(pvs) => unclean(pvs),
            Err(error) if error.is_passing() && Instant::now() < deadline => {
                again_after(&error, out).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
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
    let Installation { namespace, name } = installation;
    let deadline = Instant::now() + limit;
    let mut told = String::new();
    loop {
        let left = match remains(cluster, installation, set).await {
            Ok(None) => return Ok(()),
            Ok(Some(left)) => left,
            Err(error) if error.is_passing() && Instant::now() < deadline => {
                again_after(&error, out).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        if Instant::now() >= deadline {
            return Err(ReleaseError::PodsStay {
                name: format!("{namespace}/{name}"),
                waited: limit,
                pods: left,
            });
        }
        if told != left {
            writeln!(
                out,
                "DaemonSet {namespace}/{name} is being deleted; its Pods: {left}"
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
    let Installation { namespace, name } = installation;
    let pods = cluster.pods_in(namespace, Some(&set.selector)).await;
    let mut pods = pods.map_err(api(format!("listing the Pods of {namespace}/{name}")))?;
    pods.retain(|pod| pod.owner_uid.as_ref() == Some(&set.uid));
    let now = cluster.daemon_set(namespace, name).await;
    let now = now.map_err(api(format!("reading DaemonSet {namespace}/{name}")))?;
    let there = now.is_some_and(|now| now.uid == set.uid);
    Ok(match (pods.is_empty(), there) {
        (true, false) => None,
        (true, true) => Some("none, only the object itself".into()),
        (false, _) => Some(names(&pods)),
    })
}

/// Says that a request failed which is worth another try, and waits a little.
async fn again_after(error: &ReleaseError, out: &mut (dyn Write + Send)) -> io::Result<()> {
    writeln!(out, "{error}; trying again.")?;
    tokio::time::sleep(LOOK_AT_PVS).await;
    Ok(())
}

/// Pods with their nodes, for a sentence.
pub(super) fn names(pods: &[ProvisionerPod]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<_> = pods
        .iter()
        .take(SHOWN)
        .map(|pod| match pod.node.as_str() {
            "" => pod.name.clone(),
            node => format!("{} on {node}", pod.name),
        })
        .collect();
    if pods.len() > SHOWN {
        names.push(format!("and {} more", pods.len() - SHOWN));
    }
    names.join(", ")
}
