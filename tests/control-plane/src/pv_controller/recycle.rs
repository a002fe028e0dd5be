//! Policy Recycle: a pod empties the volume, and then it is Available again.

use std::collections::BTreeSet;

use super::{bind::unbind, reclaim::fail, recycler_pod};
use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Key, Pod, Volume, items, text},
    },
    meta,
    recorder::Severity::Normal,
    resource::{PERSISTENT_VOLUMES, PODS},
    store::DeleteOptions,
};

const FAILED: &str = "VolumeFailedRecycle";

/// A volume that is being emptied.
#[derive(Debug)]
pub(crate) struct Recycling {
    /// As it was at the start: if it changed meanwhile, it is not freed.
    volume: Volume,
    pod_uid: String,
}

/// Whether a pod empties this volume.
pub(super) fn is_under_way(cx: &Context, volume: &Volume) -> bool {
    let mut recycling = cx.reclaims.recycling.values();
    recycling.any(|recycling| recycling.volume.uid() == volume.uid())
}

/// Makes the pod.
pub(super) fn start(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    if let Some(pods) = users(cx, &volume) {
        let message = format!("Volume is used by pods: {pods}");
        cx.tell((&PERSISTENT_VOLUMES, &volume), Normal, FAILED, message);
        return Ok(());
    }
    let Some(pod) = recycler_pod::of(&volume) else {
        let why = "No recycler plugin found for the volume!";
        return fail(cx, volume, FAILED, why);
    };
    let key = Key::new(recycler_pod::NAMESPACE, meta::name(&pod));
    let why = match cx.store.create(&PODS, &key.namespace, pod) {
        Ok(pod) => {
            cx.cache.store(&PODS, &pod);
            let recycling = Recycling { volume, pod_uid: meta::uid(&pod).to_owned() };
            cx.reclaims.recycling.insert(key, recycling);
            return Ok(());
        }
        // What this pod does to the volume is not known, so it is deleted first.
        Err(taken) if taken.is_already_exists() => remove_old(cx, &key),
        Err(refused) => format!("unexpected error creating recycler pod:  {refused}"),
    };
    fail(cx, volume, FAILED, &format!("Recycle failed: {why}"))
}

fn remove_old(cx: &Context, pod: &Key) -> String {
    let options = DeleteOptions::default();
    match cx.store.delete(&PODS, &pod.namespace, &pod.name, &options) {
        Ok(_) => "old recycler pod found, will retry later".to_owned(),
        Err(status) => format!("failed to delete old recycler pod {pod}: {status}"),
    }
}

/// The pods that use the volume, unless there is a claim of the same name again: then it is that
/// claim which they use.
fn users(cx: &Context, volume: &Volume) -> Option<String> {
    let claim = volume.claim_ref()?.key();
    let pods = cx.cache.users(&claim).filter(|pod| !is_terminated(pod));
    let pods: BTreeSet<String> = pods.map(|pod| pod.key().to_string()).collect();
    if pods.is_empty() || cx.cache.claims.contains_key(&claim) {
        return None;
    }
    Some(pods.into_iter().collect::<Vec<_>>().join(","))
}

/// A pod that is being deleted counts as long as one of its containers runs.
fn is_terminated(pod: &Pod) -> bool {
    let runs =
        |list| items(&pod["status"][list]).any(|status| status["state"]["running"].is_object());
    let any_runs = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .any(runs);
    pod.is_finished() || pod.is_terminating() && !any_runs
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    if change.resource == &PODS {
        let pod = Key::of(&change.object);
        if cx.reclaims.recycling.contains_key(&pod) {
            cx.queues.recyclers.add(pod);
        }
    }
}

/// Looks at a pod that empties a volume, and ends the operation when the pod has ended.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(recycling) = cx.reclaims.recycling.get(key) else {
        return Ok(());
    };
    let pod = cx.cache.pods.get(key);
    let pod = pod.filter(|pod| pod.uid() == recycling.pod_uid).cloned();
    let mut outcome = match &pod {
        None => Err("recycler pod was deleted".to_owned()),
        Some(pod) => match (pod.phase(), text(&pod["status"]["message"])) {
            ("Succeeded", _) => Ok(()),
            ("Failed", "") => Err("pod failed, pod.Status.Message unknown".to_owned()),
            ("Failed", message) => Err(message.to_owned()),
            _ => return Ok(()),
        },
    };
    outcome = outcome.map_err(|why| format!("failed to recycle volume: {why}"));
    if let Some(pod) = pod
        && let Err(error) = cx.delete(&PODS, &pod, DeleteOptions::default())
    {
        outcome = outcome.and(Err(format!("failed to delete recycler pod: {error}")));
    }
    // Also after a failure: the next look at the volume starts it again.
    let Some(Recycling { volume, .. }) = cx.reclaims.recycling.remove(key) else {
        return Ok(());
    };
    let name = Key::cluster(volume.name());
    let written = match outcome {
        Ok(()) => {
            let about = (&PERSISTENT_VOLUMES, &*volume);
            cx.tell(about, Normal, "VolumeRecycled", "Volume recycled");
            unbind(cx, &volume)
        }
        Err(why) => fail(cx, volume, FAILED, &format!("Recycle failed: {why}")),
    };
    // It was changed meanwhile, so it is looked at once more.
    written.inspect_err(|_| cx.queues.volumes.add(name))
}
