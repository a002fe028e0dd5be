//! `release --finalizers`: removes the finalizer from PersistentVolumes without the provisioner.
//!
//! The finalizer keeps a PV until its volume is clean. An operator runs this command to uninstall the provisioner, or
//! after the permanent loss of a node. It never wipes, and a PV whose volume still holds a tenant's data keeps the
//! finalizer unless `--abandon-uncleaned` is given. It deletes nothing but the cleaning Jobs of an installation.
//!
//! With a DaemonSet, it releases only the PVs of that installation. A PV that names no installation counts as one of
//! them if no other provisioner runs. While something is left of the DaemonSet, and after a transient error or a
//! conflict, it runs another pass.

mod running;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, Result, bail, ensure};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::run::{UsageError, cluster};
use super::table::or_dash;
use crate::args::{Environment, Release};
use crate::cluster::{ApiError, Cluster};
use crate::errors::chain;
use crate::names::{ANNOTATION_INSTALLATION, FINALIZER};
use crate::plan::verdict::{Due, due, without_ours};
use crate::view::{Phase, PvView};

/// The pause between two passes.
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// The end of the line about an uncleaned volume.
const HOW_TO_PROCEED: &str = "it keeps the finalizer: run the provisioner until it is clean, or leave the data to its next user with --abandon-uncleaned (in the chart: uninstall.abandonUncleaned=true)";
/// The number of concurrent writes to the API server.
const CONCURRENCY: usize = 8;

/// The result of a pass.
enum Pass {
    /// It is over; whether all PVs in scope were released, or in a dry run would be.
    Over(bool),
    /// This is left of the DaemonSet.
    Left(String),
}

/// Removes the finalizer from the PVs of the command line.
///
/// # Errors
/// [`UsageError`] when nothing was changed because of the command line, a running provisioner or an existing node;
/// another error when a request failed. Earlier changes are not rolled back.
pub async fn command(
    mut args: Release,
    environment: Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let known = (!environment.namespace_defaulted).then_some(environment.namespace);
    args.namespace = args.namespace.or(known);
    if args.daemonset.is_some() && args.namespace.is_none() {
        let text = "name the namespace of the DaemonSet with --namespace";
        bail!(UsageError(text.into()));
    }
    let releaser = Releaser {
        cluster: cluster().await?,
        args,
        absent_since: Cell::default(),
    };
    let limit = releaser.args.timeout + releaser.args.absent_for;
    let deadline = Instant::now() + limit;
    let mut reported = String::new();
    loop {
        let why = match releaser.pass(out).await {
            Ok(Pass::Over(good)) => return Ok(ExitCode::from(u8::from(!good))),
            Ok(Pass::Left(left)) => format!("this is left of the DaemonSet: {left}"),
            Err(error) if is_passing(&error) => chain(error.as_ref()),
            Err(error) => return Err(error),
        };
        ensure!(
            Instant::now() < deadline,
            "not done within {limit:?}: {why}; if a Pod's node is gone, delete the Pod with --force; then run this again"
        );
        if reported != why {
            writeln!(out, "{why}; trying again.")?;
            reported = why;
        }
        sleep(PASS_PAUSE).await;
    }
}

/// Whether a PV is in scope. With a node: only if the PV names no other node. (With a `selector` in its class, other
/// nodes may use the data too, but the PV was created by the provisioner of that node.)
fn includes(node: Option<&String>, pv: &PvView) -> bool {
    node.is_none_or(|node| {
        let mut names = pv.hostname_label.iter().chain(&pv.hostnames).peekable();
        names.peek().is_some() && names.all(|name| name == node)
    })
}

