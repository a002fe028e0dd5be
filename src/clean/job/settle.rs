//! The Job that is there already, and the wait for its end.

use std::time::{Duration, Instant};

use crate::cluster::ApiError;
use crate::names::job_name;
use crate::plan::{About, CleanOrder, reasons};
use crate::types::VolumeMode;
use crate::view::{JobState, JobView};

use super::{change, delete};
use crate::clean::gate::api;
use crate::clean::oversee::STANDS_STILL;
use crate::clean::permit::Permit;
use crate::clean::progress::Progress;
use crate::clean::{Failure, Ground, Stop};

/// How often a Job is looked at while no watch tells of it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a Job that has the name of ours is to us.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It cleans, or is about to.
    AtWork,
    /// It says that it has cleaned.
    Done,
    /// It could not.
    Failed(String),
    /// It has to go first, and why.
    InTheWay(&'static str),
}

fn standing(job: &JobView, order: &CleanOrder) -> Standing {
    if job.deleting {
        return Standing::InTheWay("which is being deleted");
    }
    if !job.is_for(&order.pv.tenancy()) {
        return Standing::InTheWay("which is another one's or of an earlier claim");
    }
    match &job.state {
        JobState::Pending | JobState::Running => Standing::AtWork,
        JobState::Succeeded => Standing::Done,
        JobState::Failed(why) if order.job.is_some() => Standing::Failed(why.clone()),
        JobState::Failed(_) => Standing::InTheWay("which failed, and Jobs are switched off now"),
    }
}

/// Waits until no Job of the PV's is at work or in the way. Returns the one that has cleaned, if any.
pub(in crate::clean) async fn settle(
    ground: &Ground,
    order: &CleanOrder,
    permit: &Permit,
    progress: &Progress,
) -> Result<Option<JobView>, Stop> {
    if order.kind != VolumeMode::Block {
        return Ok(None);
    }
    let (tenancy, name) = (order.pv.tenancy(), job_name(&order.pv.name));
    let (shown, path) = (ground.jobs.job_of(order), &order.path);
    let mut watched = ground.jobs.known.clone();
    let mut still = Still::new();
    let mut waited = false;
    loop {
        // Before it is read, so that no change falls in between.
        watched.borrow_and_update();
        let Some(job) = read(ground, order, &name).await? else {
            // Its permit may have gone to somebody else meanwhile.
            return if waited { Err(Stop::Again) } else { Ok(None) };
        };
        match standing(&job, order) {
            Standing::Done => return Ok(Some(job)),
            Standing::Failed(why) => {
                return Err(Failure::lasting(failed(ground, &name, &why)).into());
            }
            Standing::AtWork => {
                let table = &ground.table;
                if !table.is_running(&tenancy) {
                    tracing::info!(pv = order.pv.name, %path, job = shown, "a Job cleans the volume; waiting for its end");
                    table.mark_running(&tenancy).map_err(Failure::from)?;
                }
                let mark = table.mark_job(&tenancy, Some(shown.clone()));
                mark.map_err(Failure::from)?;
            }
            Standing::InTheWay(why) => {
                let what = format!("for the end of Job {shown}, {why}");
                let mark = ground.table.mark_waiting(&tenancy, &what);
                mark.map_err(Failure::from)?;
                if !job.deleting {
                    tracing::info!(pv = order.pv.name, %path, job = shown, "deleting the Job, {why}");
                    delete(ground, &job).await?;
                }
            }
        }
        if job.state == JobState::Running && !job.deleting {
            still = Still::new();
        } else if still.for_too_long() {
            permit.recall().now();
            let text = format!(
                "Job {shown} has not been running for {STANDS_STILL:?}, and nothing else cleans {path}; \
                 see kubectl --namespace {} describe job {name}; other volumes are cleaned meanwhile",
                ground.jobs.namespace
            );
            tracing::warn!(pv = order.pv.name, %path, "{text}");
            let about = About::from(&order.pv.reference());
            let reason = reasons::VOLUME_FAILED_DELETE;
            ground.reporter.warning(&about, reason, "Clean", &text);
        }
        waited = true;
        tokio::select! {
            () = change(&mut watched) => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = progress.cancelled() => {
                return Err(Stop::NotDue("the program is shutting down; a Job that runs goes on, and the next process waits for it".into()));
            }
        }
    }
}

/// For how long a Job has not been at work.
struct Still {
    since: Instant,
    told: bool,
}

impl Still {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            told: false,
        }
    }

    /// Whether it is time to say so; true once.
    fn for_too_long(&mut self) -> bool {
        !self.told && {
            self.told = self.since.elapsed() >= STANDS_STILL;
            self.told
        }
    }
}

async fn read(ground: &Ground, order: &CleanOrder, name: &str) -> Result<Option<JobView>, Stop> {
    match ground.cluster.job(&ground.jobs.namespace, name).await {
        // It is reported as missing (see `Permissions`). Who may not read Jobs has not made any.
        Err(ApiError::Forbidden { .. }) if order.job.is_none() => Ok(None),
        found => found.map_err(api("reading the cleaning Job")),
    }
}

fn failed(ground: &Ground, name: &str, why: &str) -> String {
    let namespace = &ground.jobs.namespace;
    format!(
        "Job {namespace}/{name} failed ({why}), so the volume is not clean; what it said: kubectl --namespace {namespace} \
         logs job/{name}; it is not tried again until that Job is deleted: kubectl --namespace {namespace} delete job {name}"
    )
}
