//! Cleaning by Jobs (`useJobForCleaning`): devices only, as in the Go provisioner.
//!
//! One attempt commits the PV and creates the Job. After the Job has succeeded, another attempt passes the gate,
//! commits again and verifies the device, because the Job's image may be a foreign one. In between, the plan
//! ([`crate::plan`]) follows the Job.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::ApiError;
use crate::cluster::REMEDY;
use crate::crash::crash_point;
use crate::host::device::Device;
use crate::metrics::BY_JOB;
use crate::names::job_name;
use crate::plan::{About, CleanOrder, NO_JOB_IMAGE, job_object, reasons};
use crate::view::JobView;

use super::commit::Committed;
use super::gate::api;
use super::oversee::oversee;
use super::wipe::{Cleaned, Wiped};
use super::{CleanVolume, CleanupContext, Commit, Failure, NotifyAfter, Stop, attempt};
use crate::wipe::device::{self, WipeOutcome};
use crate::wipe::error::WipeError;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// Fails unless the PV still has the Job that the plan saw. Without a Job, fails if a pod of a deleted one is left.
pub(super) async fn is_unchanged(context: &CleanupContext, order: &CleanOrder) -> Result<(), Stop> {
    let (namespace, name) = (&context.jobs.namespace, job_name(&order.pv.name));
    let found = match context.cluster.job(namespace, &name).await {
        // Without permission to read Jobs, this provisioner has created none.
        Err(ApiError::Forbidden { .. }) if order.job.is_none() => None,
        found => found.map_err(api("reading the cleaning Job"))?,
    };
    let planned = order.cleaned_by.as_ref();
    if found.as_ref().map(|job| &job.uid) != planned.map(|job| &job.uid) {
        return Err(Stop::NotDue(format!("its Job {namespace}/{name} changed")));
    }
    match found {
        Some(_) => Ok(()),
        None => no_pods(context, order).await,
    }
}

/// Fails if a pod of a deleted Job is left: it could wipe the device when the next tenant has it. Deleting a Job
/// leaves its pods unless the request sets a propagation policy.
pub(super) async fn no_pods(context: &CleanupContext, order: &CleanOrder) -> Result<(), Stop> {
    let namespace = &context.jobs.namespace;
    let pods = match context.cluster.pods_of_jobs(namespace, &order.pv.uid).await {
        // Older installations lack the permission, as in the gate.
        Err(ApiError::Forbidden { .. }) => Vec::new(),
        pods => pods.map_err(api("listing the pods of cleaning Jobs"))?,
    };
    if pods.is_empty() {
        return Ok(());
    }
    let pods = pods.join(" ");
    Err(Stop::InUse {
        by: format!(
            "pods of a deleted cleaning Job still exist: {pods}; if they do not end: kubectl --namespace {namespace} delete pod {pods}"
        ),
        notify: NotifyAfter::ShortUse,
    })
}

/// Creates the Job, which opens and locks the device itself, and checks the identity. The device is closed first, and
/// the lock held until the Job is there.
pub(super) async fn create(
    committed: Committed,
    context: &CleanupContext,
    progress: &Progress,
) -> Result<(), Stop> {
    let (commit, device) = committed.into_device()?;
    let order = commit.order();
    let source = &context.jobs;
    let (Some(terms), Some(image)) = (&order.job, &source.image) else {
        return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, NO_JOB_IMAGE).into());
    };
    let job = job_object::job(
        order,
        terms,
        source,
        image,
        commit.identity(),
        device.candidate().capacity,
        context.cluster.now(),
    );
    let lock = device.close();
    if progress.is_cancelled() {
        return Err(Stop::NotDue("the program is shutting down".into()));
    }
    let shown = source.shown(&order.pv.name);
    crash_point("create-job");
    let created = context.cluster.create_job(&source.namespace, &job).await;
    drop(lock);
    match created {
        Ok(()) => {
            let text = format!("cleaning {} by Job {shown}", order.path);
            tracing::info!(pv = order.pv.name, job = shown, "{text}");
            let about = About::from(&order.pv.reference());
            let reason = reasons::VOLUME_DELETE;
            context.reporter.normal(&about, reason, "Clean", &text);
            Ok(())
        }
        // The next pass reads that Job.
        Err(ApiError::Conflict) => Err(Stop::Again),
        Err(error @ ApiError::Forbidden { .. }) => Err(Failure::new(
            reasons::PERMISSION_MISSING,
            format!(
                "creating Job {shown} failed: {error}; without this permission no device is cleaned by Jobs; {REMEDY}, or set useJobForCleaning to false"
            ),
        )
        .into()),
        Err(error) => Err(api("creating the cleaning Job")(error)),
    }
}

