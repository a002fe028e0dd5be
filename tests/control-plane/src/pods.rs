//! The kubelet's part: a pod on a node runs once its claims are bound, and goes when it is deleted.
//! How it runs is up to a [`PodRunner`].

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Key, Pod, items, set_condition},
    },
    meta,
    resource::{NODES, PERSISTENT_VOLUME_CLAIMS, PODS},
    store::{DeleteOptions, Part},
};

/// Annotation that tells how a pod runs: `succeed`, `fail` or `hold` (it stays Pending until the
/// annotation changes); without it the pod starts and runs on.
pub const RUN: &str = "control-plane/run";
/// Annotation that, with the value `true`, keeps a deleted pod terminating until it is removed.
pub const HOLD_TERMINATION: &str = "control-plane/hold-termination";

/// Where the containers of a pod have got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// They have not started.
    Waiting,
    /// They run.
    Running,
    /// They have all exited with 0.
    Succeeded,
    /// One has exited with something else.
    Failed,
}

/// Runs pods. It is asked whenever something about the pod has changed.
pub(crate) trait PodRunner: Send {
    /// Starts the pod if it does not run yet, and says where it has got to.
    fn run(&mut self, pod: &Pod) -> Progress;

    /// Stops the pod. `true` once nothing of it runs any more.
    fn stop(&mut self, pod: &Pod) -> bool;
}

/// Runs nothing: a pod does what its annotations say ([`RUN`], [`HOLD_TERMINATION`]).
#[derive(Debug)]
pub(crate) struct AsTold;

impl PodRunner for AsTold {
    fn run(&mut self, pod: &Pod) -> Progress {
        match pod.annotation(RUN) {
            Some("hold") => Progress::Waiting,
            Some("succeed") => Progress::Succeeded,
            Some("fail") => Progress::Failed,
            _ => Progress::Running,
        }
    }

    fn stop(&mut self, pod: &Pod) -> bool {
        pod.annotation(HOLD_TERMINATION) != Some("true")
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
        return Ok(());
    };
    if pod.node().is_empty() {
        return Ok(());
    }
    if pod.is_terminating() {
        return if cx.runner.stop(&pod) {
            remove(cx, &pod)
        } else {
            Ok(())
        };
    }
    // Without its node there is no kubelet, and without its volumes a kubelet does not start it.
    if pod.is_finished() || !cx.cache.nodes.contains_key(pod.node()) || !claims_are_bound(cx, &pod)
    {
        return Ok(());
    }
    let progress = cx.runner.run(&pod);
    let mut new = (*pod.0).clone();
    report(&mut new, progress);
    if new != *pod.0 {
        cx.update(&PODS, new, Part::Status)?;
    }
    Ok(())
}

fn claims_are_bound(cx: &Context, pod: &Pod) -> bool {
    pod.claims().all(|key| {
        cx.cache
            .claims
            .get(&key)
            .is_some_and(|claim| claim.phase() == "Bound")
    })
}

/// What a kubelet does when the containers of a terminating pod have stopped.
fn remove(cx: &mut Context, pod: &Pod) -> Result<(), SyncError> {
    let options = DeleteOptions {
        uid: Some(pod.uid().to_owned()),
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    match cx
        .store
        .delete(&PODS, pod.namespace(), pod.name(), &options)
    {
        Err(source) if !source.is_not_found() => Err(SyncError::Write {
            kind: PODS.kind,
            key: pod.key(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Writes into the status what a kubelet would.
fn report(pod: &mut Value, progress: Progress) {
    let (phase, ready, reason) = match progress {
        Progress::Waiting => return,
        Progress::Running => ("Running", true, ""),
        Progress::Succeeded => ("Succeeded", false, "PodCompleted"),
        Progress::Failed => ("Failed", false, ""),
    };
    if pod["status"]["phase"] == phase {
        return;
    }
    let (now, since) = (meta::now(), pod["status"]["startTime"].clone());
    let since = if since.is_string() {
        since
    } else {
        now.clone().into()
    };
    let state = match progress {
        Progress::Running => json!({"running": {"startedAt": since}}),
        Progress::Succeeded => json!({"terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": since, "finishedAt": now,
        }}),
        _ => json!({"terminated": {
            "exitCode": 1, "reason": "Error", "startedAt": since, "finishedAt": now,
        }}),
    };
    let containers: Vec<_> = items(&pod["spec"]["containers"])
        .map(|container| {
            json!({
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
                "lastState": {},
            })
        })
        .collect();
    let status = meta::child_mut(pod, "status");
    status.insert("phase".into(), phase.into());
    status.insert("startTime".into(), since);
    status.insert("hostIP".into(), "127.0.0.1".into());
    status.insert("podIP".into(), "127.0.0.1".into());
    status.insert("containerStatuses".into(), containers.into());
    set_condition(pod, "PodScheduled", true, "", "");
    set_condition(pod, "Initialized", true, reason, "");
    set_condition(pod, "ContainersReady", ready, reason, "");
    set_condition(pod, "Ready", ready, reason, "");
}
