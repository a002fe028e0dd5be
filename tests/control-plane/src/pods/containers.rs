//! The containers of one pod: when one that failed is started again, and what the pod's status says
//! of them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    deadline::Deadline,
    runner::{Exit, PodRunner, Progress},
};
use crate::{
    controllers::{
        conditions::set_condition,
        object::{Pod, items, text},
    },
    meta,
};

/// The longest wait before a restart, in first waits: 5 minutes of 10 seconds.
const LONGEST_BACK_OFF: u32 = 30;

/// The exit code of a process that was killed.
const KILLED: i32 = 137;

/// What is remembered of the containers of a pod, in the order of its spec.
#[derive(Debug)]
pub(super) struct Containers {
    uid: String,
    lives: Vec<Life>,
    pub(super) deadline: Option<Deadline>,
}

/// One container, over its restarts.
#[derive(Debug, Default)]
struct Life {
    /// How often it was started again.
    restarts: u32,
    /// Its `state`, as the status has it.
    state: Value,
    /// Its `lastState`.
    last: Value,
    /// When it is started again.
    again: Option<Instant>,
}

/// Where a container has got to in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was never started.
    Fresh,
    /// It runs, or is going to run again.
    Alive,
    /// It is over, with this exit code.
    Over(i32),
}

impl Containers {
    /// As the status has them: whoever starts over goes on from there.
    pub(super) fn of(pod: &Pod) -> Self {
        let life = |container: &Value| {
            let known = status_of(pod, container);
            let restarts = known["restartCount"].as_u64();
            Life {
                restarts: restarts.and_then(|n| n.try_into().ok()).unwrap_or_default(),
                state: known["state"].clone(),
                last: known["lastState"].clone(),
                again: None,
            }
        };
        Self {
            uid: pod.uid().to_owned(),
            lives: items(&pod["spec"]["containers"]).map(life).collect(),
            deadline: None,
        }
    }

    /// A deleted pod can have a successor of the same name.
    pub(super) fn are_of(&self, pod: &Pod) -> bool {
        self.uid == pod.uid()
    }

    /// Runs every container that is due, and writes into the status what a kubelet would. `back_off`
    /// is the wait before the second restart of one that fails.
    pub(super) fn run(
        &mut self,
        runner: &mut dyn PodRunner,
        pod: &Pod,
        back_off: Duration,
        now: Instant,
    ) -> Value {
        let restarts = pod["spec"]["restartPolicy"] == "OnFailure";
        let back_off = restarts.then_some(back_off);
        let mut stages = Vec::new();
        let mut statuses = Vec::new();
        for (container, life) in items(&pod["spec"]["containers"]).zip(&mut self.lives) {
            stages.push(life.step(back_off, now, |run| runner.run(pod, container, run)));
            statuses.push(status(container, life.restarts, &life.state, &life.last));
        }
        let mut new = (*pod.0).clone();
        if let Some(phase) = phase(&stages) {
            report(&mut new, phase, statuses);
        }
        new
    }

    /// When a container is started again, and when the pod has had its time.
    pub(super) fn appointments(&self) -> BTreeSet<Instant> {
        let starts = self.lives.iter().filter_map(|life| life.again);
        starts.chain(self.deadline.map(|it| it.due)).collect()
    }
}

impl Life {
    fn step(
        &mut self,
        back_off: Option<Duration>,
        now: Instant,
        run: impl FnOnce(u32) -> Progress,
    ) -> Stage {
        if let Some(again) = self.again {
            if now < again {
                return Stage::Alive;
            }
            self.again = None;
            self.restarts += 1;
            let before = self.state.take();
            if before["terminated"].is_object() {
                self.last = before;
            }
        }
        match (run(self.restarts), back_off) {
            (Progress::Waiting, _) => {
                self.becomes(json!({"waiting": {"reason": "ContainerCreating"}}));
                if self.restarts == 0 {
                    return Stage::Fresh;
                }
            }
            (Progress::Running, _) => {
                self.becomes(json!({"running": {"startedAt": meta::now()}}));
            }
            (Progress::Exited(exit), Some(first)) if exit.code != 0 => {
                let wait = wait(first, self.restarts);
                self.again = Some(now + wait);
                let ended = terminated(&exit, &self.state);
                if wait.is_zero() {
                    self.state = ended;
                } else {
                    self.last = ended;
                    self.state = json!({"waiting": {
                        "reason": "CrashLoopBackOff",
                        "message": format!("back-off {wait:?} restarting failed container"),
                    }});
                }
            }
            (Progress::Exited(exit), _) => {
                self.becomes(terminated(&exit, &self.state));
                return Stage::Over(exit.code);
            }
        }
        Stage::Alive
    }

