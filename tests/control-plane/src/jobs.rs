//! The Job controller: a Job gets its pods one after the other until one succeeded or too many
//! failed.
//!
//! Parallel, indexed and suspended Jobs, failure and success policies are not here, and neither is the
//! deletion of Jobs that are over.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    clock,
    controllers::{
        Change, Context, SyncError,
        conditions::{condition, set_condition},
        object::{Job, Key, Pod, controller, items, text},
    },
    meta,
    recorder::Severity,
    resource::{JOBS, PODS},
    store::{DeleteOptions, EventKind, Part},
};

/// The name of this controller, as events carry it.
const NAME: &str = "job-controller";
/// The longest wait before a pod is replaced, in first waits: 10 minutes of 10 seconds.
const LONGEST_BACK_OFF: u32 = 60;

/// What is remembered of Jobs that run.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    failures: HashMap<Arc<str>, Failures>,
}

/// The failed pods of a Job, by their UIDs.
#[derive(Debug, Default)]
struct Failures {
    pods: BTreeSet<String>,
    last: Option<Instant>,
}

impl Failures {
    /// A pod that is deleted counts as failed at once.
    fn note(&mut self, pod: &Pod) {
        let stopped = pod.is_terminating() && pod.phase() != "Succeeded";
        if (stopped || pod.phase() == "Failed") && self.pods.insert(pod.uid().to_owned()) {
            self.last = Some(clock::instant());
        }
    }

    /// When the next pod may be made.
    fn next_try(&self, back_off: Duration) -> Option<Instant> {
        let times = match u32::try_from(self.pods.len()) {
            Ok(0) => return None,
            Ok(n) => (1 << (n - 1).min(16)).min(LONGEST_BACK_OFF),
            Err(_) => LONGEST_BACK_OFF,
        };
        Some(self.last? + back_off * times)
    }
}

/// What is to become of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    Open,
    Complete,
    /// For this reason, and the same in words.
    Failed(&'static str, &'static str),
}

const BACK_OFF_LIMIT: Verdict =
    Verdict::Failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const DEADLINE: Verdict =
    Verdict::Failed("DeadlineExceeded", "Job was active longer than specified deadline");
const COMPLETE: &str = "Reached expected number of succeeded pods";

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let object = &change.object;
    if change.resource == &PODS {
        if let Some(owner) = controller(object).filter(|owner| owner["kind"] == JOBS.kind) {
            let job = Key::new(meta::namespace(object), text(&owner["name"]));
            cx.queues.jobs.add(job);
            let failures = cx.jobs.failures.entry(text(&owner["uid"]).into());
            failures.or_default().note(&Pod(Arc::clone(object)));
        }
    } else if change.resource == &JOBS {
        cx.queues.jobs.add(Key::of(object));
        if change.kind == EventKind::Deleted {
            cx.jobs.failures.remove(meta::uid(object));
        }
    }
}

/// Queues every Job.
pub(crate) fn resync(cx: &mut Context) {
    for job in cx.cache.jobs.keys() {
        cx.queues.jobs.add(job.clone());
    }
}

/// Brings one Job to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(job) = cx.cache.jobs.get(key).cloned() else {
        return Ok(());
    };
    if condition(&job, "Complete").is_some() || condition(&job, "Failed").is_some() {
        cx.jobs.failures.remove(job.uid());
        return Ok(());
    }
    let pods: Vec<Pod> = cx.cache.controlled(job.uid()).cloned().collect();
    let failures = cx.jobs.failures.entry(job.uid().into()).or_default();
    let failed = failures.pods.len();
    let next_try = failures.next_try(cx.options.back_off);

    let mut new = (*job.0).clone();
    if new["status"]["startTime"].is_null() {
        new["status"]["startTime"] = meta::now().into();
    }
    let unfinished = pods.iter().filter(|pod| !pod.is_finished());
    let (mut stopping, mut active): (Vec<_>, Vec<_>) =
        unfinished.cloned().partition(Pod::is_terminating);
    let verdict = verdict(&new, &pods, &active, failed);
    match verdict {
        Verdict::Complete => {}
        Verdict::Failed(..) => {
            for pod in active.drain(..) {
                cx.delete(&PODS, &pod, DeleteOptions::default())?;
                let message = format!("Deleted pod: {}", pod.name());
                tell(cx, &job, Severity::Normal, "SuccessfulDelete", message);
                stopping.push(pod);
            }
        }
        Verdict::Open => {
            if active.is_empty() && !job.is_terminating() {
                match next_try.filter(|due| clock::instant() < *due) {
                    Some(due) => cx.queues.jobs.add_at(key.clone(), due),
                    None => active.push(create_pod(cx, &job)?),
                }
            }
            if let Some(left) = until_deadline(&new) {
                cx.queues.jobs.add_at(key.clone(), clock::instant() + left);
            }
        }
    }
    report(&mut new, &pods, failed, &active, stopping.len());
    end(cx, &job, new, verdict, stopping.is_empty())
}

