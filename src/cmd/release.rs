//! `release --finalizers`: lets PersistentVolumes go without the provisioner.
//!
//! Our finalizer keeps a PV until its volume is clean. Whoever uninstalls the provisioner, or has
//! lost a node for good, takes it off with this. Nothing is wiped here, and a PV whose volume still
//! holds a tenant's data is let go only when told to.

mod absence;
mod command;
mod judge;
mod others;
mod patience;
mod tell;

use std::io::{self, Write};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use crate::cluster::{ApiError, Cluster, chain};
use crate::names::FINALIZER;
use crate::plan::verdict::without_ours;
use crate::view::PvView;

use super::run::Misuse;
use absence::Installation;
pub use command::command;
use judge::{Judgement, judge};
use patience::{PAUSE, a_while, patiently};

/// How often a PV is looked at again that somebody else changes at the same time.
const TRIES: u32 = 5;
/// Writes to the API server at a time.
const CONCURRENCY: usize = 8;

/// What to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which PVs.
    pub scope: Scope,
    /// Whether PVs go whose volumes were not cleaned.
    pub abandon_uncleaned: bool,
    /// Whether to change nothing and only say what would be done.
    pub dry_run: bool,
    /// How long to wait until the DaemonSet and its Pods are gone.
    pub timeout: Duration,
    /// How long the DaemonSet must have been absent.
    pub absent_for: Duration,
}

/// Which PVs are let go.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Those of a node that is gone for good.
    Node(String),
    /// All, after the DaemonSet was deleted.
    Installation {
        /// Where the provisioner runs.
        namespace: String,
        /// Its DaemonSet.
        daemon_set: String,
    },
    /// All, when no provisioner runs any more.
    All {
        /// Where to look for provisioners if not everywhere is allowed.
        namespace: Option<String>,
    },
}

/// Why not everything that was asked for could be done.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The node is there, so its provisioner is in charge.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A request failed.
    #[error("{what}: {source}")]
    Api {
        /// What for.
        what: String,
        /// Why.
        source: ApiError,
    },
    /// A right is missing.
    #[error("{what} takes the rights in deploy/uninstall.yaml (docs/install.md): {source}")]
    Denied {
        /// What for.
        what: String,
        /// Which.
        source: ApiError,
    },
    /// The installation is not gone.
    #[error(
        "no finalizer was removed: after {waited:?} this is left of DaemonSet {name}: {left}; if a Pod's node is gone, delete the Pod with --force; then run this again"
    )]
    Remains {
        /// The DaemonSet, with its namespace.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// What is left.
        left: String,
    },
    /// Others were let go.
    #[error(
        "{count} PersistentVolumes keep our finalizer, since the requests for them failed: each has a line with FAILED; mend that, and run this again"
    )]
    Failed {
        /// How many.
        count: usize,
    },
    /// The output is closed.
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
}

impl ReleaseError {
    /// Whether the same may well succeed in a moment.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Api { source, .. } if source.is_passing())
    }
}

