//! The Job that is there already, and the wait for its end.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::cluster::{ApiError, JOBS};
use crate::names::job_name;
use crate::plan::{About, CleanOrder, reasons};
use crate::types::VolumeMode;
use crate::view::{JobState, JobView};

use super::owner::Watched;
use super::{another, delete, known, nobody_left, object};
use crate::clean::gate::{RECONFIGURED, api, objection, still_due};
use crate::clean::oversee::STANDS_STILL;
use crate::clean::permit::Permit;
use crate::clean::progress::Progress;
use crate::clean::table::FOR_A_PERMIT;
use crate::clean::{Failure, Ground, Stop};

/// How often a Job is looked at that has not started, or that no watch tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a Job may take to start before it is made anew for a configuration that has changed.
const TIME_TO_START: SignedDuration = SignedDuration::from_secs(30);
/// How often one is looked at that runs, and that a watch tells of.
const LOOK_NOW_AND_THEN: Duration = Duration::from_mins(1);

/// What a Job that has the name of ours is to us.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Its pod does not run (yet): it may be called off.
    Waits,
    /// It cleans.
    AtWork,
    /// It says that it has cleaned.
    Done,
    /// It could not.
    Failed(String),
    /// It has to go first, and why.
    InTheWay(&'static str),
}

/// `today` is the template that we would make it from now, where we would.
fn standing(job: &JobView, order: &CleanOrder, today: Option<&str>) -> Standing {
    if job.deleting {
        return Standing::InTheWay("which is being deleted");
    }
    if !job.is_for(&order.pv.tenancy()) {
        return Standing::InTheWay("which is another one's or of an earlier claim");
    }
    match &job.state {
        JobState::Running => Standing::AtWork,
        JobState::Pending if order.job.is_none() => {
            Standing::InTheWay("which has not started, and Jobs are switched off now")
        }
        // What kept it from starting may be mended in the configuration.
        // One that had no time to start is left alone: while the provisioner is updated, there may be
        // two of them on the node, and each would replace the other's without end.
        JobState::Pending
            if today.is_some() && job.template.as_deref() != today && had_time_to_start(job) =>
        {
            Standing::InTheWay("which has not started, and would be another one today")
        }
        JobState::Pending => Standing::Waits,
        JobState::Succeeded if job.cleaner != Some(order.class.cleaner.to_string()) => {
            Standing::InTheWay("which cleaned in another way than the class says now")
        }
        JobState::Succeeded => Standing::Done,
        JobState::Failed(why) if order.job.is_some() => Standing::Failed(why.clone()),
        JobState::Failed(_) => Standing::InTheWay("which failed, and Jobs are switched off now"),
    }
}

/// Whether a Job is old enough to have started by now; so is one that does not say how old it is.
fn had_time_to_start(job: &JobView) -> bool {
    job.made_at
        .is_none_or(|made_at| Timestamp::now().duration_since(made_at) >= TIME_TO_START)
}

/// Waits until no Job of the PV's is at work or in the way. Returns the one that has cleaned, if any.
/// `work` is what earlier calls for this cleanup have seen.
pub(in crate::clean) async fn settle(
    ground: &Ground,
    order: &CleanOrder,
    permit: &Permit,
    progress: &Progress,
    work: &mut Watched,
) -> Result<Option<JobView>, Stop> {
    if order.kind != VolumeMode::Block {
        return Ok(None);
    }
    let (table, place, tenancy) = (&ground.table, &ground.jobs, order.pv.tenancy());
    let (name, path) = (job_name(&order.pv.name), &order.path);
    let shown = place.job_of(order);
    let today = order.job.as_ref().zip(place.image.as_ref());
    let today = today.map(|(terms, image)| object::fingerprint(order, terms, place, image));
    let mut watched = place.known.clone();
    let mut still = Still::new();
    let (mut waited, mut called_off) = (false, None);
    loop {
        // Before it is read, so that no change falls in between.
        let before = known(&mut watched, &name);
        let Some(job) = read(ground, order, &name).await? else {
            work.is_gone(ground, order).await?;
            if waited {
                table
                    .mark_waiting(&tenancy, FOR_A_PERMIT)
                    .map_err(Failure::from)?;
                table.mark_job(&tenancy, None).map_err(Failure::from)?;
            }
            if let Some(why) = called_off {
                return Err(Stop::NotDue(why));
            }
            nobody_left(ground, order).await?;
            // Its permit may have gone to somebody else meanwhile.
            return if waited { Err(Stop::Again) } else { Ok(None) };
        };
        let standing = standing(&job, order, today.as_deref());
        let waits_for = match &standing {
            Standing::Done => {
                // Whoever deletes it from here on leaves nothing half clean.
                *work = Watched::default();
                return Ok(Some(job));
            }
            Standing::Failed(why) => return Err(failed(ground, order, &name, why).await.into()),
            Standing::AtWork => {
                still = Still::new();
                work.at_work(ground, order, &job).await;
                if !table.is_running(&tenancy) {
                    tracing::info!(pv = order.pv.name, %path, job = shown, "a Job cleans the volume; waiting for its end");
                    table.mark_running(&tenancy).map_err(Failure::from)?;
                }
                None
            }
            Standing::Waits => match still_due(ground, order).await {
                Err(Stop::NotDue(why)) => {
                    tracing::info!(pv = order.pv.name, %path, job = shown, "deleting the Job, which has not started: {why}");
                    delete(ground, &job).await?;
                    let text = format!("for the end of Job {shown}: {why}");
                    called_off = Some(why);
                    Some(text)
                }
                // No reason to leave the Job alone for long: somebody may want to keep the data.
                Err(Stop::InUse { by, .. }) => {
                    Some(format!("for Job {shown}, whose pod does not run ({by})"))
                }
                judged => {
                    judged?;
                    Some(format!("for Job {shown}, whose pod does not run"))
                }
            },
            Standing::InTheWay(why) => {
                if !job.deleting {
                    tracing::info!(pv = order.pv.name, %path, job = shown, "deleting the Job, {why}");
                    delete(ground, &job).await?;
                }
                Some(format!("for the end of Job {shown}, {why}"))
            }
        };
        if let Some(mut what) = waits_for {
            if still.is_too_long() {
                what = stuck(ground, order, &name);
                if still.is_news() {
                    permit.recall().now();
                    tell(ground, order, &what);
                }
            }
            table.mark_waiting(&tenancy, &what).map_err(Failure::from)?;
        }
        table
            .mark_job(&tenancy, Some(shown.clone()))
            .map_err(Failure::from)?;
        waited = true;
        let pause = pause(ground, &standing, before.is_some());
        tokio::select! {
            () = another(&mut watched, &name, before.as_ref()) => {}
            () = tokio::time::sleep(pause) => {}
            // The next order judges it by the new configuration.
            () = ground.reconfigured(order.generation), if standing != Standing::AtWork => {
                return Err(Stop::NotDue(RECONFIGURED.into()));
            }
            () = progress.cancelled() => {
                return Err(Stop::NotDue("the program is shutting down; a Job that runs goes on, and the next process waits for it".into()));
            }
        }
    }
}

