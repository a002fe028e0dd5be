//! Finds running provisioners.

use std::io::Write;

use anyhow::{Result, anyhow};

use super::api;
use crate::cluster::{ApiError, Cluster, ProvisionerPod};
use crate::cmd::run::UsageError;

/// Finds and reports provisioners in all namespaces; if that is denied, in this one.
///
/// A running provisioner adds the finalizer again. It may also be cleaning an uncleaned volume, or offer it again with
/// the data, so no volume is abandoned meanwhile. The Go provisioner ignores the finalizer but looks the same, so
/// otherwise this is only a warning.
///
/// # Errors
/// [`UsageError`] if one runs and uncleaned volumes were to be abandoned.
pub(super) async fn check(
    cluster: &Cluster,
    namespace: Option<&str>,
    abandon: bool,
    out: &mut (dyn Write + Send),
) -> Result<()> {
    let (found, place) = running(cluster, namespace).await;
    let running = found.map_err(api(format!("looking for provisioners {place}")))?;
    if running.is_empty() {
        writeln!(out, "No other provisioner runs {place}.")?;
        return Ok(());
    }
    let names = names(&running);
    if abandon {
        return Err(anyhow!(UsageError(format!(
            "provisioners run {place}: {names}; one may be cleaning or offering uncleaned volumes, so none is abandoned; delete their DaemonSet first (a Pod whose node is gone: kubectl delete pod --force)"
        ))));
    }
    writeln!(
        out,
        "WARNING: these look like provisioners: {names}. If they are this program's, they add the finalizer again; delete their DaemonSet."
    )?;
    Ok(())
}

/// The provisioners in all namespaces, or in this one if listing all is denied, and a description of the searched
/// namespaces.
pub(in crate::cmd) async fn running(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> (Result<Vec<ProvisionerPod>, ApiError>, String) {
    match (cluster.provisioners(None).await, namespace) {
        (Err(ApiError::Forbidden { .. }), Some(name)) => (
            cluster.provisioners(namespace).await,
            format!("in namespace {name}"),
        ),
        (found, _) => (found, "in any namespace".to_owned()),
    }
}

/// Pods with their nodes, for a message.
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