/// Whether a PV has to be released. With an installation: only if the PV names no other one.
fn concerns(installation: Option<&String>, pv: &PvView) -> bool {
    match (installation, &pv.installation) {
        (Some(ours), Some(named)) => ours == named,
        _ => pv.has_finalizer(),
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
    api.is_some_and(|error| error.is_passing() || error.is_change())
}

struct Releaser {
    cluster: Cluster,
    args: Release,
    /// Since when each look has found no DaemonSet.
    absent_since: Cell<Option<Instant>>,
}

impl Releaser {
    /// The namespace and the name of the DaemonSet.
    fn daemon_set(&self) -> Option<(&str, &str)> {
        let args = &self.args;
        args.namespace.as_deref().zip(args.daemonset.as_deref())
    }

    /// The installation, as PVs name it.
    fn installation(&self) -> Option<String> {
        let set = self.daemon_set();
        set.map(|(namespace, name)| format!("{namespace}/{name}"))
    }

    /// Whether a PV names the installation.
    fn is_recorded(&self, pv: &PvView) -> bool {
        pv.installation.is_some() && pv.installation == self.installation()
    }

    /// Releases the PVs in scope, unless something is left of the DaemonSet.
    async fn pass(&self, out: &mut (dyn Write + Send)) -> Result<Pass> {
        match self.daemon_set() {
            Some((namespace, name)) if !self.args.dry_run => {
                if let Some(found) = self.look(namespace, name, out).await? {
                    return Ok(found);
                }
            }
            Some(_) => {}
            None => self.ensure_gone().await?,
        }
        let mut others = None;
        if self.args.node.is_none() {
            let (left, running) = self.provisioners(out).await?;
            if let Some(left) = left {
                return Ok(Pass::Left(left));
            }
            others = running;
        }
        let ours = self.installation();
        let held = self
            .cluster
            .pvs_in_pages(ListParams::default(), |pv| concerns(ours.as_ref(), pv));
        let mut held = held.await.map_err(api("listing the PersistentVolumes"))?;
        if let Some(others) = &others {
            self.keep_doubtful(&mut held, others, out)?;
        }
        if let Some(left) = self.end_jobs(&held).await? {
            return Ok(Pass::Left(left));
        }
        let (mut free, mut is_clean) = (Vec::new(), true);
        let node = self.args.node.as_ref();
        for pv in held.iter().filter(|pv| includes(node, pv)) {
            match unclean(pv) {
                None => free.push(pv),
                // Before the write, whose response may be lost.
                Some(why) if self.args.abandon_uncleaned => {
                    let data = data(pv);
                    writeln!(out, "ABANDONED: {data}: {why}; its next user can read it.")?;
                    free.push(pv);
                }
                Some(why) => {
                    let data = data(pv);
                    writeln!(out, "UNCLEAN: {data}: {why}; {HOW_TO_PROCEED}.")?;
                    is_clean = false;
                }
            }
        }
        if let Some(node) = node.filter(|_| is_clean && free.is_empty()) {
            let nodes: BTreeSet<_> = held.iter().map(node_of).collect();
            let nodes = Vec::from_iter(nodes).join(", ");
            writeln!(
                out,
                "No PersistentVolume with the finalizer belongs to node {node:?} only; nodes with such PersistentVolumes: {nodes}; the name is the value of the label kubernetes.io/hostname."
            )?;
        }
        if self.args.dry_run {
            let count = free.len();
            writeln!(
                out,
                "Dry run: nothing was changed. The finalizer would be removed from {count} PersistentVolumes."
            )?;
        } else {
            self.release(&free, out).await?;
        }
        Ok(Pass::Over(is_clean))
    }

    /// Removes the finalizer from the listed versions of these PVs.
    async fn release(&self, pvs: &[&PvView], out: &mut (dyn Write + Send)) -> Result<()> {
        let results = stream::iter(pvs).map(async |pv| {
            // The Node or the DaemonSet may have come back since the first check.
            self.ensure_gone().await?;
            let mut metadata = json!({ "finalizers": without_ours(pv) });
            if self.is_recorded(pv) {
                metadata["annotations"][ANNOTATION_INSTALLATION] = Value::Null;
            }
            let removed = self.cluster.patch_pv(&pv.reference(), metadata).await;
            let removed = removed.map(drop);
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

    /// Looks for the DaemonSet. `None` if it was absent for a while.
    ///
    /// If the chart was rendered and applied, its hook is an ordinary Job that may run before the DaemonSet is
    /// applied. So the DaemonSet must be absent for a while, not only in one look.
    async fn look(
        &self,
        namespace: &str,
        name: &str,
        out: &mut (dyn Write + Send),
    ) -> Result<Option<Pass>> {
        // A failed request does not prove that the DaemonSet is absent.
        let since = self.absent_since.take().unwrap_or_else(Instant::now);
        let found = self.cluster.daemon_set(namespace, name).await;
        let found = found.map_err(api("looking for the DaemonSet"))?;
        let absent_for = self.args.absent_for;
        Ok(match found.map(|set| set.deletion_timestamp) {
            Some(None) => {
                writeln!(
                    out,
                    "DaemonSet {namespace}/{name} exists: nothing was changed. To uninstall it, delete it and run this again."
                )?;
                Some(Pass::Over(self.args.unless_installed))
            }
            Some(Some(_)) => Some(Pass::Left("itself, which is being deleted".into())),
            None => {
                self.absent_since.set(Some(since));
                (since.elapsed() < absent_for).then(|| {
                    Pass::Left(format!(
                        "nothing; it must be absent for {absent_for:?}, as it may be about to be applied"
                    ))
                })
            }
        })
    }

    /// Ensures that the node or the DaemonSet is gone. An existing node has its data, and a provisioner that would add
    /// the finalizer again.
    async fn ensure_gone(&self) -> Result<()> {
        if let Some(node) = &self.args.node {
            let found = self.cluster.nodes_known_as(node).await;
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