/// How long to wait for news of a Job, which a watch may have told of before.
fn pause(ground: &Ground, standing: &Standing, was_told_of: bool) -> Duration {
    let missing = |verb| ground.cluster.permissions().is_missing(JOBS, verb);
    let is_told_of = was_told_of && !missing("list") && !missing("watch");
    if *standing == Standing::AtWork && is_told_of {
        LOOK_NOW_AND_THEN
    } else {
        LOOK_AGAIN
    }
}

/// For how long a Job has not been at work.
pub(super) struct Still {
    since: Instant,
    told: bool,
}

impl Still {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            told: false,
        }
    }

    /// Whether people ought to know.
    pub(super) fn is_too_long(&self) -> bool {
        self.since.elapsed() >= STANDS_STILL
    }

    /// Whether they have not been told yet; true once.
    pub(super) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

fn stuck(ground: &Ground, order: &CleanOrder, name: &str) -> String {
    let (namespace, path) = (&ground.jobs.namespace, &order.path);
    format!(
        "Job {namespace}/{name} has not been running for {STANDS_STILL:?}, and nothing else cleans {path}: see kubectl \
         --namespace {namespace} describe job {name}; repair what keeps its pod from running; if the Job itself is wrong, \
         another is made after kubectl --namespace {namespace} delete job {name}; other volumes are cleaned meanwhile"
    )
}

/// Says in log and event what somebody ought to look at.
pub(super) fn tell(ground: &Ground, order: &CleanOrder, text: &str) {
    tracing::warn!(pv = order.pv.name, path = %order.path, "{text}");
    let about = About::from(&order.pv.reference());
    let reason = reasons::VOLUME_FAILED_DELETE;
    ground.reporter.warning(&about, reason, "Clean", text);
}

async fn read(ground: &Ground, order: &CleanOrder, name: &str) -> Result<Option<JobView>, Stop> {
    match ground.cluster.job(&ground.jobs.namespace, name).await {
        // It is reported as missing (see `Permissions`). Who may not read Jobs has not made any.
        Err(ApiError::Forbidden { .. }) if order.job.is_none() => Ok(None),
        found => found.map_err(api("reading the cleaning Job")),
    }
}

/// Kubernetes has deleted the Job's pods, and their logs with them. What kept it from cleaning is there
/// for us to see, as far as it is about the device.
async fn failed(ground: &Ground, order: &CleanOrder, name: &str, why: &str) -> Failure {
    let namespace = &ground.jobs.namespace;
    let objection = objection(ground, order).await;
    let seen = objection.as_ref().map_or_else(
        || {
            "its pods are gone, and so are their logs unless something has collected them"
                .to_owned()
        },
        |objection| format!("at the moment: {}", objection.message),
    );
    Failure {
        reason: objection.map_or(reasons::VOLUME_FAILED_DELETE, |it| it.reason),
        ..Failure::lasting(format!(
            "Job {namespace}/{name} failed ({why}), so the volume is not clean; {seen}; it is not tried again until that Job \
             is deleted: kubectl --namespace {namespace} delete job {name}"
        ))
    }
}
