//! `release --finalizers`: removes the finalizer from PersistentVolumes without the provisioner.
//!
//! The finalizer keeps a PV until its volume is clean. An operator runs this command to uninstall the provisioner, or
//! after the permanent loss of a node. It never wipes, and a PV whose volume still holds a tenant's data keeps the
//! finalizer unless `--abandon-uncleaned` is given.
//!
//! After a transient error or a conflict it runs another pass, which lists the PVs again.

mod provisioners;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, bail, ensure};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use tokio::time::{Instant, sleep};

use super::run::{UsageError, client};
use super::table::or_dash;
use crate::args::{Environment, Release};
use crate::cluster::{ApiError, Cluster};
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::names::FINALIZER;
use crate::plan::verdict::{Due, due, without_ours};
use crate::view::{Phase, PvView};

/// The pause between two passes.
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// How long transient errors are retried.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// The number of concurrent writes to the API server.
const CONCURRENCY: usize = 8;

/// The PVs to release.
#[derive(Clone, Debug)]
enum Scope {
    /// Those of a node that is gone for good.
    Node(String),
    /// All, after this DaemonSet was deleted.
    Installation { namespace: String, name: String },
    /// All, when no provisioner runs. The namespace is searched for provisioners if listing all namespaces is denied.
    All(Option<String>),
}

/// Removes the finalizer from the PVs of the command line.
///
/// # Errors
/// [`UsageError`] when nothing was changed because of the command line, a running provisioner or an existing node;
/// another error when a request failed. Earlier changes are not rolled back.
pub async fn command(
    args: Release,
    environment: Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let releaser = Releaser {
        scope: Scope::read(&args, environment)?,
        cluster: Cluster::new(client().await?, Arc::new(Metrics::new()?)),
        args,
    };
    if !releaser.wait_until_gone(out).await? {
        let good = releaser.args.unless_installed;
        return Ok(ExitCode::from(u8::from(!good)));
    }
    let deadline = Instant::now() + RETRY_LIMIT;
    loop {
        match releaser.pass(out).await {
            Ok(code) => return Ok(code),
            Err(error) if is_passing(&error) && Instant::now() < deadline => {
                writeln!(out, "{}; trying again.", chain(error.as_ref()))?;
            }
            Err(error) => return Err(error),
        }
        sleep(PASS_PAUSE).await;
    }
}

impl Scope {
    fn read(args: &Release, environment: Environment) -> Result<Self, UsageError> {
        let known = (!environment.namespace_defaulted).then_some(environment.namespace);
        let namespace = args.namespace.clone().or(known);
        match (args.node.clone(), args.daemonset.clone(), namespace) {
            (Some(node), _, _) => Ok(Self::Node(node)),
            (None, None, namespace) => Ok(Self::All(namespace)),
            (None, Some(name), Some(namespace)) => Ok(Self::Installation { namespace, name }),
            (None, Some(_), None) => Err(UsageError(
                "name the namespace of the DaemonSet with --namespace".into(),
            )),
        }
    }

    /// Whether a PV is in scope. With a node: only if the PV names no other node. (With a `selector` in its class,
    /// other nodes may use the data too, but the PV was created by the provisioner of that node.)
    fn includes(&self, pv: &PvView) -> bool {
        match self {
            Self::Installation { .. } | Self::All(_) => true,
            Self::Node(node) => {
                let mut names = pv.hostname_label.iter().chain(&pv.hostnames).peekable();
                names.peek().is_some() && names.all(|name| name == node)
            }
        }
    }
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
    api.is_some_and(|error| {
        error.is_passing() || matches!(error, ApiError::Conflict | ApiError::NotFound)
    })
}

struct Releaser {
    cluster: Cluster,
    args: Release,
    scope: Scope,
}

