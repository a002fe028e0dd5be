//! `release --finalizers`: removes the finalizer from PersistentVolumes without the provisioner.
//!
//! The finalizer keeps a PV until its volume is clean. An operator runs this command to uninstall the provisioner, or
//! after the permanent loss of a node. It never wipes, and deletes nothing but the cleaning Jobs of an installation. A PV
//! whose volume still holds a tenant's data keeps the finalizer, unless the disk has a mark (the annotation `offer` says
//! so) or `--abandon-unmarked` is given. A later installation does not offer a marked volume. A PV whose volume may be half
//! wiped keeps the finalizer also with a mark, so that a later installation can finish.
//!
//! It releases the PVs of one node, or those that name one DaemonSet's installation. While something is left of the
//! DaemonSet, and after a transient error or a conflict, it runs another pass.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Error, Result, bail, ensure};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api_server::cluster;
use super::progress::Progress;
use super::run::UsageError;
use super::table::or_dash;
use crate::args::Release;
use crate::cluster::{ApiError, Cluster, PodView};
use crate::errors::chain;
use crate::names::{ANNOTATION_INSTALLATION, FINALIZER, LABEL_HOSTNAME, LABEL_JOB_PV_UID};
use crate::plan::verdict::{Due, due, may_be_wiped, without_ours};
use crate::view::{Phase, PvView};

/// The end of the line about an uncleaned volume.
const HOW_TO_PROCEED: &str = "it keeps the finalizer: run the provisioner until it is clean, or abandon the data with --abandon-unmarked (in the chart: uninstall.abandonUnmarked=true)";
/// The number of concurrent writes to the API server.
const CONCURRENCY: usize = 8;

/// What the command waits for. It ends a pass.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Left(String);

/// Removes the finalizer from the PVs of the command line.
///
/// # Errors
/// [`UsageError`] when nothing was changed because of an existing node; another error when a request failed. Earlier
/// changes are not rolled back.
pub async fn command(args: Release, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let releaser = Releaser {
        cluster: cluster(&args.api_server).await?,
        args,
        absent_since: Cell::default(),
        has_found: Cell::default(),
    };
    let limit = releaser.args.timeout + releaser.args.absent_for;
    let mut progress = Progress::new(out, limit);
    loop {
        let why = match releaser.pass(progress.out).await {
            Err(error) if error.is::<Left>() => error.to_string(),
            Err(error) if is_passing(&error) => format!("{}; trying again", chain(error.as_ref())),
            ended => return ended,
        };
        progress.show("waiting", &why)?;
        let late = format!(
            "not done within {limit:?}: {why}; if a Pod's node is gone, delete the Pod with --force; then run this again"
        );
        progress.wait(&late).await?;
    }
}

/// Whether a PV is of this node, and of no other one. (With a `selector` in its class, other nodes may use the data too,
/// but the PV was created by the provisioner of that node.)
fn is_of_node(node: &str, pv: &PvView) -> bool {
    let mut names = pv.hostname_label.iter().chain(&pv.hostnames).peekable();
    names.peek().is_some() && names.all(|name| name == node)
}

/// For `map_err`: adds the purpose of the request.
fn api(what: impl std::fmt::Display) -> impl FnOnce(ApiError) -> Error {
    move |error| match error {
        ApiError::Forbidden { .. } => Error::from(error).context(format!(
            "{what} requires the permissions in deploy/uninstall.yaml (docs/install.md)"
        )),
        error => Error::from(error).context(what.to_string()),
    }
}

fn is_passing(error: &Error) -> bool {
    let api = error.downcast_ref::<ApiError>();
    error.is::<Left>() || api.is_some_and(ApiError::is_retriable)
}

struct Releaser {
    cluster: Cluster,
    args: Release,
    /// Since when each look has found no DaemonSet.
    absent_since: Cell<Option<Instant>>,
    /// Whether an earlier pass has found PVs of the node.
    has_found: Cell<bool>,
}

impl Releaser {
    /// The namespace and the name of the DaemonSet.
    fn daemon_set(&self) -> Option<(&str, &str)> {
        let args = &self.args;
        args.namespace.as_deref().zip(args.daemonset.as_deref())
    }

