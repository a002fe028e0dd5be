//! Places pods on nodes that their volumes allow, and chooses the volumes of late-binding claims.
//!
//! Nothing of a decision is remembered: once the volumes of a pod's late-binding claims are
//! reserved (`claimRef` with UID), the volume controller completes their binding, and when all are
//! bound the pod is looked at again and finds them bound. A restart in between loses nothing.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    controllers::{
        Change, Context, SyncError,
        conditions::set_condition,
        object::{Claim, Key, Node, Pod, Volume, items, text},
        selector,
    },
    pv_controller::{
        BIND_COMPLETED,
        bind::reserve,
        matching::{Pools, reaches},
    },
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
    /// A node was found; these volumes go to these claims first.
    Reserve(Vec<(Volume, Claim)>),
    /// Its volumes are reserved, and their binding is under way.
    Wait,
    /// No node will do now. A new volume of one of the classes might help.
    Unschedulable {
        why: String,
        classes: BTreeSet<Arc<str>>,
    },
}

impl Verdict {
    fn unschedulable(why: impl Into<String>) -> Self {
        Self::Unschedulable {
            why: why.into(),
            classes: BTreeSet::new(),
        }
    }
}

/// Brings one pod without a node to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    cx.scheduler.forget(key);
    let Some(pod) = cx.cache.pods.get(key).cloned() else {
        return Ok(());
    };
    let held_back = items(&pod["spec"]["schedulingGates"]).next().is_some();
    let ours = matches!(text(&pod["spec"]["schedulerName"]), NAME | "");
    if !pod.node().is_empty() || pod.is_terminating() || pod.is_finished() || held_back || !ours {
        return Ok(());
    }
    match decide(cx, &pod) {
        Verdict::Wait => Ok(()),
        Verdict::Place(node) => place(cx, &pod, &node),
        Verdict::Reserve(pairs) => {
            // If one fails the pod is tried again, on a node that the reserved ones allow.
            pairs
                .into_iter()
                .try_for_each(|(volume, claim)| reserve(cx, volume, &claim).map(drop))
        }
        Verdict::Unschedulable { why, classes } => {
            cx.scheduler.wait(key, classes);
            let mut new = (*pod.0).clone();
            if set_condition(&mut new, "PodScheduled", false, "Unschedulable", &why) {
                cx.update(&PODS, new, Part::Status)?;
            }
            let about = (&PODS, &*pod);
            let reason = "FailedScheduling";
            cx.recorder
                .record(&cx.store, NAME, about, Severity::Warning, reason, why);
            Ok(())
        }
    }
}

fn place(cx: &mut Context, pod: &Pod, node: &str) -> Result<(), SyncError> {
    let mut new = (*pod.0).clone();
    new["spec"]["nodeName"] = node.into();
    let mut placed = Arc::unwrap_or_clone(cx.update(&PODS, new, Part::Main)?);
    let message = format!("Successfully assigned {} to {node}", pod.key());
    cx.recorder.record(
        &cx.store,
        NAME,
        (&PODS, pod),
        Severity::Normal,
        "Scheduled",
        message,
    );
    if set_condition(&mut placed, "PodScheduled", true, "", "") {
        cx.update(&PODS, placed, Part::Status)?;
    }
    Ok(())
}

/// The claims of a pod, sorted by what they ask of the scheduler.
#[derive(Default)]
struct Claims {
    /// Volumes that are bound to a claim, or reserved for one: the node must reach them.
    fixed: Vec<Volume>,
    /// Whether some of them are only reserved yet.
    in_flight: bool,
    /// Late-binding claims that need a volume, the smallest request first.
    open: Vec<Claim>,
}

fn decide(cx: &Context, pod: &Pod) -> Verdict {
    let claims = match sort_claims(cx, pod) {
        Ok(claims) => claims,
        Err(why) => return Verdict::unschedulable(why),
    };
    let mut obstacles: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, node) in &cx.cache.nodes {
        let chosen = obstacle(pod, node, &claims.fixed).map_or_else(
            || {
                choose(cx, node, &claims.open)
                    .ok_or("node(s) didn't find available persistent volumes to bind")
            },
            Err,
        );
        match chosen {
            Ok(pairs) if !pairs.is_empty() => return Verdict::Reserve(pairs),
            Ok(_) if claims.in_flight => return Verdict::Wait,
            Ok(_) => return Verdict::Place(Arc::clone(name)),
            Err(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
        }
    }
    if obstacles.is_empty() {
        return Verdict::unschedulable("no nodes available to schedule pods");
    }
    let reasons: Vec<_> = obstacles
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    let nodes = cx.cache.nodes.len();
    let why = format!("0/{nodes} nodes are available: {}.", reasons.join(", "));
    Verdict::Unschedulable {
        why,
        classes: claims.open.iter().map(|c| c.class().into()).collect(),
    }
}

