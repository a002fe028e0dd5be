//! The gate decides whether a volume may be cleaned, on state that it reads right before the cleanup.
//!
//! It returns the volume open and locked. The later steps use these descriptors and never resolve the
//! path again.

mod orphan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;

use crate::cluster::{ApiError, ClaimView, PodView, REMEDY};
use crate::inventory::{Candidate, Volume};
use crate::plan::verdict::{Due, Permission, due, may_clean};
use crate::plan::{CleanOrder, PvLocation, consents_to_forget, reasons};
use crate::retry;
use crate::types::VolumeMode;
use crate::view::{ClaimRef, NodeView, PvView};
use crate::wipe::method::Method;

use super::blocking::{DISK_TIMEOUT, within};
use super::pods::{ensure_no_host_path, node_pods, paths_of, seen};
use super::{BoxedVolume, CleanupContext, Failure, PassFacts, Stop, mark, path_owner};

pub(super) use orphan::gate_orphan;

/// Reads everything again: the PV, its claim, the Pods, the kubelet's directory, the disk and the Node.
///
/// # Errors
/// [`Stop`]: retry, drop the cleanup, or report a failure.
pub(super) async fn gate(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<(PvView, Permission, BoxedVolume), Stop> {
    let cluster = &context.cluster;
    let pv = fresh_pv(context, order).await?;
    // Before the kubelet's mounts are read: none begins after that.
    context.unlink(pv.offer.as_ref())?;
    let sees_pods = ensure_kubelet_unmounted(context, &pv, order).await?;
    // Pods before the claim: the Pod of a successor claim must not be seen without that claim.
    let node = context.state.borrow().node.clone();
    let of_node = node_pods(context).await.map_err(api("listing Pods"))?;
    let mut pods = of_node.clone();
    if let Some(claim) = &pv.claim {
        // Other nodes reach the volumes of a class with a selector.
        if !order.volume.class.selector.is_empty() {
            let (namespace, all) = (Some(&*claim.namespace), ListParams::default());
            let all = seen(cluster.pods(namespace, all, |_| true).await);
            pods.extend(all.map_err(api("listing Pods"))?);
        }
        let successor = claim_is_gone(context, claim, &pv.name).await?;
        let uses = |pod: &&PodView| uses_claim(pod, claim, successor.as_ref(), sees_pods);
        ensure_unused(pods.iter().filter(uses))?;
    }
    ensure_path_has_no_owner(context, order).await?;
    let volume = open(context, order, &of_node).await?;
    // Links are made under the lock. One that was made before it was locked may have been used.
    if context.unlink(pv.offer.as_ref())? {
        return changed("its link was made meanwhile");
    }
    ensure_no_other_pv(context, &pv, &node).await?;
    ensure_not_paused(context, &node).await?;
    let permission = judge(context, order, &pv, volume.candidate())?;
    if !permission.consent_used {
        mark::judge(context, &pv, volume.candidate())?;
    }
    Ok((pv, permission, volume))
}

/// Decides whether the device or filesystem at the path is the volume and may be cleaned.
fn judge(
    context: &CleanupContext,
    order: &CleanOrder,
    pv: &PvView,
    candidate: &Candidate,
) -> Result<Permission, Stop> {
    let state = context.state.borrow().clone();
    // A reload may have changed the classes. After this check, the cleanup keeps its configuration.
    if state.settings.generation != order.generation {
        return changed("the configuration changed meanwhile");
    }
    let (class, entry) = (&order.volume.class, &order.volume.entry);
    let volume = Arc::new(Volume::new(class, entry, candidate.clone()));
    let location = PvLocation::Volume(&volume);
    may_clean(pv, &state.settings, &state.node, &location, &state.occupied)
        .map_err(|refusal| Failure::with_reason(refusal.reason, refusal.message).into())
}

async fn fresh_pv(context: &CleanupContext, order: &CleanOrder) -> Result<PvView, Stop> {
    let found = context.cluster.pv(&order.pv.name).await.map_err(api("reading the PV"))?;
    let Some(pv) = found.filter(|pv| pv.uid == order.pv.uid) else {
        return changed("the PV is gone");
    };
    changed(if pv.tenancy() != order.pv.tenancy() {
        "the PV was bound to another claim meanwhile"
    } else if due(&pv) != Due::Yes || consents_to_forget(&pv) {
        "the PV is no longer to be cleaned"
    } else if pv.path() != Some(&order.volume.path) || pv.class != order.volume.class.name {
        "the PV was changed meanwhile"
    } else if pv.installation != order.pv.installation {
        "the PV was taken over meanwhile"
    } else if context.state.borrow().is_paused() || pv.paused {
        "cleaning was paused meanwhile"
    } else {
        return Ok(pv);
    })
}

/// Reads the Node again: without permission to watch it, the main loop sees a pause late.
async fn ensure_not_paused(context: &CleanupContext, known: &NodeView) -> Result<NodeView, Stop> {
    let node = match context.cluster.node(&known.name).await {
        Err(ApiError::NotFound) => return changed("our Node is gone"),
        node => node.map_err(api("reading our Node"))?,
    };
    let node = NodeView::from_metadata(&node).map_err(failed)?;
    match node {
        node if node.uid != known.uid => changed("our Node was registered again"),
        node if node.paused => changed("cleaning was paused meanwhile"),
        node => Ok(node),
    }
}

/// Fails if another PV of this Node has the volume's path. It reads the names that a provisioner gives: the watch does not
/// show a PV that was created before the Node's hostname label changed.
async fn ensure_no_other_pv(
    context: &CleanupContext,
    pv: &PvView,
    node: &NodeView,
) -> Result<(), Stop> {
    // The third name is that of its own offer.
    let others = if pv.name.is_empty() { 3 } else { 2 };
    let names = pv.names_on(node).into_iter().flatten().take(others);
    for name in names.filter(|name| *name != pv.name) {
        let found = context.cluster.pv(&name).await.map_err(api("reading the PV"))?;
        if let (Some(other), Some(path)) = (found, pv.path())
            && other.path() == Some(path)
            && other.is_local_to(node)
        {
            let message = format!(
                "PV {name} for hostname {:?} names the same path; cleaning {path} would destroy its data, so nothing was touched; delete the wrong one of the two",
                other.hostnames.first().map_or("", String::as_str)
            );
            return Err(Failure::with_reason(reasons::VOLUME_DUPLICATE, message).into());
        }
    }
    Ok(())
}

/// Fails if another PV owns the volume's storage by a path that leads there. It precedes the exclusive open, which could
/// fail that PV's mount.
async fn ensure_path_has_no_owner(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<(), Stop> {
    let (path, footprint) = (&order.volume.path, &order.volume.candidate.footprint);
    let facts = PassFacts::new(context.state.borrow().settings.config.clone());
    let uid = &order.pv.uid;
    let Some(owner) = path_owner(context, path, footprint, uid, &facts).await? else {
        return Ok(());
    };
    let message = format!(
        "{owner}; cleaning {path} would destroy its data, so nothing was touched; delete the wrong one of the two"
    );
    Err(Failure::with_reason(reasons::VOLUME_DUPLICATE, message).into())
}

/// Fails while the claim of a released PV exists, or another one of its name is bound to the PV: its `claimRef` may have
/// been edited. Returns a new claim of the same name for another volume.
async fn claim_is_gone(
    context: &CleanupContext,
    claim: &ClaimRef,
    pv: &str,
) -> Result<Option<ClaimView>, Stop> {
    let found = match context.cluster.claim(claim).await {
        // Older installations lack the permission. It is reported as missing (see `Permissions`), and this
        // check, one of several, is skipped.
        Err(ApiError::Forbidden { .. }) => return Ok(None),
        found => found.map_err(api("reading the claim"))?,
    };
    match found {
        Some(found) if claim.uid.as_ref().is_none_or(|uid| *uid == found.uid) => {
            in_use(format!("its claim {claim} still exists"), retry::LONG_USE)
        }
        Some(found) if found.is_bound && found.volume.as_deref() == Some(pv) => in_use(
            format!(
                "claim {claim} is bound to it, but spec.claimRef names another UID than {}; correct it or delete the claim",
                found.uid
            ),
            Duration::ZERO,
        ),
        found => Ok(found.filter(|it| it.volume.as_deref() != Some(pv))),
    }
}

/// Whether a running Pod uses the claim. A Pod that started after a new claim of the same name was created uses the
/// new claim. The start is of the node's clock, so it counts only if the kubelet's mounts are seen too.
fn uses_claim(
    pod: &PodView,
    claim: &ClaimRef,
    successor: Option<&ClaimView>,
    kubelet_is_seen: bool,
) -> bool {
    let begun = if kubelet_is_seen { pod.started } else { pod.created };
    // API times are whole seconds, and a claim and its Pod are often created in the same second. Usually, the old claim
    // stays as long as a Pod uses it.
    let uses_successor = matches!((begun, successor.and_then(|claim| claim.created)), (Some(begun), Some(created))
        if begun >= created);
    let names_it = pod.namespace == claim.namespace && pod.claims.contains(&claim.name);
    // Of a generic ephemeral volume, the Pod is created first. Its first claim may have been deleted by force.
    let is_its_own =
        kubelet_is_seen && successor.is_some_and(|it| it.of_pod.as_ref() == Some(&pod.uid));
    !pod.terminal && names_it && !uses_successor && !is_its_own
}

fn ensure_unused<'a>(users: impl Iterator<Item = &'a PodView>) -> Result<(), Stop> {
    let names: BTreeSet<_> = users.map(|pod| pod.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = Vec::from_iter(names).join(", ");
    in_use(format!("Volume is used by pods: {names}"), Duration::ZERO)
}

/// Fails until the kubelet has unmounted the volume. The containers of a force-deleted Pod run until the
/// kubelet stops them, although the Pod object is gone.
///
/// A visible mount always counts. No visible mount counts only where all mounts are visible: not those of other nodes,
/// which reach a class with a selector. Elsewhere the quiet period must pass since this process first saw that the PV is
/// due: times in objects are of other clocks. Returns whether the node's pods are visible.
async fn ensure_kubelet_unmounted(
    context: &CleanupContext,
    pv: &PvView,
    order: &CleanOrder,
) -> Result<bool, Stop> {
    let what = "the kubelet's directory";
    let uses = within(DISK_TIMEOUT, what, context.host.kubelet_uses(pv)).await?;
    if let Some(path) = uses.paths.first() {
        let by = format!("the kubelet still has it: {}", path.display());
        return in_use(by, retry::LONG_USE);
    }
    let quiet = context.quiet_period;
    let is_local = order.volume.class.selector.is_empty();
    let sees_all = uses.would_be_seen && is_local;
    if sees_all || context.table.known_for(&order.pv.tenancy()) >= quiet {
        return Ok(uses.sees_pods && is_local);
    }
    let unseen = if is_local { what } else { "the kubelet of another node" };
    let by = format!("{unseen} is not visible here, so {quiet:?} must pass after the release");
    in_use(by, retry::LONG_USE)
}

/// Opens the volume, unless one of the Pods of the node has it by hostPath.
async fn open(
    context: &CleanupContext,
    order: &CleanOrder,
    pods: &[PodView],
) -> Result<BoxedVolume, Stop> {
    if order.volume.candidate.kind == VolumeMode::Block && order.method == Method::DeleteContents {
        return Err(failed(format!(
            "{} does not clean devices; correct the blockCleanerCommand of class {:?}",
            order.method, order.volume.class.name
        )));
    }
    let facts = PassFacts::new(context.state.borrow().settings.config.clone());
    let opened = within(DISK_TIMEOUT, "the disk", context.host.open(order, &facts)).await?;
    let paths = context.host.follow(paths_of(pods), &facts).await?;
    let footprint = &opened.candidate().footprint;
    ensure_no_host_path(pods, &paths, &order.volume.path, footprint)?;
    Ok(opened)
}

/// What follows from the error of a request.
pub(super) fn api(what: &'static str) -> impl Fn(ApiError) -> Stop {
    move |error| {
        let by = format!("{what} failed: {error}");
        match error {
            ApiError::Conflict | ApiError::NotFound => Stop::Changed(by),
            // Transient errors: checking again costs little.
            ApiError::Failed(_) | ApiError::Disk(_) => {
                Stop::InUse { by, notify_after: retry::LONG_USE }
            }
            ApiError::Forbidden { .. } => {
                let text = format!("{by}; {REMEDY}, then cleaning starts automatically");
                Failure::with_reason(reasons::PERMISSION_MISSING, text).into()
            }
            ApiError::Invalid(_) | ApiError::Bug(_) => failed(by),
        }
    }
}

/// The same for a write, whose failure is reported at once.
pub(super) fn write(what: &'static str) -> impl Fn(ApiError) -> Stop {
    move |error| match error {
        ApiError::Failed(_) | ApiError::Disk(_) => failed(format!("{what} failed: {error}")),
        error => api(what)(error),
    }
}

fn changed<T>(why: &str) -> Result<T, Stop> {
    Err(Stop::Changed(why.to_owned()))
}

fn in_use<T>(by: String, notify_after: Duration) -> Result<T, Stop> {
    Err(Stop::InUse { by, notify_after })
}

fn failed(message: String) -> Stop {
    Failure::new(message).into()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn pod_that_owns_the_next_claim_may_still_use_the_first_one_where_the_kubelet_is_not_seen() {
        let at = |seconds| Timestamp::from_second(seconds).ok();
        let claim = ClaimRef {
            namespace: "default".into(),
            name: "web-data".into(),
            uid: Some("first".into()),
        };
        let pod = PodView {
            uid: "pod".into(),
            name: "default/web".into(),
            namespace: "default".into(),
            node: "node".into(),
            terminal: false,
            created: at(1),
            started: at(1),
            claims: vec![claim.name.clone()],
            host_paths: Vec::new(),
            daemon_set: None,
            job_pv_uid: None,
            is_provisioner: false,
        };
        let next = |of_pod: &str, created| ClaimView {
            uid: "next".into(),
            resource_version: "1".into(),
            created: at(created),
            volume: None,
            is_bound: false,
            deleting: false,
            of_pod: Some(of_pod.into()),
            phase: None,
        };
        for (next, is_seen, expected) in [
            (None, true, true),
            (Some(next("other", 2)), true, true),
            (Some(next("pod", 2)), true, false),
            (Some(next("pod", 2)), false, true),
            (Some(next("other", 1)), false, false),
        ] {
            let uses = uses_claim(&pod, &claim, next.as_ref(), is_seen);
            assert_eq!(uses, expected, "{next:?} {is_seen}");
        }
    }
}