    /// The PVs in scope.
    async fn pvs(&self) -> Result<Vec<PvView>> {
        let node = self.args.node.as_deref();
        let daemon_set = self.daemon_set();
        let installation = daemon_set.map(|(namespace, name)| format!("{namespace}/{name}"));
        let is_wanted = |pv: &PvView| match node {
            Some(node) => is_of_node(node, pv),
            None => installation.is_some() && pv.installation == installation,
        };
        let pvs = self.cluster.pvs_in_pages(ListParams::default(), is_wanted);
        pvs.await.map_err(api("listing the PersistentVolumes"))
    }

    /// Releases the PVs in scope, unless something is left of the DaemonSet.
    async fn pass(&self, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
        let pvs = if let Some((namespace, name)) = self.daemon_set() {
            if self.is_installed(namespace, name).await? {
                writeln!(
                    out,
                    "DaemonSet {namespace}/{name} exists: nothing was changed. To uninstall it, delete it and run this again."
                )?;
                return Ok(ExitCode::from(u8::from(!self.args.unless_installed)));
            }
            // Until they end, they clean volumes and add the finalizer again.
            let is_own = |pod: &PodView| pod.daemon_set.as_deref() == Some(name);
            self.ensure_ended(namespace, is_own).await?;
            let pvs = self.pvs().await?;
            self.end_jobs(namespace, &pvs).await?;
            pvs
        } else {
            self.ensure_gone().await?;
            let mut pvs = self.pvs().await?;
            if pvs.is_empty() && !self.has_found.get() {
                writeln!(
                    out,
                    "No PersistentVolume names node {:?}: nothing was changed. Check the name, unless an earlier run released the last one.",
                    self.args.node.as_deref().unwrap_or_default()
                )?;
                return Ok(ExitCode::FAILURE);
            }
            self.has_found.set(true);
            pvs.retain(PvView::has_finalizer);
            pvs
        };
        let (mut free, mut is_clean) = (Vec::new(), true);
        for pv in &pvs {
            let abandon = self.args.abandon_unmarked;
            if let Some(why) = unclean(pv) {
                let (is_kept, word, then) = match pv.offer {
                    Some(_) if abandon || !may_be_wiped(pv) => {
                        (false, "MARKED", "this program does not offer it")
                    }
                    _ if abandon => (false, "ABANDONED", "its next user can read it"),
                    _ => (true, "UNCLEAN", HOW_TO_PROCEED),
                };
                // Before the write, whose response may be lost.
                writeln!(out, "{word}: {}: {why}; {then}.", data(pv))?;
                if is_kept {
                    is_clean = false;
                    continue;
                }
            }
            free.push(pv);
        }
        self.release(&free, out).await?;
        Ok(ExitCode::from(u8::from(!is_clean)))
    }

    /// Removes the finalizer from the listed versions of these PVs.
    async fn release(&self, pvs: &[&PvView], out: &mut (dyn Write + Send)) -> Result<()> {
        let results = stream::iter(pvs).map(async |pv| {
            // The Node or the DaemonSet may have come back since the first check.
            self.ensure_gone().await?;
            let mut metadata = json!({ "finalizers": without_ours(pv) });
            if self.args.node.is_none() {
                metadata["annotations"][ANNOTATION_INSTALLATION] = Value::Null;
            }
            let removed = self.cluster.patch_pv(&pv.reference(), metadata).await;
            removed.map_err(api(format!("removing the finalizer from {}", data(pv))))
        });
        let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        for error in &failed {
            writeln!(out, "FAILED: {}", chain(error.as_ref()))?;
        }
        let count = failed.len();
        let removed = pvs.len() - count;
        let node = self.args.node.as_ref();
        let scope = node.map_or_else(String::new, |node| format!(" of node {node:?}"));
        writeln!(
            out,
            "The finalizer {FINALIZER} was removed from {removed} PersistentVolumes{scope}."
        )?;
        if let Some(error) = failed.into_iter().find(is_passing) {
            return Err(error);
        }
        ensure!(
            count == 0,
            "{count} PersistentVolumes keep the finalizer {FINALIZER}, since their requests failed: see the lines with FAILED, fix the causes, and run this again"
        );
        Ok(())
    }

