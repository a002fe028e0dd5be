//! `release --finalizers`: removes the finalizer from PersistentVolumes without the provisioner.
//!
//! The finalizer keeps a PV until its volume is clean. An operator runs this command to uninstall the provisioner, or
//! after the permanent loss of a node. It never wipes, and a PV whose volume still holds a tenant's data keeps the
//! finalizer unless `--abandon-uncleaned` is given.
//!
//! It runs a pass every second until nothing is left to do. A transient error or a conflict is retried by the next
//! pass.

mod installation;
mod judge;
mod output;
pub(super) mod provisioners;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use tokio::time::{Instant, sleep};

use super::run::{UsageError, client};
use crate::args::{Environment, Release};
use crate::cluster::{ApiError, Cluster};
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::names::FINALIZER;
use crate::plan::verdict::without_ours;
use crate::view::PvView;
use installation::{Installation, State};
use judge::{Judgement, judge};

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
    /// All, after the DaemonSet was deleted.
    Installation(Installation),
    /// All, when no provisioner runs. The namespace is searched for provisioners if listing all namespaces is denied.
    All(Option<String>),
}

/// The result of the command.
enum Outcome {
    /// None of the PVs keeps the finalizer, or in a dry run none would.
    AllReleased,
    /// Some PVs keep it.
    SomeStay,
    /// The DaemonSet exists, so its PVs keep the finalizer.
    Installed,
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
    let scope = Scope::read(&args, environment)?;
    let cluster = Cluster::new(client().await?, Arc::new(Metrics::new()?));
    let mut releaser = Releaser::new(&cluster, &args, &scope);
    let outcome = loop {
        match releaser.pass(out).await {
            Ok(Some(outcome)) => break outcome,
            Ok(None) => {}
            Err(error) if is_passing(&error) && Instant::now() < releaser.deadline => {
                writeln!(out, "{}; trying again.", chain(error.as_ref()))?;
                // A failed pass does not prove that the DaemonSet is absent.
                releaser.absent_since = None;
            }
            Err(error) => return Err(error),
        }
        sleep(PASS_PAUSE).await;
    };
    Ok(match outcome {
        Outcome::AllReleased => ExitCode::SUCCESS,
        Outcome::Installed if args.unless_installed => ExitCode::SUCCESS,
        Outcome::SomeStay | Outcome::Installed => ExitCode::FAILURE,
    })
}

impl Scope {
    fn read(args: &Release, environment: Environment) -> Result<Self, UsageError> {
        let known = (!environment.namespace_defaulted).then_some(environment.namespace);
        let namespace = args.namespace.clone().or(known);
        match (args.node.clone(), args.daemonset.clone(), namespace) {
            (Some(node), _, _) => Ok(Self::Node(node)),
            (None, None, namespace) => Ok(Self::All(namespace)),
            (None, Some(name), Some(namespace)) => {
                Ok(Self::Installation(Installation { namespace, name }))
            }
            (None, Some(_), None) => Err(UsageError(
                "name the namespace of the DaemonSet with --namespace".into(),
            )),
        }
    }

