//! The containers of one pod: when one that failed is started again, and what the pod's status says
//! of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::runner::{Exit, PodRunner, Progress};
use crate::{
    controllers::{
        conditions::set_condition,
        object::{Pod, items},
    },
    meta,
};

/// The longest wait before a restart, in first waits: 5 minutes of 10 seconds.
const LONGEST_BACK_OFF: u32 = 30;

/// What is remembered of the containers of a pod, in the order of its spec.
#[derive(Debug)]
pub(super) struct Containers {
    uid: String,
    lives: Vec<Life>,
}

/// One container, over its restarts.
#[derive(Debug, Default)]
struct Life {
    /// How often it was started again.
    restarts: u32,
    /// Its `state`, as the status has it.
    state: Value,
    /// When it is started again.
    again: Option<Instant>,
}

/// Where a container has got to in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It was never started.
    Fresh,
    /// It runs, or is going to run again.
    Alive,
    /// It is over, with this exit code.
    Over(i32),
}

impl Containers {
    pub(super) fn of(pod: &Pod) -> Self {
        let containers = items(&pod["spec"]["containers"]);
        Self { uid: pod.uid().to_owned(), lives: containers.map(|_| Life::default()).collect() }
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
            statuses.push(life.status(container));
        }
        let mut new = (*pod.0).clone();
        if let Some(phase) = phase(&stages) {
            report(&mut new, phase, statuses);
        }
        new
    }

    /// When a container is started again.
    pub(super) fn next_start(&self) -> Option<Instant> {
        self.lives.iter().filter_map(|life| life.again).min()
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
                self.state = json!({"waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": format!("back-off {wait:?} restarting failed container"),
                }});
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

    fn status(&self, container: &Value) -> Value {
        let running = self.state["running"].is_object();
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": {},
        })
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

fn report(pod: &mut Value, phase: &str, containers: Vec<Value>) {
    let ready = containers.iter().all(|status| status["ready"] == true);
    let unready = match phase {
        "Succeeded" => "PodCompleted",
        "Failed" => "PodFailed",
        _ if ready => "",
        _ => "ContainersNotReady",
    };
    let status = meta::child_mut(pod, "status");
    status.entry("startTime").or_insert_with(|| meta::now().into());
    status.insert("phase".into(), phase.into());
    status.insert("hostIP".into(), "127.0.0.1".into());
    status.insert("podIP".into(), "127.0.0.1".into());
    status.insert("containerStatuses".into(), containers.into());
    for kind in ["PodScheduled", "Initialized"] {
        set_condition(pod, kind, true, "", "");
    }
    for kind in ["ContainersReady", "Ready"] {
        set_condition(pod, kind, ready, unready, "");
    }
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
        for (restarts, wait) in [(0, 0), (1, 10)] {
            assert_eq!(life.step(first, now, fail), Stage::Alive);
            assert_eq!(life.state["waiting"]["reason"], "CrashLoopBackOff");
            let again = now + Duration::from_secs(wait);
            assert_eq!((life.restarts, life.again), (restarts, Some(again)));
        }
        let early = |_| panic!("started during the back-off");
        assert_eq!(life.step(first, now, early), Stage::Alive);
        now += Duration::from_secs(10);
        assert_eq!(life.step(first, now, |_| Progress::Running), Stage::Alive);
        assert_eq!(life.restarts, 2);
        let succeed = |_| Progress::Exited(Exit::with(0));
        assert_eq!(life.step(first, now, succeed), Stage::Over(0));

        let mut life = Life::default();
        assert_eq!(life.step(None, now, fail), Stage::Over(1));
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
