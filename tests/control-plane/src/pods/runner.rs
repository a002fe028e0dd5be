//! How the containers of a pod run, and the runner that runs nothing.

use serde_json::Value;

use crate::controllers::object::Pod;

/// Annotation that tells how a pod runs: `succeed`, `fail` or `hold` (it stays Pending until the
/// annotation changes); without it the pod starts and runs on. What fails is started again if the
/// pod's `restartPolicy` is `OnFailure`; `Always`, the default, is ignored.
pub const RUN: &str = "control-plane/run";
/// Annotation that, with the value `true`, keeps a deleted pod terminating until it is removed.
pub const HOLD_TERMINATION: &str = "control-plane/hold-termination";

/// Where one run of a container has got to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has not started.
    Waiting,
    Running,
    Exited(Exit),
}

/// How a run of a container has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exit {
    /// 128 plus its number for a signal.
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Exit {
    pub(crate) fn with(code: i32) -> Self {
        Self { code, reason: if code == 0 { "Completed" } else { "Error" }, message: String::new() }
    }

    /// The container could not be started at all.
    pub(crate) fn never_started(message: String) -> Self {
        Self { code: 128, reason: "StartError", message }
    }
}

/// Runs containers. It is asked whenever something about their pod has changed.
pub(crate) trait PodRunner: Send {
    /// Starts the container for the `run`th time, counted from 0, if it has not done so yet, and
    /// says where this run has got to.
    fn run(&mut self, pod: &Pod, container: &Value, run: u32) -> Progress;

    /// Tells the pod to stop, and sees to it that it does when its time is over. `true` once nothing
    /// of it runs any more.
    fn stop(&mut self, pod: &Pod) -> bool;
}

/// Runs nothing: a pod does what its annotation says ([`RUN`]).
#[derive(Debug)]
pub(crate) struct Annotated;

impl PodRunner for Annotated {
    fn run(&mut self, pod: &Pod, _: &Value, _: u32) -> Progress {
        match pod.annotation(RUN) {
            Some("hold") => Progress::Waiting,
            Some("succeed") => Progress::Exited(Exit::with(0)),
            Some("fail") => Progress::Exited(Exit::with(1)),
            _ => Progress::Running,
        }
    }

    fn stop(&mut self, _: &Pod) -> bool {
        true
    }
}