fn sort_claims(cx: &Context, pod: &Pod) -> Result<Claims, String> {
    let mut claims = Claims::default();
    for key in pod.claims().collect::<BTreeSet<_>>() {
        let name = &key.name;
        let Some(claim) = cx.cache.claims.get(&key) else {
            return Err(format!("persistentvolumeclaim {name:?} not found"));
        };
        if claim.is_terminating() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        let volume = claim.volume_name();
        if claim.phase() == "Lost" {
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        let others =
            |user: &Pod| user.uid() != pod.uid() && !user.node().is_empty() && !user.is_finished();
        if claim.access_modes().is_single_pod() && cx.cache.users(&key).any(others) {
            return Err(
                "node has pod using PersistentVolumeClaim with the same name and \
                        ReadWriteOncePod access mode"
                    .to_owned(),
            );
        }
        if !volume.is_empty() && claim.annotation(BIND_COMPLETED).is_some() {
            let Some(volume) = cx.cache.volumes.get(volume) else {
                return Err(format!("persistentvolume {volume:?} not found"));
            };
            claims.in_flight |= claim.phase() != "Bound";
            claims.fixed.push(volume.clone());
        } else if !volume.is_empty() || !cx.cache.binds_late(claim) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        } else if let Some(reserved) = reserved_for(cx, claim) {
            claims.in_flight = true;
            claims.fixed.push(reserved.clone());
        } else {
            claims.open.push(claim.clone());
        }
    }
    claims.open.sort_by_key(Claim::request);
    Ok(claims)
}

/// The volume that is reserved for a claim which does not name it yet.
fn reserved_for<'a>(cx: &'a Context, claim: &Claim) -> Option<&'a Volume> {
    let mut volumes = cx.cache.volumes_of(&claim.key());
    volumes.find(|volume| {
        volume
            .claim_ref()
            .is_some_and(|reference| reference.names(claim))
            && crate::pv_controller::matching::reserved_fits(volume, claim)
    })
}

/// A volume for every open claim on this node, or none at all.
fn choose(cx: &Context, node: &Node, open: &[Claim]) -> Option<Vec<(Volume, Claim)>> {
    let mut taken = HashSet::new();
    open.iter()
        .map(|claim| {
            let volume = cx
                .cache
                .pools
                .smallest_on(&cx.cache.volumes, claim, node, &taken)?;
            taken.insert(volume.name().into());
            Some((volume, claim.clone()))
        })
        .collect()
}

/// Why the pod cannot run on the node, whatever its open claims.
fn obstacle(pod: &Pod, node: &Node, volumes: &[Volume]) -> Option<&'static str> {
    let tolerates = |taint: &Value| items(&pod["spec"]["tolerations"]).any(|t| tolerates(t, taint));
    let cordoned =
        serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node["spec"]["unschedulable"] == true && !tolerates(&cordoned) {
        return Some("node(s) were unschedulable");
    }
    let repels = |taint: &Value| taint["effect"] != "PreferNoSchedule" && !tolerates(taint);
    if items(&node["spec"]["taints"]).any(repels) {
        return Some("node(s) had untolerated taint(s)");
    }
    let labels = &node["metadata"]["labels"];
    let mut wanted = pod["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten();
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if wanted.any(|(key, value)| labels[key] != *value)
        || required.is_object() && !selector::selects_node(required, node)
    {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    let unreachable = volumes.iter().any(|volume| !reaches(volume, node));
    unreachable.then_some("node(s) didn't match PersistentVolume's node affinity")
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let any_effect = text(&toleration["effect"]).is_empty();
    let key = text(&toleration["key"]);
    let exists = toleration["operator"] == "Exists";
    (any_effect || toleration["effect"] == taint["effect"])
        && (key.is_empty() && exists || key == text(&taint["key"]))
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
}
