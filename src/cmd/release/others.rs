//! Provisioners that run, although nobody asked for their end.

use std::io::Write;

use crate::cluster::{Cluster, ProvisionerPod};
use crate::cmd::run::Misuse;

use super::patience::{a_while, patiently};
use super::{ReleaseError, api};

/// Looks for provisioners and tells of them: in all namespaces; if that is denied, in this one.
///
/// One that runs puts the finalizer back; and a volume that it may be cleaning, or would offer again
/// with the data, is not given up. The Go program ignores the finalizer, but cannot be recognised: the
/// operator decides.
///
/// # Errors
/// [`ReleaseError::Misuse`] if one runs and uncleaned volumes were to be given up.
pub(super) async fn look(
    cluster: &Cluster,
    namespace: Option<&str>,
    abandon: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), ReleaseError> {
    let (place, running) = running(cluster, namespace, out).await?;
    if running.is_empty() {
        writeln!(out, "No other provisioner runs {place}.")?;
        return Ok(());
    }
    let names = names(&running);
    if abandon {
        return Err(Misuse(format!(
            "provisioners run {place}: {names}; uncleaned volumes are not given up while one may be cleaning or offering them; end them first (a Pod whose node is gone: kubectl delete pod --force)"
        ))
        .into());
    }
    writeln!(
        out,
        "WARNING: these look like provisioners: {names}. If they are this program's, they put the finalizer back; delete their DaemonSet."
    )?;
    Ok(())
}

/// In words where was looked, and the Pods found there.
async fn running(
    cluster: &Cluster,
    namespace: Option<&str>,
    out: &mut (dyn Write + Send),
) -> Result<(String, Vec<ProvisionerPod>), ReleaseError> {
    let what = "looking for provisioners in all namespaces";
    let list = async || cluster.provisioners(None).await.map_err(api(what));
    let namespace = match (patiently(a_while(), out, list).await, namespace) {
        (Err(ReleaseError::Denied { .. }), Some(namespace)) => namespace,
        (found, _) => return Ok(("in any namespace".into(), found?)),
    };
    let place = format!("in namespace {namespace}");
    let list = async || {
        let found = cluster.provisioners(Some(namespace)).await;
        found.map_err(api(format!("looking for provisioners {place}")))
    };
    let running = patiently(a_while(), out, list).await?;
    Ok((place, running))
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