    /// A state that is only seen again keeps its times.
    fn becomes(&mut self, state: Value) {
        let kind = |state: &Value| state.as_object().and_then(|s| s.keys().next().cloned());
        if kind(&self.state) != kind(&state) {
            self.state = state;
        }
    }
}

/// The wait before the next restart: the first one comes at once.
fn wait(first: Duration, restarts: u32) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        n => first * (1 << (n - 1).min(16)).min(LONGEST_BACK_OFF),
    }
}

fn phase(stages: &[Stage]) -> Option<&'static str> {
    if stages.iter().all(|stage| *stage == Stage::Fresh) {
        return None;
    }
    let over = |stage: &Stage| matches!(stage, Stage::Over(_));
    Some(if stages.iter().all(|stage| *stage == Stage::Over(0)) {
        "Succeeded"
    } else if stages.iter().all(over) {
        "Failed"
    } else if stages.contains(&Stage::Fresh) {
        "Pending"
    } else {
        "Running"
    })
}

/// Writes into the status of a pod that was stopped how its containers ended, if all of them ran.
pub(super) fn report_end(pod: &mut Value, end: impl Fn(&Value) -> Option<Exit>) {
    if matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed") {
        return;
    }
    let mut stages = Vec::new();
    let mut statuses = Vec::new();
    for container in items(&pod["spec"]["containers"]) {
        let Some(exit) = end(container) else { return };
        let old = status_of(pod, container);
        let restarts = old["restartCount"].as_u64().unwrap_or_default();
        let state = terminated(&exit, &old["state"]);
        statuses.push(status(container, restarts, &state, &old["lastState"]));
        stages.push(Stage::Over(exit.code));
    }
    if let Some(phase) = phase(&stages) {
        report(pod, phase, statuses);
    }
}

fn report(pod: &mut Value, phase: &str, containers: Vec<Value>) {
    let ready = containers.iter().all(|status| status["ready"] == true);
    let (initialized, unready) = match phase {
        "Succeeded" => ("PodCompleted", "PodCompleted"),
        "Failed" => ("", "PodFailed"),
        _ if ready => ("", ""),
        _ => ("", "ContainersNotReady"),
    };
    let status = meta::child_mut(pod, "status");
    status
        .entry("startTime")
        .or_insert_with(|| meta::now().into());
    status.insert("phase".into(), phase.into());
    status.insert("hostIP".into(), "127.0.0.1".into());
    status.insert("podIP".into(), "127.0.0.1".into());
    status.insert("containerStatuses".into(), containers.into());
    set_condition(pod, "PodScheduled", true, "", "");
    set_condition(pod, "Initialized", true, initialized, "");
    set_condition(pod, "ContainersReady", ready, unready, "");
    set_condition(pod, "Ready", ready, unready, "");
}

/// How a run that the status tells of has ended, if nobody knows its process: what ran died with
/// the control plane that had started it, as on a node that lost its power.
pub(super) fn end_of_unknown(pod: &Value, container: &Value, run: u32) -> Option<Exit> {
    let status = status_of(pod, container);
    let state = &status["state"];
    let ended = &state["terminated"];
    if status["restartCount"].as_u64().unwrap_or_default() != u64::from(run) {
        None
    } else if ended.is_object() {
        let code = ended["exitCode"].as_i64().and_then(|c| c.try_into().ok());
        Some(Exit::with(code.unwrap_or(KILLED)))
    } else if state["running"].is_object() || state.is_null() && pod["status"]["phase"] == "Running"
    {
        Some(Exit::with(KILLED))
    } else {
        None
    }
}