/// Verifies the device after a Job. If it is not clean, the Job is deleted and the next attempt creates another.
pub(super) async fn check_result(
    committed: Committed,
    context: &CleanupContext,
    job: &JobView,
    progress: &Progress,
) -> Result<Wiped, Failure> {
    let (commit, device) = committed.into_device()?;
    let order = commit.order();
    // Boxed, so that the futures around it stay small.
    let work = Box::pin(async {
        is_same_device(&commit, job)?;
        device.verify(&commit, progress).await
    });
    match oversee(context, order, progress, work).await {
        Ok(CleanVolume { outcome, lock }) => {
            let cleaned = Cleaned {
                order: commit.into_order(),
                outcome,
                lock,
            };
            let wiped = Wiped::new(cleaned, BY_JOB, begun_at(context, job));
            attempt::report_data_left(context, &wiped);
            Ok(wiped)
        }
        Err(failure) if failure.stopped => Err(failure),
        Err(failure) => {
            let shown = context.jobs.shown(&order.pv.name);
            crash_point("delete-job");
            let deleted = context
                .cluster
                .delete_job(&context.jobs.namespace, job)
                .await;
            if let Err(error) = deleted {
                tracing::warn!(pv = order.pv.name, job = shown, %error, "cannot delete the Job whose device is not clean");
            }
            Err(Failure {
                message: format!(
                    "Job {shown} succeeded, but the device is not clean: {}",
                    failure.message
                ),
                ..failure
            })
        }
    }
}

/// The start of a Job by this process's monotonic clock.
fn begun_at(context: &CleanupContext, job: &JobView) -> Instant {
    let now = Instant::now();
    let age = job.made_at.and_then(|made_at| {
        let age = context.cluster.now().duration_since(made_at);
        Duration::try_from(age).ok()
    });
    age.and_then(|age| now.checked_sub(age)).unwrap_or(now)
}

fn is_same_device(commit: &Commit, job: &JobView) -> Result<(), Failure> {
    let (identity, of_job) = (commit.identity(), job.identity.as_deref());
    if of_job == Some(identity) {
        return Ok(());
    }
    let text = format!(
        "the Job was created for {:?}, but the device is {identity:?}",
        of_job.unwrap_or_default()
    );
    Err(Failure::new(reasons::VOLUME_FAILED_DELETE, text))
}

/// Checks that a device is as clean as its method requires. Reads samples, writes nothing. Blocking.
pub(super) fn check(
    method: &Method,
    device: &Device,
    progress: &Progress,
) -> Result<Option<WipeOutcome>, Failure> {
    crash_point("verify");
    let (file, size) = (device.file(), device.size());
    device::check_reset(file, size, progress)?;
    match method {
        Method::Discard | Method::Zero { .. } | Method::Overwrite { .. } => {
            device::check_zeroed(file, size, progress)?;
        }
        Method::QuickReset => {
            return Ok(data_left(device::check_zeroed(file, size, progress))?);
        }
        Method::Command(_) | Method::DeleteContents => {}
    }
    Ok(None)
}

/// Whether a quick reset left data. A device that cannot be read is not clean.
fn data_left(zeroed: Result<(), WipeError>) -> Result<Option<WipeOutcome>, WipeError> {
    match zeroed {
        Ok(()) => Ok(None),
        Err(WipeError::NotZero(_)) => Ok(Some(WipeOutcome::SignaturesOnly)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_are_not_zero_are_data_that_was_left() {
        let unreadable = WipeError::Failed("a bad sector".into());
        assert!(matches!(data_left(Ok(())), Ok(None)));
        assert!(matches!(
            data_left(Err(WipeError::NotZero(4096))),
            Ok(Some(WipeOutcome::SignaturesOnly))
        ));
        let left = data_left(Err(unreadable.clone()));
        assert!(matches!(left, Err(error) if error == unreadable));
    }
}
