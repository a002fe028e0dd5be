//! `release --finalizers`: lets PersistentVolumes go without the provisioner.
//!
//! Our finalizer keeps a PV until its volume is clean. Whoever uninstalls the provisioner, or has
//! lost a node for good, takes it off with this. Nothing is wiped here, and a PV whose volume still
//! holds a tenant's data is let go only when told to.

mod judge;
mod stop;

use std::io::{self, Write};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use crate::cluster::{ApiError, Cluster};
use crate::names::FINALIZER;
use crate::plan::verdict::without_ours;
use crate::view::PvView;

use super::run::Misuse;
use judge::{Judgement, judge};

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
    /// How long to wait for the last cleanups, and then for the Pods.
    pub timeout: Duration,
}

/// Which PVs are let go.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Those of a node that is gone for good.
    Node(String),
    /// All, after the DaemonSet of this namespace and name, if one is named.
    All {
        /// Where the provisioner runs.
        namespace: String,
        /// The DaemonSet to delete first.
        daemon_set: Option<String>,
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
    /// The Pods did not end.
    #[error(
        "the DaemonSet {name} is being deleted, but after {waited:?} it still has these Pods: {pods}; no finalizer was taken off; see why they do not end (is their node gone? then delete them with --force), and run this again"
    )]
    PodsStay {
        /// The DaemonSet, with its namespace.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// The Pods, with their nodes.
        pods: String,
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
    move |source| ReleaseError::Api {
        what: what.into(),
        source,
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Our finalizer is on none of the PVs any more (or would be on none).
    AllReleased,
    /// Some stay, because their volumes are not clean.
    SomeStay,
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
    match &request.scope {
        Scope::Node(node) => confirm_gone(cluster, node).await?,
        Scope::All {
            namespace,
            daemon_set: Some(name),
        } => {
            let set = stop::Installation { namespace, name };
            let unclean = stop::stop(cluster, &set, request, out).await?;
            if !unclean.is_empty() {
                tell_unclean(&unclean, out)?;
                writeln!(
                    out,
                    "Nothing was changed: DaemonSet {name} still runs, and goes on trying to clean them."
                )?;
                return Ok(Outcome::SomeStay);
            }
        }
        Scope::All {
            namespace,
            daemon_set: None,
        } => warn_of_running(cluster, namespace, request.abandon_uncleaned, out).await?,
    }
    release(cluster, request, out).await
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
        "node {node:?} is not gone: there is the Node {}, whose name or hostname label it is; nothing was changed; delete that Node first if it never comes back",
        found.join(", ")
    ))
    .into())
}

/// Provisioners that run put the finalizer back. They cannot be told from the Go program's, which do
/// not care for it, so people have to know.
async fn warn_of_running(
    cluster: &Cluster,
    namespace: &str,
    abandon: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), ReleaseError> {
    let what = format!("looking for provisioners that run in namespace {namespace}");
    let pods = cluster.pods_in(namespace, None).await.map_err(api(what))?;
    let running: Vec<_> = pods.into_iter().filter(|pod| pod.knows_its_node).collect();
    if running.is_empty() {
        writeln!(
            out,
            "No provisioner runs in namespace {namespace}. (Elsewhere? Then end it first: it puts the finalizer back.)"
        )?;
        return Ok(());
    }
    let names = stop::names(&running);
    if abandon {
        return Err(Misuse(format!(
            "provisioners run in namespace {namespace}: {names}; uncleaned volumes are not given up while one may be cleaning them; name their DaemonSet with --daemonset"
        ))
        .into());
    }
    writeln!(
        out,
        "WARNING: these look like provisioners: {names}. If they are this program's, they put the finalizer back; name their DaemonSet with --daemonset."
    )?;
    Ok(())
}

