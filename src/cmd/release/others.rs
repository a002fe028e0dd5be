//! Provisioners that run, although nobody asked for their end.

use std::io::Write;

use crate::cluster::{Cluster, ProvisionerPod};
use crate::cmd::run::Misuse;

use super::patience::{a_while, patiently};
use super::{ReleaseError, api};

/// Where to look.
pub(super) enum Place<'a> {
    /// Here: the chart's Job may look nowhere else.
    Namespace(&'a str),
    /// In all namespaces; if that is denied, in this one.
    Anywhere(Option<&'a str>),
}

/// Which provisioners to look for.
pub(super) struct Others<'a> {
    /// Where.
    pub(super) place: Place<'a>,
    /// Not those of the DaemonSet with this UID, which is about to be deleted.
    pub(super) except: Option<&'a str>,
}

impl Others<'_> {
    /// Looks for provisioners and tells of them.
    ///
    /// One that runs puts the finalizer back; and a volume that it may be cleaning, or would offer
    /// again with the data, is not given up. Whether it is the Go program, which does not care for the
    /// finalizer, cannot be seen, so people have to know.
    ///
    /// # Errors
    /// [`ReleaseError::Misuse`] if one runs and uncleaned volumes were to be given up.
    pub(super) async fn look(
        &self,
        cluster: &Cluster,
        abandon: bool,
        out: &mut (dyn Write + Send),
    ) -> Result<(), ReleaseError> {
        let (place, mut running) = self.running(cluster, out).await?;
        running.retain(|pod| self.except.is_none() || pod.owner_uid.as_deref() != self.except);
        if running.is_empty() {
            writeln!(out, "No other provisioner runs {place}.")?;
            return Ok(());
        }
        let names = names(&running);
        if abandon {
            return Err(Misuse(format!(
                "provisioners run {place}: {names}; uncleaned volumes are not given up while one may be cleaning or offering them; name their DaemonSet with --daemonset and --namespace, or end them first (a Pod whose node is gone: kubectl delete pod --force)"
            ))
            .into());
        }
        writeln!(
            out,
            "WARNING: these look like provisioners: {names}. If they are this program's, they put the finalizer back; name their DaemonSet with --daemonset."
        )?;
        Ok(())
    }

    /// In words where was looked, and the Pods found there.
    async fn running(
        &self,
        cluster: &Cluster,
        out: &mut (dyn Write + Send),
    ) -> Result<(String, Vec<ProvisionerPod>), ReleaseError> {
        let namespace = match self.place {
            Place::Namespace(namespace) => namespace,
            Place::Anywhere(otherwise) => {
                let what = "looking for provisioners in all namespaces";
                let list = async || cluster.provisioners(None).await.map_err(api(what));
                match (patiently(a_while(), out, list).await, otherwise) {
                    (Err(ReleaseError::Denied { .. }), Some(namespace)) => namespace,
                    (found, _) => return Ok(("in any namespace".into(), found?)),
                }
            }
        };
        let place = format!("in namespace {namespace}");
        let list = async || {
            let found = cluster.provisioners(Some(namespace)).await;
            found.map_err(api(format!("looking for provisioners {place}")))
        };
        let running = patiently(a_while(), out, list).await?;
        Ok((place, running))
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