    /// Whether a PV is in scope. With a node: only if the PV names no other node. (With a `selector` in its class,
    /// other nodes may use the data too, but the PV was created by the provisioner of that node.)
    fn includes(&self, pv: &PvView) -> bool {
        match self {
            Self::Installation(_) | Self::All(_) => true,
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

/// What a pass did with a PV.
enum PvResult {
    Released,
    Abandoned,
    Stays(&'static str),
    /// The DaemonSet exists again.
    Installed,
    Failed(Error),
}

/// The state of the command between passes.
struct Releaser<'a> {
    cluster: &'a Cluster,
    args: &'a Release,
    scope: &'a Scope,
    /// Until when transient errors are retried.
    deadline: Instant,
    absent_since: Option<Instant>,
    /// Whether the provisioner is known to be gone.
    is_gone: bool,
    /// The last report of what the command waits for.
    reported: String,
    /// By UID, the PVs whose write is unconfirmed, with its error.
    unconfirmed: BTreeMap<String, (PvView, Error)>,
    /// The errors of writes to PVs that are no longer in scope.
    failed: Vec<Error>,
    released: usize,
}

impl<'a> Releaser<'a> {
    fn new(cluster: &'a Cluster, args: &'a Release, scope: &'a Scope) -> Self {
        let limit = match scope {
            Scope::Installation(_) if !args.dry_run => args.timeout + args.absent_for,
            _ => RETRY_LIMIT,
        };
        Self {
            cluster,
            args,
            scope,
            deadline: Instant::now() + limit,
            absent_since: None,
            is_gone: false,
            reported: String::new(),
            unconfirmed: BTreeMap::new(),
            failed: Vec::new(),
            released: 0,
        }
    }

    /// Runs a pass; `None` when another one is due.
    async fn pass(&mut self, out: &mut (dyn Write + Send)) -> Result<Option<Outcome>> {
        if !self.is_gone {
            match self.wait(out).await? {
                State::Gone => {}
                State::Waiting => return Ok(None),
                State::Installed => return Ok(Some(Outcome::Installed)),
            }
            self.is_gone = true;
            self.deadline = Instant::now() + RETRY_LIMIT;
        }
        let held = self.held(|pv| self.scope.includes(pv)).await?;
        if let (Scope::Node(node), true, 0) = (self.scope, held.is_empty(), self.released)
            && self.unconfirmed.is_empty()
        {
            output::no_match(node, &self.held(|_| true).await?, out)?;
            return Ok(Some(Outcome::AllReleased));
        }
        self.resolve_unconfirmed(&held, out).await?;
        let results = stream::iter(&held).map(async |pv| (pv, self.release(pv).await));
        let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
        let (mut stay, mut failed, mut installed) = (Vec::new(), Vec::new(), 0);
        for (pv, result) in results {
            match result {
                PvResult::Released => self.released += 1,
                PvResult::Abandoned => output::abandoned(pv, self.args.dry_run, out)?,
                PvResult::Stays(why) => stay.push((pv, why)),
                PvResult::Installed => installed += 1,
                PvResult::Failed(error) if is_passing(&error) && Instant::now() < self.deadline => {
                    self.unconfirmed.insert(pv.uid.clone(), (pv.clone(), error));
                }
                PvResult::Failed(error) => failed.push(error),
            }
        }
        if !self.unconfirmed.is_empty() && installed == 0 {
            return Ok(None);
        }
        failed.append(&mut self.failed);
        for error in &failed {
            writeln!(out, "FAILED: {}", chain(error.as_ref()))?;
        }
        output::released(self.released, self.args.dry_run, out)?;
        if !stay.is_empty() {
            stay.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
            output::unclean(&stay, out)?;
        }
        if installed > 0 {
            writeln!(
                out,
                "The DaemonSet exists again: {installed} PersistentVolumes keep the finalizer."
            )?;
        }
        match (failed.len(), installed, stay.len()) {
            (0, 0, 0) => Ok(Some(Outcome::AllReleased)),
            (0, 0, _) => Ok(Some(Outcome::SomeStay)),
            (0, ..) => Ok(Some(Outcome::Installed)),
            (count, ..) => bail!(
                "{count} PersistentVolumes keep the finalizer {FINALIZER}, since their requests failed: see the lines with FAILED, fix the causes, and run this again"
            ),
        }
    }

    /// Lists the wanted PVs with the finalizer.
    async fn held(&self, wanted: impl Fn(&PvView) -> bool) -> Result<Vec<PvView>> {
        let is_held = |pv: &PvView| pv.has_finalizer() && wanted(pv);
        let held = self.cluster.pvs_in_pages(ListParams::default(), is_held);
        held.await.map_err(api("listing the PersistentVolumes"))
    }

    /// Reads the PVs with unconfirmed writes that no longer have the finalizer or are no longer in scope.
    async fn resolve_unconfirmed(
        &mut self,
        held: &[PvView],
        out: &mut (dyn Write + Send),
    ) -> Result<()> {
        for (uid, (pv, error)) in std::mem::take(&mut self.unconfirmed) {
            if held.iter().any(|held| held.uid == uid) {
                continue;
            }
            let now = self.cluster.pv(&pv.name).await;
            let now = now.map_err(api(format!("reading PV {}", pv.name)))?;
            if now.is_some_and(|now| now.uid == uid && now.has_finalizer()) {
                self.failed.push(error);
            } else if judge(&pv) == Judgement::Free {
                self.released += 1;
            } else {
                output::abandoned(&pv, false, out)?;
            }
        }
        Ok(())
    }

    /// Removes the finalizer from the listed version of a PV.
    async fn release(&self, pv: &PvView) -> PvResult {
        let result = match judge(pv) {
            Judgement::Free => PvResult::Released,
            Judgement::Unclean(_) if self.args.abandon_uncleaned => PvResult::Abandoned,
            Judgement::Unclean(why) => return PvResult::Stays(why),
        };
        if self.args.dry_run {
            return result;
        }
        // The Node or the DaemonSet may have come back since the first pass.
        let is_back = match (self.scope, &result) {
            (Scope::Node(node), PvResult::Abandoned) => {
                confirm_gone(self.cluster, node).await.map(|()| false)
            }
            (Scope::Installation(installation), _) => {
                let state = installation.daemon_set(self.cluster).await;
                state.map(|state| state.is_some())
            }
            _ => Ok(false),
        };
        match is_back {
            Ok(false) => {}
            Ok(true) => return PvResult::Installed,
            Err(error) => return PvResult::Failed(error),
        }
        let (reference, others) = (pv.reference(), without_ours(pv));
        let removed = self.cluster.remove_finalizer(&reference, &others).await;
        match removed {
            Ok(()) => result,
            Err(error) => {
                let what = format!("removing the finalizer from {}", output::data(pv));
                PvResult::Failed(api(what)(error))
            }
        }
    }
}

/// Ensures that a node is gone. An existing node has its data, and a provisioner that would add the finalizer again.
async fn confirm_gone(cluster: &Cluster, node: &str) -> Result<()> {
    let found = cluster.nodes_known_as(node).await;
    let found = found.map_err(api(format!("checking that node {node:?} is gone")))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(anyhow!(UsageError(format!(
        "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; its PersistentVolumes are left alone; delete that Node first if it never comes back",
        found.join(", ")
    ))))
}

#[cfg(test)]
mod tests;