    /// Looks for the DaemonSet.
    ///
    /// If the chart was rendered and applied, its hook is an ordinary Job that may run before the DaemonSet is
    /// applied. So the DaemonSet must be absent for a while, not only in one look.
    ///
    /// # Errors
    /// [`Left`] while it is being deleted, and until it was absent for a while.
    async fn is_installed(&self, namespace: &str, name: &str) -> Result<bool> {
        // A failed request does not prove that the DaemonSet is absent.
        let since = self.absent_since.take().unwrap_or_else(Instant::now);
        let found = self.cluster.daemon_set(namespace, name).await;
        let found = found.map_err(api("looking for the DaemonSet"))?;
        match found.map(|set| set.deletion_timestamp) {
            Some(None) => return Ok(true),
            Some(Some(_)) => bail!(Left(format!("DaemonSet {namespace}/{name} is being deleted"))),
            None => self.absent_since.set(Some(since)),
        }
        let absent_for = self.args.absent_for;
        if since.elapsed() < absent_for {
            bail!(Left(format!(
                "the DaemonSet is gone, and must be absent for {absent_for:?} in case it is applied again"
            )));
        }
        Ok(false)
    }

    /// Deletes the cleaning Jobs of these PVs, whose Pods are deleted first.
    ///
    /// # Errors
    /// [`Left`] with what is left of them.
    async fn end_jobs(&self, namespace: &str, pvs: &[PvView]) -> Result<()> {
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
        ensure!(count == 0, Left(format!("{count} cleaning Jobs are being deleted")));
        Ok(())
    }

    /// # Errors
    /// [`Left`] with the running Pods, which the garbage collector deletes after the DaemonSet or the Job.
    async fn ensure_ended(&self, namespace: &str, is_one: impl Fn(&PodView) -> bool) -> Result<()> {
        let is_left = |pod: &PodView| !pod.terminal && is_one(pod);
        let all = ListParams::default();
        let pods = self.cluster.pods(Some(namespace), all, is_left).await;
        let pods = pods.map_err(api("looking for the Pods of the DaemonSet and its Jobs"))?;
        let Some(first) = pods.first() else {
            return Ok(());
        };
        let (count, name, node) = (pods.len(), &first.name, &first.node);
        bail!(Left(format!(
            "{count} Pods of the DaemonSet or its Jobs are left, such as {name} on {node}"
        )))
    }

    /// Ensures that the node or the DaemonSet is gone. An existing node has its data, and a provisioner that would add
    /// the finalizer again.
    async fn ensure_gone(&self) -> Result<()> {
        if let Some(node) = &self.args.node {
            let found = self.cluster.nodes_known_as(LABEL_HOSTNAME, node).await;
            let found = found.map_err(api(format!("checking that node {node:?} is gone")))?;
            if !found.is_empty() {
                bail!(UsageError(format!(
                    "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; delete that Node first if it never comes back",
                    found.join(", ")
                )));
            }
        }
        if let Some((namespace, name)) = self.daemon_set() {
            let found = self.cluster.daemon_set(namespace, name).await;
            let found = found.map_err(api("reading the DaemonSet"))?;
            ensure!(found.is_none(), "DaemonSet {namespace}/{name} exists again");
        }
        Ok(())
    }
}

/// Why the PV would be deleted, or no longer be cleaned, with a tenant's data on the disk. `None` if nothing is to be
/// cleaned: the volume was never used, its policy keeps the data, or its PV stays in use. Without the finalizer nothing
/// changes. It judges by the PV only, since the disk is on another machine.
fn unclean(pv: &PvView) -> Option<&'static str> {
    if !pv.has_finalizer() {
        return None;
    }
    match (due(pv), pv.deleting) {
        (Due::Unused | Due::Retained, _) | (Due::No, false) => None,
        (Due::Yes, true) => Some("deleted, not cleaned yet"),
        (Due::Yes, false) => Some("released, not cleaned yet"),
        (Due::No, true) if pv.phase == Phase::Bound => {
            Some("deleted while its claim still uses it")
        }
        (Due::No, true) => Some("deleted, and its reclaim policy is unknown"),
    }
}

/// A PV and the location of its data, for a message.
fn data(pv: &PvView) -> String {
    let (claim, path) = (or_dash(pv.claim.as_ref()), or_dash(pv.path()));
    let label = pv.hostname_label.clone();
    let node = label.unwrap_or_else(|| pv.hostnames.join(","));
    format!("PV {} (data of {claim} in {path} on node {node})", pv.name)
}

#[cfg(test)]
mod tests;
