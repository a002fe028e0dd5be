//! The gate of a volume whose PV is gone, and that an operator permits to wipe.

use crate::cleanup::pods::node_pods;
use crate::cleanup::{BoxedVolume, CleanupContext, Failure, Stop};
use crate::cluster::PodView;
use crate::plan::takeover::world_unique;
use crate::plan::{CleanOrder, consents_to_wipe, reasons};
use crate::view::{ClaimRef, NodeView, PvView};

use super::{
    api, changed, ensure_kubelet_unmounted, ensure_no_other_pv, ensure_not_paused,
    ensure_path_has_no_owner, ensure_unused, open, uses_claim,
};

/// Reads everything again: the claim of its mark, the Pods, the kubelet's directory, the disk, PVs of it and the Node.
///
/// # Errors
/// [`Stop`]: retry, drop the cleanup, or report a failure.
pub(in crate::cleanup) async fn gate_orphan(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<BoxedVolume, Stop> {
    let node = context.state.borrow().node.clone();
    let mark = order.volume.candidate.mark.on_disk.valid();
    context.unlink(mark.map(|mark| &mark.token))?;
    for name in order.pv.names_on(&node).into_iter().flatten() {
        let pv = PvView { name, ..order.pv.clone() };
        ensure_kubelet_unmounted(context, &pv, order).await?;
    }
    let pods = node_pods(context).await.map_err(api("listing Pods"))?;
    ensure_claim_of_mark_unused(context, order, &node, &pods).await?;
    ensure_path_has_no_owner(context, order).await?;
    let volume = open(context, order, &pods).await?;
    context.unlink(mark.map(|mark| &mark.token))?;
    ensure_disk_has_no_pv(context, order).await?;
    ensure_no_other_pv(context, &order.pv, &node).await?;
    let node = ensure_not_paused(context, &node).await?;
    let candidate = volume.candidate();
    let state = context.state.borrow().clone();
    let occupied = &state.occupied;
    let (path, class) = (&order.volume.path, &order.volume.class.name);
    let has_two_dirs = occupied.contradictions.fault(class).is_some();
    let is_shared = occupied.duplicate(path, "").is_some()
        || occupied.conflict(&candidate.footprint, path).is_some();
    if state.settings.generation != order.generation || state.is_paused() {
        return changed("the configuration changed meanwhile");
    }
    if has_two_dirs || is_shared || !consents_to_wipe(&node, candidate) {
        return changed("the volume, its mark or the consent changed meanwhile");
    }
    Ok(volume)
}

/// Fails while a Pod uses the claim that the mark of a volume without a PV names, unless that is bound to another volume.
async fn ensure_claim_of_mark_unused(
    context: &CleanupContext,
    order: &CleanOrder,
    node: &NodeView,
    pods: &[PodView],
) -> Result<(), Stop> {
    let mark = order.volume.candidate.mark.on_disk.valid();
    let claim = mark.and_then(|mark| mark.claim.as_deref()?.split_once('/'));
    let Some((namespace, name)) = claim else {
        return Ok(());
    };
    let claim = ClaimRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: None };
    let mut users = pods.iter().filter(|pod| uses_claim(pod, &claim, None, false));
    let Some(user) = users.next() else {
        return Ok(());
    };
    let found = context.cluster.claim(&claim).await;
    let volume = found.map_err(api("reading the claim"))?.and_then(|it| it.volume);
    let names = order.pv.names_on(node);
    if volume.is_some_and(|volume| names.is_none_or(|names| !names.contains(&volume))) {
        return Ok(());
    }
    ensure_unused(users.chain([user]))
}

/// Fails if there is a PV of the disk: it may have been moved here, and its PV has a name of another node.
async fn ensure_disk_has_no_pv(context: &CleanupContext, order: &CleanOrder) -> Result<(), Stop> {
    let Some(identity) = world_unique(&order.volume) else {
        return Ok(());
    };
    let found = context.cluster.pvs_with_identities(&[&identity.hash]).await;
    let found = found.map_err(api("listing the PVs of the disk"))?;
    let Some(other) = found.first() else {
        return Ok(());
    };
    let (path, name) = (&order.volume.path, &other.name);
    let message = format!(
        "{path} is the disk of PV {name}, so nothing was touched; delete that PV if its data is no longer needed"
    );
    Err(Failure::with_reason(reasons::VOLUME_DUPLICATE, message).into())
}
