//! The Job controller: a Job gets its pods one after the other until enough of them succeeded or
//! too many failed, counts each of them once, and is deleted some time after its end if it says so.
//!
//! Indexed Jobs, failure and success policies are not here.

mod count;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::count::{Count, Verdict, settle_counters, uncounted, verdict};
use crate::{
    controllers::{
        Change, Context, SyncError,
        conditions::{condition, set_condition},
        object::{Job, Key, Pod, add_finalizer, controller, has_finalizer, text},
    },
    meta,
    recorder::Severity,
    resource::{JOBS, PODS},
    store::{DeleteOptions, EventKind, Part},
};

/// The name of this controller, as events carry it.
const NAME: &str = "job-controller";
/// Keeps a pod until its Job has counted it.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The longest wait before a pod is replaced, in first waits: 10 minutes of 10 seconds.
const LONGEST_BACK_OFF: u32 = 60;

/// What is remembered of Jobs that run.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    failures: HashMap<Arc<str>, Failures>,
}

/// The failed pods of a Job since one succeeded.
#[derive(Debug, Default)]
struct Failures {
    pods: BTreeSet<String>,
    last: Option<Instant>,
}

impl Failures {
    fn note(&mut self, count: &Count, now: Instant) {
        if !count.new_successes.is_empty() {
            self.pods.clear();
            self.last = None;
        }
        for uid in &count.new_failures {
            if self.pods.insert(uid.clone()) {
                self.last = Some(now);
            }
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

impl Job {
    fn is_suspended(&self) -> bool {
        self["spec"]["suspend"] == true
    }

    /// The condition that says that it is over.
    fn end(&self) -> Option<&Value> {
        condition(self, "Complete").or_else(|| condition(self, "Failed"))
    }
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let Change { kind, object, .. } = change;
    let gone = *kind == EventKind::Deleted;
    if change.resource == &PODS {
        if let Some(owner) = controller(object).filter(|owner| owner["kind"] == JOBS.kind) {
            let job = Key::new(meta::namespace(object), text(&owner["name"]));
            cx.queues.jobs.add(job);
        }
        if !gone && has_finalizer(object, TRACKING) && job_of(cx, object).is_none() {
            cx.queues.orphans.add(Key::of(object));
        }
    } else if change.resource == &JOBS {
        cx.queues.jobs.add(Key::of(object));
        if gone {
            cx.jobs.failures.remove(meta::uid(object));
            for pod in cx.cache.controlled(meta::uid(object)) {
                cx.queues.orphans.add(pod.key());
            }
        }
    }
}

/// Queues every Job.
pub(crate) fn resync(cx: &mut Context) {
    for job in cx.cache.jobs.keys() {
        cx.queues.jobs.add(job.clone());
    }
}

/// The Job that controls a pod, as long as it exists.
fn job_of<'a>(cx: &'a Context, pod: &Value) -> Option<&'a Job> {
    let owner = controller(pod).filter(|owner| owner["kind"] == JOBS.kind)?;
    let key = Key::new(meta::namespace(pod), text(&owner["name"]));
    let job = cx.cache.jobs.get(&key)?;
    (owner["uid"] == job.uid()).then_some(job)
}

/// Lets go of a pod that no Job counts any more.
pub(crate) fn release_orphan(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    match cx.cache.pods.get(key) {
        Some(pod) if has_finalizer(pod, TRACKING) && job_of(cx, pod).is_none() => {
            cx.release(&PODS, key, TRACKING)
        }
        _ => Ok(()),
    }
}

/// Brings one Job to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(job) = cx.cache.jobs.get(key).cloned() else {
        return Ok(());
    };
    if job.end().is_some() {
        cx.jobs.failures.remove(job.uid());
        return expire(cx, &job);
    }
    let pods: Vec<_> = cx.cache.controlled(job.uid()).cloned().collect();
    let mut count = Count::of(&job, &pods);
    let failures = cx.jobs.failures.entry(job.uid().into()).or_default();
    failures.note(&count, Instant::now());

    let mut new = (*job.0).clone();
    if new["status"]["startTime"].is_null() && !job.is_suspended() {
        new["status"]["startTime"] = meta::now().into();
    }
    let mut verdict = verdict(&new, &count, Timestamp::now());
    if let Verdict::Failed { .. } = verdict {
        delete_pods(cx, &job, &mut count, usize::MAX)?;
    } else {
        if !matches!(verdict, Verdict::Complete) && !job.is_terminating() {
            manage(cx, &job, &mut count)?;
            suspend_or_resume(cx, &job, &mut new);
        }
        if let Some(left) = count::until_deadline(&new, Timestamp::now()) {
            cx.queues.jobs.add_at(key.clone(), Instant::now() + left);
        }
        if count.is_complete(&job) {
            verdict = Verdict::Complete;
        }
    }
    track(cx, &job, new, &pods, &count, &verdict)
}

