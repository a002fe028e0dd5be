//! Provisioners that run although none should.

use std::io::Write;

use anyhow::{Result, anyhow};

use super::api;
use crate::cluster::{ApiError, Cluster, ProvisionerPod};
use crate::cmd::run::Misuse;

/// Looks for provisioners and reports them: in all namespaces; if that is denied, in this one.
///
/// One that runs adds the finalizer again; and a volume that it may be cleaning, or would offer again
/// with the data, is not abandoned. The Go program ignores the finalizer, but cannot be recognised: the
/// operator decides.
///
/// # Errors
/// [`Misuse`] if one runs and uncleaned volumes were to be abandoned.
pub(super) async fn look(
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
        return Err(anyhow!(Misuse(format!(
            "provisioners run {place}: {names}; uncleaned volumes are not abandoned while one may be cleaning or offering them; end them first (a Pod whose node is gone: kubectl delete pod --force)"
        ))));
    }
    writeln!(
        out,
        "WARNING: these look like provisioners: {names}. If they are this program's, they add the finalizer again; delete their DaemonSet."
    )?;
    Ok(())
}

/// The provisioners of all namespaces, or of this one if only that is allowed, and where they run in
/// words.
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
