//! `release --finalizers`: removes the finalizer from PersistentVolumes without the provisioner.
//!
//! The finalizer keeps a PV until its volume is clean. An operator who uninstalls the provisioner, or
//! has lost a node for good, removes it with this. It wipes nothing, and a PV whose volume still holds
//! a tenant's data keeps the finalizer unless `--abandon-uncleaned` is given.
//!
//! It looks once a second, does what the look allows, and ends when a look leaves nothing to do: an
//! error that may pass, or a conflict, is settled by the next look.

mod installation;
mod judge;
pub(super) mod others;
mod tell;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::run::{Misuse, client};
use crate::args::{Environment, Release};
use crate::cluster::{ApiError, Cluster};
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::names::FINALIZER;
use crate::plan::verdict::without_ours;
use crate::view::PvView;
use installation::{Installation, State};
use judge::{Judgement, judge};

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// For how long errors that may pass are retried.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// Writes to the API server at a time.
const CONCURRENCY: usize = 8;

/// Which PVs.
#[derive(Clone, Debug)]
enum Scope {
    /// Those of a node that is gone for good.
    Node(String),
    /// All, after the DaemonSet was deleted.
    Installation(Installation),
    /// All, when no provisioner runs any more; in which namespace to look for one if not everywhere is
    /// allowed.
    All(Option<String>),
}

/// How it ended.
enum Outcome {
    /// The finalizer is on none of the PVs any more (or would be on none).
    AllReleased,
    /// Some keep it.
    SomeStay,
    /// The DaemonSet exists, so its PVs keep the finalizer.
    Installed,
}

