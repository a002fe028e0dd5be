//! Places pods on nodes that their volumes allow, and chooses the volumes of late-binding claims.
//!
//! Nothing of a decision is remembered: once the volumes of a pod's late-binding claims are
//! reserved (`claimRef` with UID), the volume controller completes their binding, and when all are
//! bound the pod is looked at again and finds them bound. A restart in between loses nothing.

mod fit;
#[cfg(test)]
mod tests;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::volumes::Claims;
use crate::{
    controllers::{
        Change, Context, SyncError,
        conditions::set_condition,
        object::{Claim, Key, Pod, Volume, text},
    },
    pv_controller::{bind::reserve, pools::Pools},
    recorder::Severity,
    resource::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES},
    store::{EventKind, Part},
};

/// The name of this scheduler, as pods and events carry it.
const NAME: &str = "default-scheduler";

/// Pods that could not be placed, so that what might help queues them again.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    waiting: BTreeSet<Key>,
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let is_gone = change.kind == EventKind::Deleted;
    if change.resource == &PODS {
        let pod = Pod(change.object.clone());
        if is_gone {
            cx.scheduler.waiting.remove(&pod.key());
        } else if pod.node().is_empty() {
            cx.queues.unscheduled.add(pod.key());
        }
        if is_gone || pod.is_finished() {
            // Another pod may wait for a ReadWriteOncePod claim of this one.
            pod.claims().for_each(|claim| queue_users(cx, &claim));
        }
    } else if change.resource == &PERSISTENT_VOLUME_CLAIMS {
        queue_users(cx, &Key::of(&change.object));
    } else if change.resource == &PERSISTENT_VOLUMES {
        if !is_gone && Pools::offers(&Volume(change.object.clone())) {
            resync(cx);
        }
    } else if change.resource == &STORAGE_CLASSES || change.resource == &NODES && is_news(change) {
        resync(cx);
    }
}

/// Queues the pods without a node that mount this claim.
fn queue_users(cx: &mut Context, claim: &Key) {
    for pod in cx.cache.users(claim).filter(|pod| pod.node().is_empty()) {
        cx.queues.unscheduled.add(pod.key());
    }
}

/// Whether a node changed in a way that matters here; heartbeats do not.
fn is_news(change: &Change) -> bool {
    change.previous.as_ref().is_none_or(|previous| {
        previous["metadata"]["labels"] != change.object["metadata"]["labels"]
            || previous["spec"] != change.object["spec"]
    })
}

/// Queues every pod that could not be placed.
pub(crate) fn resync(cx: &mut Context) {
    for pod in &cx.scheduler.waiting {
        cx.queues.unscheduled.add(pod.clone());
    }
}

/// What to do about a pod without a node.
enum Verdict {
    /// All its claims are bound, and this node can use their volumes.
    Place(Arc<str>),
    /// A node was found; the claims get their volumes first.
    Reserve(Vec<(Volume, Claim)>),
    /// The binding of its volumes is under way.
    Wait,
    /// No node will do now.
    Unschedulable(String),
}

/// Brings one pod without a node to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    cx.scheduler.waiting.remove(key);
    let Some(pod) = cx.cache.pods.get(key).cloned() else {
        return Ok(());
    };
    let ours = matches!(text(&pod["spec"]["schedulerName"]), NAME | "");
    if !ours || !pod.node().is_empty() || pod.is_terminating() || pod.is_finished() {
        return Ok(());
    }
    match decide(cx, &pod) {
        Verdict::Wait => Ok(()),
        Verdict::Place(node) => place(cx, &pod, &node),
        // If one fails the pod is tried again, on a node that those done allow.
        Verdict::Reserve(pairs) => {
            pairs.into_iter().try_for_each(|(volume, claim)| reserve(cx, volume, &claim).map(drop))
        }
        Verdict::Unschedulable(why) => {
            cx.scheduler.waiting.insert(key.clone());
            let mut new = (*pod.0).clone();
            if set_condition(&mut new, "PodScheduled", false, "Unschedulable", &why) {
                cx.update(&PODS, new, Part::Status)?;
            }
            let about = (&PODS, &*pod);
            cx.tell_as(NAME, about, Severity::Warning, "FailedScheduling", why);
            Ok(())
        }
    }
}

fn place(cx: &mut Context, pod: &Pod, node: &str) -> Result<(), SyncError> {
    let mut new = (*pod.0).clone();
    new["spec"]["nodeName"] = node.into();
    let mut placed = Arc::unwrap_or_clone(cx.update(&PODS, new, Part::Main)?);
    let message = format!("Successfully assigned {} to {node}", pod.key());
    cx.tell_as(NAME, (&PODS, pod), Severity::Normal, "Scheduled", message);
    if set_condition(&mut placed, "PodScheduled", true, "", "") {
        cx.update(&PODS, placed, Part::Status)?;
    }
    Ok(())
}

fn decide(cx: &Context, pod: &Pod) -> Verdict {
    let nodes = &cx.cache.nodes;
    let refused = |why: &str| {
        Verdict::Unschedulable(format!("0/{} nodes are available: {why}.", nodes.len()))
    };
    let claims = match Claims::of(cx, pod) {
        Ok(claims) => claims,
        Err(why) => return refused(&why),
    };
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.values() {
        let plan = match fit::mismatch(node, pod) {
            None => claims.plan(cx, node),
            Some(cause) => Err(vec![cause]),
        };
        match plan {
            Err(of_node) => {
                for cause in of_node {
                    *causes.entry(cause).or_default() += 1;
                }
            }
            Ok(plan) if !plan.reserve.is_empty() => return Verdict::Reserve(plan.reserve),
            Ok(plan) if plan.in_flight => return Verdict::Wait,
            Ok(_) => return Verdict::Place(node.name().into()),
        }
    }
    let causes = causes.into_iter().map(|(cause, n)| format!("{n} {cause}"));
    refused(&causes.collect::<Vec<_>>().join(", "))
}