/// Whether the Job is over, by what it says of itself, by its pods and by its limits.
fn verdict(job: &Value, pods: &[Pod], active: &[Pod], failed: usize) -> Verdict {
    if let Some(decided) = condition(job, "FailureTarget") {
        let was_deadline = decided["reason"] == "DeadlineExceeded";
        return if was_deadline { DEADLINE } else { BACK_OFF_LIMIT };
    }
    let has_succeeded = pods.iter().any(|pod| pod.phase() == "Succeeded");
    if has_succeeded || condition(job, "SuccessCriteriaMet").is_some() {
        return Verdict::Complete;
    }
    let restarts = |pod: &Pod| -> u64 {
        let containers = items(&pod["status"]["containerStatuses"]);
        containers.filter_map(|c| c["restartCount"].as_u64()).sum()
    };
    let limit = job["spec"]["backoffLimit"].as_u64().unwrap_or(6);
    let on_failure = job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure";
    let restarts = active.iter().map(restarts).sum::<u64>();
    if failed as u64 > limit || on_failure && restarts >= limit.max(1) {
        BACK_OFF_LIMIT
    } else if until_deadline(job) == Some(Duration::ZERO) {
        DEADLINE
    } else {
        Verdict::Open
    }
}

/// The time that a Job which runs has left, if it has a deadline.
fn until_deadline(job: &Value) -> Option<Duration> {
    let limit = SignedDuration::from_secs(job["spec"]["activeDeadlineSeconds"].as_i64()?);
    let started: Timestamp = job["status"]["startTime"].as_str()?.parse().ok()?;
    let left = limit - clock::now().duration_since(started);
    Some(left.try_into().unwrap_or_default())
}

fn create_pod(cx: &mut Context, job: &Job) -> Result<Pod, SyncError> {
    let template = &job["spec"]["template"];
    let mut pod = json!({
        "metadata": {
            "generateName": format!("{}-", job.name()),
            "ownerReferences": [{
                "apiVersion": JOBS.api_version(),
                "kind": JOBS.kind,
                "name": job.name(),
                "uid": job.uid(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations", "finalizers"] {
        pod["metadata"][field] = template["metadata"][field].clone();
    }
    match cx.store.create(&PODS, job.namespace(), pod) {
        Ok(created) => {
            cx.cache.store(&PODS, &created);
            let message = format!("Created pod: {}", meta::name(&created));
            tell(cx, job, Severity::Normal, "SuccessfulCreate", message);
            Ok(Pod(created))
        }
        Err(source) => {
            let message = format!("Error creating: {source}");
            tell(cx, job, Severity::Warning, "FailedCreate", message);
            Err(SyncError::Write { kind: PODS.kind, key: job.key(), source })
        }
    }
}

/// Writes what is going on into the status. A pod that failed may be gone by now.
fn report(job: &mut Value, pods: &[Pod], failed: usize, active: &[Pod], stopping: usize) {
    let number = |value: &Value| value.as_u64().and_then(|n| n.try_into().ok());
    let failed = failed.max(number(&job["status"]["failed"]).unwrap_or_default());
    let succeeded = pods.iter().filter(|pod| pod.phase() == "Succeeded").count();
    let ready = |pod: &&Pod| condition(pod, "Ready").is_some();
    let ready = active.iter().filter(ready).count();
    let status = meta::child_mut(job, "status");
    for (counter, n) in [("active", active.len()), ("succeeded", succeeded), ("failed", failed)] {
        // Go leaves out a counter that is 0.
        status.remove(counter);
        if n > 0 {
            status.insert(counter.into(), n.into());
        }
    }
    status.insert("ready".into(), ready.into());
    status.insert("terminating".into(), stopping.into());
}

/// Writes the status. A Job that is to end says so first, and that it is over once none of its pods
/// runs any more.
fn end(
    cx: &mut Context,
    job: &Job,
    mut new: Value,
    verdict: Verdict,
    is_still: bool,
) -> Result<(), SyncError> {
    match verdict {
        Verdict::Open => {}
        Verdict::Complete => {
            let (kind, reason) = ("SuccessCriteriaMet", "CompletionsReached");
            set_condition(&mut new, kind, true, reason, COMPLETE);
        }
        Verdict::Failed(reason, message) => {
            set_condition(&mut new, "FailureTarget", true, reason, message);
        }
    }
    if new != *job.0 {
        new = (*cx.update(&JOBS, new, Part::Status)?).clone();
    }
    match verdict {
        Verdict::Complete if is_still => {
            set_condition(&mut new, "Complete", true, "CompletionsReached", COMPLETE);
            new["status"]["completionTime"] = meta::now().into();
            tell(cx, job, Severity::Normal, "Completed", "Job completed");
        }
        Verdict::Failed(reason, message) if is_still => {
            set_condition(&mut new, "Failed", true, reason, message);
            tell(cx, job, Severity::Warning, reason, message);
        }
        _ => return Ok(()),
    }
    cx.update(&JOBS, new, Part::Status).map(drop)
}

fn tell(
    cx: &mut Context,
    job: &Job,
    severity: Severity,
    reason: &'static str,
    message: impl Into<String>,
) {
    cx.tell_as(NAME, (&JOBS, job), severity, reason, message);
}
