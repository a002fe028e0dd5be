//! Places pods on nodes that their volumes allow, and chooses the volumes of late-binding claims.
//!
//! Nothing of a decision is remembered: once the volumes of a pod's late-binding claims are
//! reserved (`claimRef` with UID), or asked for (the selected node on the claim), the volume
//! controller and the provisioner complete their binding, and when all are bound the pod is looked
//! at again and finds them bound. A restart in between loses nothing.
//!
//! | question | file |
//! |---|---|
//! | does the node suit the pod | `fit` |
//! | which volumes do its claims get there | `volumes` |
//! | how is a refusal worded | `reasons` |

mod fit;
mod reasons;
#[cfg(test)]
mod tests;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use self::{
    reasons::{Refusals, everywhere},
    volumes::{Claims, Plan, is_gated},
};
use crate::{
    admission::copy_topology,
    controllers::{
        Change, Context, SyncError,
        conditions::set_condition,
        object::{Key, Pod, Volume, set_annotation, text},
    },
    pv_controller::{bind::reserve, pools::Pools, provision::SELECTED_NODE},
    recorder::Severity,
    resource::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES},
    store::{EventKind, Part},
};

/// The name of this scheduler, as pods and events carry it.
const NAME: &str = "default-scheduler";

/// Pods that could not be placed, so that what might help queues them again.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// With the classes of which a new volume might help.
    waiting: BTreeMap<Key, BTreeSet<Arc<str>>>,
    by_class: HashMap<Arc<str>, BTreeSet<Key>>,
}

impl Scheduler {
    fn wait(&mut self, pod: &Key, classes: BTreeSet<Arc<str>>) {
        for class in &classes {
            self.by_class
                .entry(Arc::clone(class))
                .or_default()
                .insert(pod.clone());
        }
        self.waiting.insert(pod.clone(), classes);
    }

    fn forget(&mut self, pod: &Key) {
        for class in self.waiting.remove(pod).unwrap_or_default() {
            if let Some(pods) = self.by_class.get_mut(&class) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.by_class.remove(&class);
                }
            }
        }
    }
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    if change.resource == &PODS {
        let pod = Pod(change.object.clone());
        if change.kind == EventKind::Deleted {
            cx.scheduler.forget(&pod.key());
        } else if pod.node().is_empty() {
            cx.queues.unscheduled.add(pod.key());
        }
        // It may have had a claim to itself.
        if change.kind == EventKind::Deleted || pod.is_finished() {
            for claim in pod.claims() {
                queue_users(cx, &claim);
            }
        }
    } else if change.resource == &PERSISTENT_VOLUME_CLAIMS {
        queue_users(cx, &Key::of(&change.object));
    } else if change.resource == &PERSISTENT_VOLUMES && change.kind != EventKind::Deleted {
        let volume = Volume(change.object.clone());
        if Pools::offers(&volume) {
            for pod in cx
                .scheduler
                .by_class
                .get(volume.class())
                .into_iter()
                .flatten()
            {
                cx.queues.unscheduled.add(pod.clone());
            }
        }
    } else if change.resource == &STORAGE_CLASSES || change.resource == &NODES && is_news(change) {
        resync(cx);
    }
}

/// Whether a node changed in a way that matters here; heartbeats do not.
fn is_news(change: &Change) -> bool {
    change.previous.as_ref().is_none_or(|previous| {
        previous["metadata"]["labels"] != change.object["metadata"]["labels"]
            || previous["spec"] != change.object["spec"]
    })
}

fn queue_users(cx: &mut Context, claim: &Key) {
    for pod in cx.cache.users(claim).filter(|pod| pod.node().is_empty()) {
        cx.queues.unscheduled.add(pod.key());
    }
}

/// Queues every pod that could not be placed.
pub(crate) fn resync(cx: &mut Context) {
    for pod in cx.scheduler.waiting.keys() {
        cx.queues.unscheduled.add(pod.clone());
    }
}

/// What to do about a pod without a node.
enum Verdict {
    /// All its claims are bound, and this node can use their volumes.
    Place(Arc<str>),
    /// This node was found; the claims get their volumes first.
    Prepare(Arc<str>, Plan),
    /// The binding of its volumes is under way.
    Wait,
    /// No node will do now. A new volume of one of the classes might help.
    Unschedulable {
        why: String,
        classes: BTreeSet<Arc<str>>,
    },
}

/// Brings one pod without a node to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    cx.scheduler.forget(key);
    let Some(pod) = cx.cache.pods.get(key).cloned() else {
        return Ok(());
    };
    let ours = matches!(text(&pod["spec"]["schedulerName"]), NAME | "");
    let is_done = !pod.node().is_empty() || pod.is_terminating() || pod.is_finished();
    if is_done || is_gated(&pod) || !ours {
        return Ok(());
    }
    match decide(cx, &pod) {
        Verdict::Wait => Ok(()),
        Verdict::Place(node) => place(cx, &pod, &node),
        Verdict::Prepare(node, plan) => prepare(cx, &node, plan),
        Verdict::Unschedulable { why, classes } => {
            cx.scheduler.wait(key, classes);
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
    if let Some(node) = cx.cache.nodes.get(node) {
        copy_topology(node, &mut new);
    }
    let mut placed = Arc::unwrap_or_clone(cx.update(&PODS, new, Part::Main)?);
    let message = format!("Successfully assigned {} to {node}", pod.key());
    cx.tell_as(NAME, (&PODS, pod), Severity::Normal, "Scheduled", message);
    if set_condition(&mut placed, "PodScheduled", true, "", "") {
        cx.update(&PODS, placed, Part::Status)?;
    }
    Ok(())
}

/// Reserves what is there, and asks for what is not. If one fails the pod is tried again, on a node
/// that those done allow.
fn prepare(cx: &mut Context, node: &str, plan: Plan) -> Result<(), SyncError> {
    for (volume, claim) in plan.reserve {
        reserve(cx, volume, &claim)?;
    }
    for claim in plan.provision {
        let mut new = (*claim.0).clone();
        set_annotation(&mut new, SELECTED_NODE, node);
        cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main)?;
    }
    Ok(())
}

fn decide(cx: &Context, pod: &Pod) -> Verdict {
    let nodes = &cx.cache.nodes;
    let claims = match Claims::of(cx, pod) {
        Ok(claims) => claims,
        Err(why) => {
            return Verdict::Unschedulable {
                why: everywhere(nodes.len(), &why),
                classes: BTreeSet::new(),
            };
        }
    };
    let mut refusals = Refusals::default();
    for (name, node) in nodes {
        if let Some(obstacle) = fit::obstacle(pod, node) {
            refusals.add(&[obstacle]);
        } else if claims.taken {
            refusals.add_preemptable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access \
                 mode already in-use by another pod",
            );
        } else {
            match claims.plan(cx, node) {
                Err(obstacles) => refusals.add(&obstacles),
                Ok(plan) if !plan.reserve.is_empty() || !plan.provision.is_empty() => {
                    return Verdict::Prepare(Arc::clone(name), plan);
                }
                Ok(plan) if plan.in_flight => return Verdict::Wait,
                Ok(_) => return Verdict::Place(Arc::clone(name)),
            }
        }
    }
    Verdict::Unschedulable {
        why: refusals.message(),
        classes: claims.open_classes().map(Into::into).collect(),
    }
}