impl Releaser {
    /// Releases the PVs in scope. The exit code tells whether all of them were, or in a dry run would be.
    async fn pass(&self, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
        match &self.scope {
            Scope::Node(_) => self.ensure_gone().await?,
            Scope::All(namespace) => self.check_provisioners(namespace.as_deref(), out).await?,
            Scope::Installation { namespace, .. } => {
                self.check_provisioners(Some(namespace), out).await?;
            }
        }
        let held = self
            .cluster
            .pvs_in_pages(ListParams::default(), PvView::has_finalizer);
        let held = held.await.map_err(api("listing the PersistentVolumes"))?;
        let (mut free, mut stay) = (Vec::new(), 0);
        for pv in held.iter().filter(|pv| self.scope.includes(pv)) {
            match unclean(pv) {
                None => free.push(pv),
                // Before the write, whose response may be lost.
                Some(why) if self.args.abandon_uncleaned => {
                    writeln!(
                        out,
                        "ABANDONED: {}: {why}; its next user can read it.",
                        data(pv)
                    )?;
                    free.push(pv);
                }
                Some(why) => {
                    writeln!(out, "UNCLEAN: {}: {why}; it keeps the finalizer.", data(pv))?;
                    stay += 1;
                }
            }
        }
        if let (Scope::Node(node), 0, 0) = (&self.scope, free.len(), stay) {
            let nodes = Vec::from_iter(held.iter().map(node_of).collect::<BTreeSet<_>>());
            writeln!(
                out,
                "No PersistentVolume with our finalizer belongs to node {node:?} only; nodes with such PersistentVolumes: {}. Use the value of the label kubernetes.io/hostname as the name.",
                nodes.join("; ")
            )?;
        }
        let failed = if self.args.dry_run {
            let count = free.len();
            writeln!(
                out,
                "Dry run: nothing was changed. The finalizer would be removed from {count} PersistentVolumes."
            )?;
            Vec::new()
        } else {
            self.release(&free, out).await?
        };
        if stay > 0 {
            writeln!(
                out,
                "\nFor the UNCLEAN volumes, either:\n\
                 1. Clean them: run the provisioner (install it again if it is gone) until these PVs are gone or Available;\n   \
                    `kubectl describe pv NAME` shows what blocks a cleanup.\n\
                 2. Abandon them with --abandon-uncleaned (in the chart: uninstall.abandonUncleaned=true): the finalizer is removed,\n   \
                    and the data stays on the disks, readable by their next user."
            )?;
        }
        let count = failed.len();
        if let Some(error) = failed.into_iter().find(is_passing) {
            return Err(error);
        }
        ensure!(
            count == 0,
            "{count} PersistentVolumes keep the finalizer {FINALIZER}, since their requests failed: see the lines with FAILED, fix the causes, and run this again"
        );
        Ok(ExitCode::from(u8::from(stay > 0)))
    }

    /// Removes the finalizer from the listed versions of these PVs. Returns the errors.
    async fn release(&self, pvs: &[&PvView], out: &mut (dyn Write + Send)) -> Result<Vec<Error>> {
        let results = stream::iter(pvs).map(async |pv| {
            // The Node or the DaemonSet may have come back since the first check.
            self.ensure_gone().await?;
            let (reference, others) = (pv.reference(), without_ours(pv));
            let removed = self.cluster.remove_finalizer(&reference, &others).await;
            removed.map_err(api(format!("removing the finalizer from {}", data(pv))))
        });
        let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        for error in &failed {
            writeln!(out, "FAILED: {}", chain(error.as_ref()))?;
        }
        writeln!(
            out,
            "The finalizer {FINALIZER} was removed from {} PersistentVolumes.",
            pvs.len() - failed.len()
        )?;
        Ok(failed)
    }

    /// Ensures that the node or the DaemonSet is gone. An existing node has its data, and a provisioner that would add
    /// the finalizer again.
    async fn ensure_gone(&self) -> Result<()> {
        match &self.scope {
            Scope::All(_) => {}
            Scope::Node(node) => {
                let found = self.cluster.nodes_known_as(node).await;
                let found = found.map_err(api(format!("checking that node {node:?} is gone")))?;
                if !found.is_empty() {
                    bail!(UsageError(format!(
                        "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; its PersistentVolumes are left alone; delete that Node first if it never comes back",
                        found.join(", ")
                    )));
                }
            }
            Scope::Installation { namespace, name } => {
                let found = self.cluster.daemon_set(namespace, name).await;
                let found = found.map_err(api("reading the DaemonSet"))?;
                ensure!(found.is_none(), "DaemonSet {namespace}/{name} exists again");
            }
        }
        Ok(())
    }
}

/// Why the PV would be deleted, or no longer be cleaned, with a tenant's data on the disk. `None` if nothing is to be
/// cleaned: the volume was never used, its policy keeps the data, or its PV stays in use. It judges by the PV only,
/// since the disk is on another machine.
fn unclean(pv: &PvView) -> Option<&'static str> {
    match (due(pv), pv.deleting) {
        (Due::Unused | Due::Kept, _) | (Due::No, false) => None,
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
    format!(
        "PV {} (data of {claim} in {path} on node {})",
        pv.name,
        node_of(pv)
    )
}

/// The hostname label; without it, the hostnames of the node affinity.
fn node_of(pv: &PvView) -> String {
    let label = pv.hostname_label.clone();
    label.unwrap_or_else(|| pv.hostnames.join(","))
}

#[cfg(test)]
mod tests;