/// For `map_err`: what the request was for.
fn api(what: impl Into<String>) -> impl FnOnce(ApiError) -> ReleaseError {
    move |source| {
        let what = what.into();
        match source {
            ApiError::Forbidden { .. } => ReleaseError::Denied { what, source },
            source => ReleaseError::Api { what, source },
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Our finalizer is on none of the PVs any more (or would be on none).
    AllReleased,
    /// Some stay, because their volumes are not clean.
    SomeStay,
    /// The DaemonSet exists, so its PVs keep the finalizer.
    Installed,
}

/// Does it, and tells about it.
///
/// # Errors
/// [`ReleaseError`]; what was done until then stays done, and running it again goes on from there.
pub async fn run(
    cluster: &Cluster,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Outcome, ReleaseError> {
    let abandon = request.abandon_uncleaned;
    match &request.scope {
        Scope::Node(node) => {
            patiently(a_while(), out, async || confirm_gone(cluster, node).await).await?;
        }
        Scope::All { namespace } => {
            others::look(cluster, namespace.as_deref(), abandon, out).await?;
        }
        Scope::Installation {
            namespace,
            daemon_set: name,
        } => {
            let installation = Installation { namespace, name };
            if !is_uninstalled(cluster, &installation, request, out).await? {
                return Ok(Outcome::Installed);
            }
            others::look(cluster, Some(namespace), abandon, out).await?;
        }
    }
    release(cluster, request, out).await
}

/// Whether the installation is gone. A dry run does not wait, and goes on in any case.
async fn is_uninstalled(
    cluster: &Cluster,
    installation: &Installation<'_>,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<bool, ReleaseError> {
    if request.dry_run {
        let look = async || installation.state(cluster).await;
        if patiently(a_while(), out, look).await?.is_some() {
            writeln!(
                out,
                "DaemonSet {installation} exists, and would have to be deleted first."
            )?;
        }
        return Ok(true);
    }
    let is_gone = absence::wait(cluster, installation, request, out).await?;
    if !is_gone {
        writeln!(
            out,
            "DaemonSet {installation} exists: nothing was changed. To uninstall it, delete it and run this again."
        )?;
    }
    Ok(is_gone)
}

/// A node that is there has a provisioner, which would put the finalizer back; and its data is not
/// lost at all.
async fn confirm_gone(cluster: &Cluster, node: &str) -> Result<(), ReleaseError> {
    let found = cluster
        .nodes_known_as(node)
        .await
        .map_err(api(format!("looking whether node {node:?} is gone")))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(Misuse(format!(
        "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; its PersistentVolumes are left alone; delete that Node first if it never comes back",
        found.join(", ")
    ))
    .into())
}

impl Scope {
    /// Whether a PV is meant. On a node: only if it names no other. (A class with a `selector` may let
    /// other nodes use the data, too; it is still that node's provisioner who made the PV.)
    fn includes(&self, pv: &PvView) -> bool {
        match self {
            Self::Installation { .. } | Self::All { .. } => true,
            Self::Node(node) => {
                let mut names = pv.hostname_label.iter().chain(&pv.hostnames).peekable();
                names.peek().is_some() && names.all(|name| name == node)
            }
        }
    }
}

/// The PVs in question, as they are now.
async fn held(cluster: &Cluster, scope: &Scope) -> Result<Vec<PvView>, ReleaseError> {
    let mut held = cluster
        .held_pvs(|pv| scope.includes(pv))
        .await
        .map_err(api("listing the PersistentVolumes"))?;
    held.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(held)
}

/// A PV that is not let go, and why.
struct Unclean {
    pv: PvView,
    why: &'static str,
}

/// What became of one PV.
enum Fate {
    Released,
    Abandoned(Box<PvView>),
    Stays(Box<Unclean>),
    /// The DaemonSet exists again.
    Installed,
}

async fn release(
    cluster: &Cluster,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Outcome, ReleaseError> {
    let list = async || held(cluster, &request.scope).await;
    let pvs = patiently(a_while(), out, list).await?;
    if let Scope::Node(node) = &request.scope
        && pvs.is_empty()
    {
        let everybodys = held(cluster, &Scope::All { namespace: None }).await?;
        tell::no_match(node, &everybodys, out)?;
        return Ok(Outcome::AllReleased);
    }
    let fates = futures::stream::iter(pvs)
        .map(|pv| release_one(cluster, request, pv))
        .buffer_unordered(CONCURRENCY);
    let mut fates = std::pin::pin!(fates);
    let verb = if request.dry_run { "would be" } else { "was" };
    let (mut released, mut stay, mut installed, mut failed) = (0, Vec::new(), 0, 0);
    while let Some(fate) = fates.next().await {
        match fate {
            Ok(Fate::Released) => released += 1,
            // At once: whatever happens next, nobody could find out any more.
            Ok(Fate::Abandoned(pv)) => tell::abandoned(&pv, verb, out)?,
            Ok(Fate::Stays(unclean)) => stay.push(*unclean),
            Ok(Fate::Installed) => installed += 1,
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED: {}", chain(&error))?;
            }
        }
    }
    writeln!(
        out,
        "The finalizer {FINALIZER} {verb} taken off {released} PersistentVolumes with nothing to clean."
    )?;
    if !stay.is_empty() {
        stay.sort_by(|a, b| a.pv.name.cmp(&b.pv.name));
        tell::unclean(&stay, out)?;
    }
    if installed > 0 {
        writeln!(
            out,
            "The DaemonSet exists again: {installed} PersistentVolumes keep the finalizer."
        )?;
    }
    match (failed, installed, stay.is_empty()) {
        (0, 0, true) => Ok(Outcome::AllReleased),
        (0, 0, false) => Ok(Outcome::SomeStay),
        (0, _, _) => Ok(Outcome::Installed),
        (count, _, _) => Err(ReleaseError::Failed { count }),
    }
}

async fn release_one(
    cluster: &Cluster,
    request: &Request,
    mut pv: PvView,
) -> Result<Fate, ReleaseError> {
    let what = format!("taking the finalizer off {}", tell::data(&pv));
    // What a request may have done whose answer was lost.
    let mut perhaps = None;
    let mut last = ApiError::Conflict;
    for _ in 0..TRIES {
        let fate = match judge(&pv) {
            Judgement::Free => Fate::Released,
            Judgement::Unclean(_) if request.abandon_uncleaned => {
                Fate::Abandoned(Box::new(pv.clone()))
            }
            Judgement::Unclean(why) => return Ok(Fate::Stays(Box::new(Unclean { pv, why }))),
        };
        if request.dry_run {
            return Ok(fate);
        }
        // Node and DaemonSet may have come back since the beginning.
        match (&request.scope, &fate) {
            (Scope::Node(node), Fate::Abandoned(_)) => {
                let gone = async || confirm_gone(cluster, node).await;
                patiently(a_while(), &mut io::sink(), gone).await?;
            }
            (
                Scope::Installation {
                    namespace,
                    daemon_set: name,
                },
                _,
            ) => {
                let look = async || Installation { namespace, name }.state(cluster).await;
                if patiently(a_while(), &mut io::sink(), look).await?.is_some() {
                    return Ok(Fate::Installed);
                }
            }
            _ => {}
        }
        let metadata = json!({ "finalizers": without_ours(&pv) });
        match cluster.patch_pv(&pv.reference(), metadata).await {
            Ok(_) => return Ok(fate),
            Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) if error.is_passing() => {
                (last, perhaps) = (error, Some(fate));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(api(what)(error)),
        }
        // What changed may change the judgement, and even whose the PV is.
        match cluster.pv(&pv.name).await {
            Ok(Some(now)) if now.uid == pv.uid && now.has_finalizer() => {
                if !request.scope.includes(&now) {
                    return Err(api(what)(ApiError::Conflict));
                }
                pv = now;
            }
            Ok(_) => return Ok(perhaps.unwrap_or(Fate::Released)),
            // The next write meets a conflict, unless nothing has changed.
            Err(error) if error.is_passing() => {
                last = error;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(api(what)(error)),
        }
    }
    Err(api(what)(last))
}

#[cfg(test)]
mod tests;
