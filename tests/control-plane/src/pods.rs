//! The kubelet's part: a pod on a node runs once its claims are bound, and goes when it is deleted.
//! How its containers run is up to a [`PodRunner`]; when one is started again is decided here.

mod containers;
mod environment;
mod process;
mod processes;
mod runner;
mod scrub;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) use self::processes::log_file;
use self::{
    containers::Containers,
    processes::Processes,
    runner::{Annotated, PodRunner},
};
pub use self::{
    processes::ProcessOptions,
    runner::{HOLD_TERMINATION, RUN},
};
use crate::{
    clock,
    controllers::{
        Change, Context, ControllerOptions, SyncError,
        object::{Key, Pod},
    },
    meta,
    resource::{NODES, PERSISTENT_VOLUME_CLAIMS, PODS},
    store::{DeleteOptions, Part},
};

/// What the kubelet remembers of the pods that it runs.
#[derive(Debug)]
pub(crate) struct Kubelet {
    pods: HashMap<Key, Containers>,
    annotated: Annotated,
    processes: Processes,
    back_off: Duration,
}

impl Kubelet {
    /// With a channel that tells of pods of which a process has ended.
    pub(crate) fn new(options: &ControllerOptions) -> (Self, UnboundedReceiver<Key>) {
        let (ended, pods_that_ended) = unbounded_channel();
        let kubelet = Self {
            pods: HashMap::new(),
            annotated: Annotated,
            processes: Processes::new(options.processes.clone(), options.host_paths.clone(), ended),
            back_off: options.back_off,
        };
        (kubelet, pods_that_ended)
    }

    fn runner(&mut self, pod: &Pod) -> &mut dyn PodRunner {
        if self.processes.takes(pod) { &mut self.processes } else { &mut self.annotated }
    }

    fn forget(&mut self, pod: &Key) {
        self.pods.remove(pod);
        self.processes.forget(pod);
    }
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    if change.resource == &PODS {
        cx.queues.scheduled.add(Key::of(&change.object));
    } else if change.resource == &PERSISTENT_VOLUME_CLAIMS {
        for pod in cx.cache.users(&Key::of(&change.object)) {
            cx.queues.scheduled.add(pod.key());
        }
    } else if change.resource == &NODES && change.previous.is_none() {
        let name = meta::name(&change.object);
        for pod in cx.cache.pods.values().filter(|pod| pod.node() == name) {
            cx.queues.scheduled.add(pod.key());
        }
    }
}

/// Queues every pod on a node.
pub(crate) fn resync(cx: &mut Context) {
    for pod in cx.cache.pods.values().filter(|pod| !pod.node().is_empty()) {
        cx.queues.scheduled.add(pod.key());
    }
}

/// Brings one pod on its node to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(pod) = cx.cache.pods.get(key).cloned() else {
        cx.kubelet.forget(key);
        return Ok(());
    };
    if pod.node().is_empty() {
        return Ok(());
    }
    if pod.is_terminating() {
        return stop(cx, &pod);
    }
    // Without its node there is no kubelet, and without its volumes a kubelet does not start it.
    if pod.is_finished() || !cx.cache.nodes.contains_key(pod.node()) || !claims_are_bound(cx, &pod)
    {
        return Ok(());
    }
    if let Some(why) = cx.kubelet.processes.refuses(&pod) {
        return fail(cx, (*pod.0).clone(), "Refused", &why);
    }
    let mut containers = match cx.kubelet.pods.remove(key) {
        Some(known) if known.are_of(&pod) => known,
        _ => Containers::of(&pod),
    };
    let before = containers.next_start();
    let back_off = cx.kubelet.back_off;
    let new = containers.run(cx.kubelet.runner(&pod), &pod, back_off, clock::instant());
    // The pod is queued once for this start, however often it is synced until then.
    if let Some(due) = containers.next_start().filter(|due| before != Some(*due)) {
        cx.queues.scheduled.add_at(key.clone(), due);
    }
    cx.kubelet.pods.insert(key.clone(), containers);
    if new != *pod.0 {
        cx.update(&PODS, new, Part::Status)?;
    }
    Ok(())
}

/// Stops a terminating pod, and removes it once none of its processes runs.
fn stop(cx: &mut Context, pod: &Pod) -> Result<(), SyncError> {
    let held = pod.annotation(HOLD_TERMINATION) == Some("true");
    let runner = cx.kubelet.runner(pod);
    if !runner.stop(pod) || held {
        // By then it has had its time, and is killed.
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let due = clock::instant() + Duration::from_secs(grace.unwrap_or_default());
        cx.queues.scheduled.add_at(pod.key(), due);
        return Ok(());
    }
    // The containers have stopped.
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    cx.delete(&PODS, pod, options)
}

/// Ends a pod as a whole.
fn fail(cx: &mut Context, mut pod: Value, reason: &str, message: &str) -> Result<(), SyncError> {
    let status = meta::child_mut(&mut pod, "status");
    for (field, value) in [("phase", "Failed"), ("reason", reason), ("message", message)] {
        status.insert(field.into(), value.into());
    }
    cx.update(&PODS, pod, Part::Status).map(drop)
}

fn claims_are_bound(cx: &Context, pod: &Pod) -> bool {
    let is_bound = |key| cx.cache.claim(&key).is_some_and(|claim| claim.phase() == "Bound");
    pod.claims().all(is_bound)
}