/// Makes and deletes pods until there are as many as there should be.
fn manage(cx: &mut Context, job: &Job, count: &mut Count) -> Result<(), SyncError> {
    let wanted = if job.is_suspended() {
        0
    } else {
        count.wanted(job)
    };
    if let Some(surplus) = count.active.len().checked_sub(wanted).filter(|n| *n > 0) {
        return delete_pods(cx, job, count, surplus);
    }
    let replaced_late = job["spec"]["podReplacementPolicy"] == "Failed";
    let terminating = if replaced_late { count.terminating } else { 0 };
    let missing = wanted.saturating_sub(count.active.len() + terminating);
    if missing == 0 {
        return Ok(());
    }
    let failures = cx.jobs.failures.get(job.uid());
    let next_try = failures.and_then(|f| f.next_try(cx.options.back_off));
    if let Some(due) = next_try.filter(|due| Instant::now() < *due) {
        cx.queues.jobs.add_at(job.key(), due);
        return Ok(());
    }
    for _ in 0..missing {
        let pod = create_pod(cx, job)?;
        count.active.push(pod);
    }
    Ok(())
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
    if !has_finalizer(&pod, TRACKING) {
        add_finalizer(&mut pod, TRACKING);
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
            Err(SyncError::Write {
                kind: PODS.kind,
                key: job.key(),
                source,
            })
        }
    }
}

fn delete_pods(
    cx: &mut Context,
    job: &Job,
    count: &mut Count,
    most: usize,
) -> Result<(), SyncError> {
    for _ in 0..most {
        let Some(pod) = count.active.pop() else { break };
        cx.delete(&PODS, &pod, DeleteOptions::default())?;
        count.terminating += 1;
        let message = format!("Deleted pod: {}", pod.name());
        tell(cx, job, Severity::Normal, "SuccessfulDelete", message);
    }
    Ok(())
}

fn suspend_or_resume(cx: &mut Context, job: &Job, new: &mut Value) {
    let was_suspended = condition(job, "Suspended").is_some();
    if job.is_suspended() && !was_suspended {
        set_condition(new, "Suspended", true, "JobSuspended", "Job suspended");
        meta::child_mut(new, "status").remove("startTime");
        tell(cx, job, Severity::Normal, "Suspended", "Job suspended");
    } else if !job.is_suspended() && was_suspended {
        set_condition(new, "Suspended", false, "JobResumed", "Job resumed");
        // The deadline is one of uninterrupted work.
        new["status"]["startTime"] = meta::now().into();
        tell(cx, job, Severity::Normal, "Resumed", "Job resumed");
    }
}

/// Counts the pods that are over, and ends the Job when it can be. A pod is first written down as
/// one to be counted, then let go, then counted: it is neither missed nor counted twice, whatever
/// happens in between.
fn track(
    cx: &mut Context,
    job: &Job,
    mut new: Value,
    pods: &[Pod],
    count: &Count,
    verdict: &Verdict,
) -> Result<(), SyncError> {
    count.report(&mut new);
    let released = uncounted(&mut new, pods, verdict);
    match verdict {
        Verdict::Open => {}
        Verdict::Complete => {
            let message = "Reached expected number of succeeded pods";
            set_condition(
                &mut new,
                "SuccessCriteriaMet",
                true,
                "CompletionsReached",
                message,
            );
        }
        Verdict::Failed { reason, message } => {
            set_condition(&mut new, "FailureTarget", true, reason, message);
        }
    }
    if new != *job.0 {
        new = (*cx.update(&JOBS, new, Part::Status)?).clone();
    }
    for pod in released {
        cx.release(&PODS, &pod, TRACKING)?;
    }
    let before = new.clone();
    settle_counters(&mut new);
    if count.terminating == 0 {
        finish(cx, job, &mut new, verdict);
    }
    if new != before {
        cx.update(&JOBS, new, Part::Status)?;
    }
    Ok(())
}

/// Says that the Job is over, once none of its pods runs any more.
fn finish(cx: &mut Context, job: &Job, new: &mut Value, verdict: &Verdict) {
    match verdict {
        Verdict::Open => {}
        Verdict::Complete => {
            let message = "Reached expected number of succeeded pods";
            set_condition(new, "Complete", true, "CompletionsReached", message);
            new["status"]["completionTime"] = meta::now().into();
            tell(cx, job, Severity::Normal, "Completed", "Job completed");
        }
        Verdict::Failed { reason, message } => {
            set_condition(new, "Failed", true, reason, message);
            tell(cx, job, Severity::Warning, reason, *message);
        }
    }
}

/// Deletes a Job that is over, when its time has come.
fn expire(cx: &mut Context, job: &Job) -> Result<(), SyncError> {
    let ttl = job["spec"]["ttlSecondsAfterFinished"].as_i64();
    let ended = job.end().and_then(|end| end["lastTransitionTime"].as_str());
    let ended = ended.and_then(|time| time.parse::<Timestamp>().ok());
    let (Some(ttl), Some(ended), false) = (ttl, ended, job.is_terminating()) else {
        return Ok(());
    };
    let age = Timestamp::now().duration_since(ended);
    let left = SignedDuration::from_secs(ttl) - age;
    if left.is_positive() {
        let due = Instant::now() + left.unsigned_abs();
        cx.queues.jobs.add_at(job.key(), due);
        return Ok(());
    }
    let options = DeleteOptions {
        propagation_policy: Some("Foreground".to_owned()),
        ..DeleteOptions::default()
    };
    cx.delete(&JOBS, job, options)
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