/// Removes finalizers as the command line says.
///
/// # Errors
/// [`Misuse`] where nothing was changed and the command line or a running provisioner is the reason;
/// else when a request failed. What was done until then stays done.
pub async fn command(
    args: Release,
    environment: Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let scope = Scope::read(&args, environment)?;
    let cluster = Cluster::new(client().await?, Arc::new(Metrics::new()?));
    let mut looks = Looks::new(&cluster, &args, &scope);
    let outcome = loop {
        match looks.look(out).await {
            Ok(Some(outcome)) => break outcome,
            Ok(None) => {}
            Err(error) if is_passing(&error) && Instant::now() < looks.deadline => {
                writeln!(out, "{}; trying again.", chain(error.as_ref()))?;
                // Unseen is not absent.
                looks.absent_since = None;
            }
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    };
    Ok(match outcome {
        Outcome::AllReleased => ExitCode::SUCCESS,
        Outcome::Installed if args.unless_installed => ExitCode::SUCCESS,
        Outcome::SomeStay | Outcome::Installed => ExitCode::FAILURE,
    })
}

impl Scope {
    fn read(args: &Release, environment: Environment) -> Result<Self, Misuse> {
        let known = (!environment.namespace_defaulted).then_some(environment.namespace);
        let namespace = args.namespace.clone().or(known);
        match (args.node.clone(), args.daemonset.clone(), namespace) {
            (Some(node), _, _) => Ok(Self::Node(node)),
            (None, None, namespace) => Ok(Self::All(namespace)),
            (None, Some(name), Some(namespace)) => {
                Ok(Self::Installation(Installation { namespace, name }))
            }
            (None, Some(_), None) => Err(Misuse(
                "name the namespace of the DaemonSet with --namespace".into(),
            )),
        }
    }

    /// Whether a PV is meant. On a node: only if it names no other. (A class with a `selector` may let
    /// other nodes use the data, too; it is still that node's provisioner that made the PV.)
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

/// For `map_err`: what the request was for.
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

/// What one look did about a PV.
enum Fate {
    Released,
    Abandoned,
    Stays(&'static str),
    /// The DaemonSet exists again.
    Installed,
    Failed(Error),
}

/// What the looks so far have found and done.
struct Looks<'a> {
    cluster: &'a Cluster,
    args: &'a Release,
    scope: &'a Scope,
    /// Until when errors that may pass are retried.
    deadline: Instant,
    absent_since: Option<Instant>,
    /// Whether the provisioner is known to be gone.
    is_gone: bool,
    /// What was reported last as being waited for.
    reported: String,
    /// By UID the PVs whose write was not confirmed, with its error.
    unsettled: BTreeMap<String, (PvView, Error)>,
    /// The errors of writes to PVs that are no longer meant.
    failed: Vec<Error>,
    released: usize,
}

impl<'a> Looks<'a> {
    fn new(cluster: &'a Cluster, args: &'a Release, scope: &'a Scope) -> Self {
        let limit = match scope {
            Scope::Installation(_) if !args.dry_run => args.timeout + args.absent_for,
            _ => RETRY_FOR,
        };
        Self {
            cluster,
            args,
            scope,
            deadline: Instant::now() + limit,
            absent_since: None,
            is_gone: false,
            reported: String::new(),
            unsettled: BTreeMap::new(),
            failed: Vec::new(),
            released: 0,
        }
    }

    /// One look; `None` when another is due.
    async fn look(&mut self, out: &mut (dyn Write + Send)) -> Result<Option<Outcome>> {
        if !self.is_gone {
            match self.wait(out).await? {
                State::Gone => {}
                State::Waiting => return Ok(None),
                State::Installed => return Ok(Some(Outcome::Installed)),
            }
            self.is_gone = true;
            self.deadline = Instant::now() + RETRY_FOR;
        }
        let held = self.held(|pv| self.scope.includes(pv)).await?;
        if let (Scope::Node(node), true, 0) = (self.scope, held.is_empty(), self.released)
            && self.unsettled.is_empty()
        {
            tell::no_match(node, &self.held(|_| true).await?, out)?;
            return Ok(Some(Outcome::AllReleased));
        }
        self.settle(&held, out).await?;
        let fates = stream::iter(&held).map(async |pv| (pv, self.release(pv).await));
        let fates: Vec<_> = fates.buffer_unordered(CONCURRENCY).collect().await;
        let (mut stay, mut failed, mut installed) = (Vec::new(), Vec::new(), 0);
        for (pv, fate) in fates {
            match fate {
                Fate::Released => self.released += 1,
                Fate::Abandoned => tell::abandoned(pv, self.args.dry_run, out)?,
                Fate::Stays(why) => stay.push((pv, why)),
                Fate::Installed => installed += 1,
                Fate::Failed(error) if is_passing(&error) && Instant::now() < self.deadline => {
                    self.unsettled.insert(pv.uid.clone(), (pv.clone(), error));
                }
                Fate::Failed(error) => failed.push(error),
            }
        }
        if !self.unsettled.is_empty() && installed == 0 {
            return Ok(None);
        }
        failed.append(&mut self.failed);
        for error in &failed {
            writeln!(out, "FAILED: {}", chain(error.as_ref()))?;
        }
        tell::released(self.released, self.args.dry_run, out)?;
        if !stay.is_empty() {
            stay.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
            tell::unclean(&stay, out)?;
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
                "{count} PersistentVolumes keep the finalizer {FINALIZER}, since the requests for them failed: each has a line with FAILED; fix that, and run this again"
            ),
        }
    }

    /// The PVs with the finalizer, as they are now.
    async fn held(&self, wanted: impl Fn(&PvView) -> bool) -> Result<Vec<PvView>> {
        let is_held = |pv: &PvView| pv.has_finalizer() && wanted(pv);
        let held = self.cluster.pvs_in_pages(ListParams::default(), is_held);
        held.await.map_err(api("listing the PersistentVolumes"))
    }

    /// Finds out what became of unconfirmed writes to PVs that are no longer among those that are held.
    async fn settle(&mut self, held: &[PvView], out: &mut (dyn Write + Send)) -> Result<()> {
        for (uid, (pv, error)) in std::mem::take(&mut self.unsettled) {
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
                tell::abandoned(&pv, false, out)?;
            }
        }
        Ok(())
    }

    /// Removes the finalizer from a PV as it was listed.
    async fn release(&self, pv: &PvView) -> Fate {
        let fate = match judge(pv) {
            Judgement::Free => Fate::Released,
            Judgement::Unclean(_) if self.args.abandon_uncleaned => Fate::Abandoned,
            Judgement::Unclean(why) => return Fate::Stays(why),
        };
        if self.args.dry_run {
            return fate;
        }
        // Node and DaemonSet may have come back since the beginning.
        let is_back = match (self.scope, &fate) {
            (Scope::Node(node), Fate::Abandoned) => {
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
            Ok(true) => return Fate::Installed,
            Err(error) => return Fate::Failed(error),
        }
        let metadata = json!({ "finalizers": without_ours(pv) });
        match self.cluster.patch_pv(&pv.reference(), metadata).await {
            Ok(_) => fate,
            Err(error) => {
                let what = format!("taking the finalizer off {}", tell::data(pv));
                Fate::Failed(api(what)(error))
            }
        }
    }
}

/// A node that is there has a provisioner, which would add the finalizer again; and its data is not
/// lost at all.
async fn confirm_gone(cluster: &Cluster, node: &str) -> Result<()> {
    let found = cluster.nodes_known_as(node).await;
    let found = found.map_err(api(format!("looking whether node {node:?} is gone")))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(anyhow!(Misuse(format!(
        "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; its PersistentVolumes are left alone; delete that Node first if it never comes back",
        found.join(", ")
    ))))
}

#[cfg(test)]
mod tests;