fn status_of<'a>(pod: &'a Value, container: &Value) -> &'a Value {
    items(&pod["status"]["containerStatuses"])
        .find(|status| status["name"] == container["name"])
        .unwrap_or(&Value::Null)
}

fn status(container: &Value, restarts: impl Into<u64>, state: &Value, last: &Value) -> Value {
    let running = state["running"].is_object();
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": restarts.into(),
        "state": state,
        "lastState": if last.is_null() { json!({}) } else { last.clone() },
    })
}

/// The state after this exit; `before` tells since when it ran.
fn terminated(exit: &Exit, before: &Value) -> Value {
    let now = meta::now();
    let since = before["running"]["startedAt"].as_str().unwrap_or(&now);
    let mut state = json!({"terminated": {
        "exitCode": exit.code, "reason": exit.reason, "startedAt": since, "finishedAt": now,
    }});
    if !exit.message.is_empty() {
        state["terminated"]["message"] = exit.message.as_str().into();
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_wait_longer_and_longer() {
        let first = Duration::from_secs(10);
        let waits: Vec<_> = (0..8).map(|n| wait(first, n).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(wait(first, u32::MAX).as_secs(), 300);
    }

    #[test]
    fn what_fails_is_started_again_where_the_policy_wants_it() {
        let mut now = Instant::now();
        let first = Some(Duration::from_secs(10));
        let fail = |_| Progress::Exited(Exit::with(1));
        let mut life = Life::default();
        assert_eq!(life.step(first, now, fail), Stage::Alive);
        assert_eq!(life.state["terminated"]["reason"], "Error");
        assert_eq!((life.restarts, life.again), (0, Some(now)));
        assert_eq!(life.step(first, now, fail), Stage::Alive);
        assert_eq!(life.state["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(life.last["terminated"]["exitCode"], 1);
        assert_eq!(life.restarts, 1);
        now += Duration::from_secs(9);
        let early = |_| panic!("started during the back-off");
        assert_eq!(life.step(first, now, early), Stage::Alive);
        now += Duration::from_secs(1);
        assert_eq!(life.step(first, now, |_| Progress::Running), Stage::Alive);
        assert_eq!(life.restarts, 2);
        let succeed = |_| Progress::Exited(Exit::with(0));
        assert_eq!(life.step(first, now, succeed), Stage::Over(0));
        assert_eq!(life.last["terminated"]["exitCode"], 1);

        let mut life = Life::default();
        assert_eq!(life.step(None, now, fail), Stage::Over(1));
    }

    #[test]
    fn a_run_whose_process_nobody_knows() {
        let running = json!({"running": {"startedAt": "2025-01-01T00:00:00Z"}});
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        let ended = json!({"terminated": {"exitCode": 3}});
        for (phase, state, run, code) in [
            ("Pending", json!(null), 0, None),
            ("Pending", waiting, 0, None),
            ("Running", running.clone(), 0, Some(137)),
            ("Running", running, 1, None),
            ("Running", json!(null), 0, Some(137)),
            ("Running", ended, 0, Some(3)),
        ] {
            let container = json!({"name": "c"});
            let statuses = json!([{"name": "c", "restartCount": 0, "state": state}]);
            let pod = json!({"status": {"phase": phase, "containerStatuses": statuses}});
            let exit = end_of_unknown(&pod, &container, run);
            assert_eq!(exit.map(|exit| exit.code), code, "{pod} {run}");
        }
    }

    #[test]
    fn phases() {
        use Stage::{Alive, Fresh, Over};
        for (stages, expected) in [
            (vec![Fresh, Fresh], None),
            (vec![Fresh, Alive], Some("Pending")),
            (vec![Alive, Over(1)], Some("Running")),
            (vec![Over(0), Over(0)], Some("Succeeded")),
            (vec![Over(0), Over(3)], Some("Failed")),
        ] {
            assert_eq!(phase(&stages), expected, "{stages:?}");
        }
    }
}
