//! How far a Job has got, from its status and its pods.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::TRACKING;
use crate::{
    controllers::{
        conditions::condition,
        object::{Job, Key, Pod, has_finalizer, items, text},
    },
    meta,
};

/// The pods of a Job, sorted.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Those that run, or are going to.
    pub(super) active: Vec<Pod>,
    /// How many are being stopped.
    pub(super) terminating: usize,
    /// UIDs of those that succeeded, or failed, and were not written down yet.
    pub(super) new_successes: Vec<String>,
    pub(super) new_failures: Vec<String>,
    /// How many there were in all.
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    /// Restarts of containers that may be restarted again.
    restarts: u64,
}

/// What is to become of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Open,
    Complete,
    Failed {
        reason: &'static str,
        message: &'static str,
    },
}

const BACK_OFF_LIMIT: Verdict = Verdict::Failed {
    reason: "BackoffLimitExceeded",
    message: "Job has reached the specified backoff limit",
};
const DEADLINE: Verdict = Verdict::Failed {
    reason: "DeadlineExceeded",
    message: "Job was active longer than specified deadline",
};

impl Count {
    pub(super) fn of(job: &Job, pods: &[Pod]) -> Self {
        let [succeeded, failed] =
            ["succeeded", "failed"].map(|counter| number(&job["status"][counter]));
        let mut count = Self {
            succeeded: succeeded + uids(job, "succeeded").count(),
            failed: failed + uids(job, "failed").count(),
            ..Self::default()
        };
        for pod in pods {
            match (pod.is_finished(), pod.is_terminating()) {
                (false, false) => count.active.push(pod.clone()),
                (false, true) => count.terminating += 1,
                (true, _) => {}
            }
            if !pod.is_finished() {
                let restarts = |c: &Value| c["restartCount"].as_u64().unwrap_or_default();
                let containers = items(&pod["status"]["containerStatuses"]);
                count.restarts += containers.map(restarts).sum::<u64>();
            }
            if !has_finalizer(pod, TRACKING) {
                continue;
            }
            let unseen = |counter| uids(job, counter).all(|uid| uid != pod.uid());
            if pod.phase() == "Succeeded" && unseen("succeeded") {
                count.new_successes.push(pod.uid().to_owned());
            } else if has_failed(job, pod) && unseen("failed") {
                count.new_failures.push(pod.uid().to_owned());
            }
        }
        count.succeeded += count.new_successes.len();
        count.failed += count.new_failures.len();
        count
    }

    /// How many pods should run.
    pub(super) fn wanted(&self, job: &Job) -> usize {
        let spec = &job["spec"];
        let parallelism = number(&spec["parallelism"]);
        match spec["completions"].as_u64() {
            Some(_) => parallelism.min(number(&spec["completions"]).saturating_sub(self.succeeded)),
            // Then the first success is that of all.
            None if self.succeeded > 0 => self.active.len(),
            None => parallelism,
        }
    }

    pub(super) fn is_complete(&self, job: &Job) -> bool {
        let completions = &job["spec"]["completions"];
        let wanted = if completions.is_null() {
            1
        } else {
            number(completions)
        };
        self.succeeded >= wanted && self.active.is_empty()
    }

    /// Writes what is going on into the status.
    pub(super) fn report(&self, job: &mut Value) {
        let ready = |pod: &&Pod| condition(pod, "Ready").is_some();
        let ready = self.active.iter().filter(ready).count();
        let status = meta::child_mut(job, "status");
        set_counter(status, "active", self.active.len());
        status.insert("ready".into(), ready.into());
        status.insert("terminating".into(), self.terminating.into());
    }
}

/// A pod that is deleted counts as failed at once, unless its replacement is to wait for its end.
fn has_failed(job: &Value, pod: &Pod) -> bool {
    let stopped = pod.is_terminating() && pod.phase() != "Succeeded";
    pod.phase() == "Failed" || stopped && job["spec"]["podReplacementPolicy"] != "Failed"
}

/// Whether the Job is over, by what it says of itself and by its limits. That enough pods succeeded
/// is for [`Count::is_complete`] to say, when no more are to be made.
pub(super) fn verdict(job: &Value, count: &Count, now: Timestamp) -> Verdict {
    if condition(job, "SuccessCriteriaMet").is_some() {
        return Verdict::Complete;
    }
    if let Some(decided) = condition(job, "FailureTarget") {
        let was_deadline = decided["reason"] == "DeadlineExceeded";
        return if was_deadline {
            DEADLINE
        } else {
            BACK_OFF_LIMIT
        };
    }
    let limit = job["spec"]["backoffLimit"].as_u64().unwrap_or(6);
    let on_failure = job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure";
    if count.failed as u64 > limit || on_failure && count.restarts >= limit.max(1) {
        BACK_OFF_LIMIT
    } else if until_deadline(job, now) == Some(Duration::ZERO) {
        DEADLINE
    } else {
        Verdict::Open
    }
}

/// The time that a Job which runs has left, if it has a deadline.
pub(super) fn until_deadline(job: &Value, now: Timestamp) -> Option<Duration> {
    if job["spec"]["suspend"] == true {
        return None;
    }
    let limit = SignedDuration::from_secs(job["spec"]["activeDeadlineSeconds"].as_i64()?);
    let started: Timestamp = job["status"]["startTime"].as_str()?.parse().ok()?;
    let left = limit - now.duration_since(started);
    Some(left.try_into().unwrap_or_default())
}

/// Writes down the pods that are over, and answers those whose finalizer they need no more.
pub(super) fn uncounted(job: &mut Value, pods: &[Pod], verdict: &Verdict) -> Vec<Key> {
    let mut released = Vec::new();
    for pod in pods.iter().filter(|pod| has_finalizer(pod, TRACKING)) {
        let failed = has_failed(job, pod);
        let succeeded = pod.phase() == "Succeeded";
        let over = succeeded || failed || *verdict != Verdict::Open;
        if !over && !meta::is_terminating(job) {
            continue;
        }
        released.push(pod.key());
        let counter = match verdict {
            _ if succeeded => "succeeded",
            // What a Job that failed did not wait for has failed, too.
            Verdict::Failed { .. } => "failed",
            _ if failed => "failed",
            _ => continue,
        };
        if ["succeeded", "failed"]
            .iter()
            .all(|c| uids(job, c).all(|uid| uid != pod.uid()))
        {
            let status = meta::child_mut(job, "status");
            let lists = status.entry("uncountedTerminatedPods").or_insert(json!({}));
            let list = meta::object_mut(lists).entry(counter).or_insert(json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(pod.uid().into());
            }
        }
    }
    released
}

/// Counts the pods that were written down.
pub(super) fn settle_counters(job: &mut Value) {
    for counter in ["succeeded", "failed"] {
        let all = number(&job["status"][counter]) + uids(job, counter).count();
        set_counter(meta::child_mut(job, "status"), counter, all);
    }
    meta::child_mut(job, "status").insert("uncountedTerminatedPods".into(), json!({}));
}

/// UIDs of pods that are written down, and not counted yet.
fn uids<'a>(job: &'a Value, counter: &str) -> impl Iterator<Item = &'a str> {
    items(&job["status"]["uncountedTerminatedPods"][counter]).map(text)
}

/// Go leaves a counter out that is 0.
fn set_counter(status: &mut serde_json::Map<String, Value>, counter: &str, n: usize) {
    if n == 0 {
        status.remove(counter);
    } else {
        status.insert(counter.into(), n.into());
    }
}

fn number(value: &Value) -> usize {
    value
        .as_u64()
        .and_then(|n| n.try_into().ok())
        .unwrap_or_default()
}