impl Scope {
    /// Whether a PV is meant. On a node: only if no other node can have its data.
    fn includes(&self, pv: &PvView) -> bool {
        match self {
            Self::All { .. } => true,
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

fn unclean(pvs: Vec<PvView>) -> Vec<Unclean> {
    pvs.into_iter()
        .filter_map(|pv| match judge(&pv) {
            Judgement::Free => None,
            Judgement::Unclean(why) => Some(Unclean { pv, why }),
        })
        .collect()
}

/// What became of one PV.
enum Fate {
    Released,
    Abandoned(Box<PvView>),
    Stays(Box<Unclean>),
}

async fn release(
    cluster: &Cluster,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<Outcome, ReleaseError> {
    let pvs = held(cluster, &request.scope).await?;
    let fates = futures::stream::iter(pvs)
        .map(|pv| release_one(cluster, request, pv))
        .buffer_unordered(CONCURRENCY);
    let mut fates = std::pin::pin!(fates);
    let (mut released, mut abandoned, mut stay) = (0, Vec::new(), Vec::new());
    while let Some(fate) = fates.next().await {
        match fate? {
            Fate::Released => released += 1,
            Fate::Abandoned(pv) => abandoned.push(pv),
            Fate::Stays(unclean) => stay.push(*unclean),
        }
    }
    abandoned.sort_by(|a, b| a.name.cmp(&b.name));
    stay.sort_by(|a, b| a.pv.name.cmp(&b.pv.name));
    let verb = if request.dry_run { "would be" } else { "was" };
    writeln!(
        out,
        "The finalizer {FINALIZER} {verb} taken off {released} PersistentVolumes with nothing to clean."
    )?;
    for pv in &abandoned {
        writeln!(
            out,
            "ABANDONED: PV {} {verb} let go uncleaned: the data of {} stays in {} on node {}, for whoever gets that disk next.",
            pv.name,
            claim(pv),
            path(pv),
            node(pv)
        )?;
    }
    if stay.is_empty() {
        return Ok(Outcome::AllReleased);
    }
    tell_unclean(&stay, out)?;
    Ok(Outcome::SomeStay)
}

async fn release_one(
    cluster: &Cluster,
    request: &Request,
    mut pv: PvView,
) -> Result<Fate, ReleaseError> {
    let what = |pv: &PvView| format!("taking the finalizer off PV {}", pv.name);
    for _ in 0..TRIES {
        let judgement = judge(&pv);
        if let Judgement::Unclean(why) = judgement
            && !request.abandon_uncleaned
        {
            return Ok(Fate::Stays(Box::new(Unclean { pv, why })));
        }
        let done = match judgement {
            Judgement::Free => Fate::Released,
            Judgement::Unclean(_) => Fate::Abandoned(Box::new(pv.clone())),
        };
        if request.dry_run {
            return Ok(done);
        }
        let metadata = json!({ "finalizers": without_ours(&pv) });
        match cluster.patch_pv(&pv.reference(), metadata).await {
            Ok(_) => return Ok(done),
            Err(ApiError::NotFound) => return Ok(Fate::Released),
            Err(ApiError::Conflict) => {}
            Err(error) => return Err(api(what(&pv))(error)),
        }
        // What changed may change the judgement.
        let now = cluster.pv(&pv.name).await.map_err(api(what(&pv)))?;
        match now.filter(|now| now.uid == pv.uid && now.has_finalizer()) {
            Some(now) => pv = now,
            None => return Ok(Fate::Released),
        }
    }
    Err(api(what(&pv))(ApiError::Conflict))
}

fn tell_unclean(unclean: &[Unclean], out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut rows = vec![["PV", "NODE", "PATH", "CLAIM", "WHY"].map(String::from)];
    rows.extend(unclean.iter().map(|Unclean { pv, why }| {
        let why = (*why).to_owned();
        [pv.name.clone(), node(pv), path(pv), claim(pv), why]
    }));
    writeln!(
        out,
        "\nThese volumes hold data that was not cleaned; our finalizer stays on their PersistentVolumes:\n"
    )?;
    super::table::write(&rows, out)?;
    writeln!(
        out,
        "\nTwo ways out:\n\
         1. Have them cleaned: let the provisioner run (install it again if it is gone) until these PVs are gone or Available;\n   \
            `kubectl describe pv NAME` says what stands in the way.\n\
         2. Give the cleaning up with --abandon-uncleaned (in the chart: uninstall.abandonUncleaned=true): the PVs are let go,\n   \
            and the data stays on the disks, where the next to get them can read it.\n"
    )
}

fn node(pv: &PvView) -> String {
    match &pv.hostname_label {
        Some(label) => label.clone(),
        None => pv.hostnames.join(","),
    }
}

fn path(pv: &PvView) -> String {
    pv.path().map_or_else(|| "-".into(), ToString::to_string)
}

fn claim(pv: &PvView) -> String {
    pv.claim
        .as_ref()
        .map_or_else(|| "-".into(), ToString::to_string)
}

#[cfg(test)]
mod tests;
