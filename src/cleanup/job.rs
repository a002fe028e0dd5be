//! Cleaning by Jobs (`useJobForCleaning`): devices only, as in the Go provisioner.
//!
//! One attempt commits the PV and creates the Job. After the Job has succeeded, another attempt passes the gate,
//! commits again and verifies the device, because the Job's image may be a foreign one. In between, the plan
//! ([`crate::plan`]) follows the Job.

use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::mark::MarkState;
use crate::names::job_name;
use crate::plan::{CleanOrder, JobTerms, job_object, reasons};
use crate::retry;
use crate::view::JobView;
use crate::wipe::device::Disk;
use crate::wipe::error::WipeError;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

use super::gate::{api, write};
use super::monitor::monitor;
use super::{BoxedVolume, CleanVolume, CleanupContext, Commit, Failure, Stop};

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
        let text = format!("its Job {namespace}/{name} changed");
        return Err(Stop::Changed(text));
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
    let names = pods.iter().filter_map(|pod| pod.name.split('/').nth(1));
    let pods = names.collect::<Vec<_>>().join(" ");
    Err(Stop::InUse {
        by: format!(
            "pods of a deleted cleaning Job still exist: {pods}; if they do not end: kubectl --namespace {namespace} delete pod {pods}"
        ),
        notify_after: retry::SHORT_USE,
    })
}

/// Creates the Job, which opens and locks the device itself, and checks the identity. The device is closed first, and
/// the lock held until the Job is there.
pub(super) async fn create(
    commit: &Commit,
    terms: &JobTerms,
    device: BoxedVolume,
    context: &CleanupContext,
    progress: &Progress,
) -> Result<(), Stop> {
    let (order, source) = (&commit.order, &context.jobs);
    let (size, now) = (device.candidate().capacity, context.cluster.now());
    let job = job_object::job(order, terms, source, commit.identity(), size, now);
    // Not `wiping`: the Job may never start.
    let lock = device.mark(commit, MarkState::Used).await?.close();
    if progress.is_cancelled() {
        return Err(Stop::Changed("the program is shutting down".into()));
    }
    crash_point("create-job");
    let created = context.cluster.create_job(&source.namespace, &job).await;
    drop(lock);
    created.map_err(|error| match error {
        ApiError::NotFound => Failure::new(format!(
            "the namespace {} of cleaning Jobs does not exist",
            source.namespace
        ))
        .into(),
        error => write("creating the cleaning Job")(error),
    })?;
    let shown = source.shown(&order.pv.name);
    let text = format!("cleaning {} by Job {shown}", order.volume.path);
    tracing::info!(job = shown, "{text}");
    let (about, reason) = (order.about(), reasons::VOLUME_DELETE);
    context.reporter.normal(&about, reason, "Clean", &text);
    Ok(())
}

/// Verifies the device after a Job. If it is not clean, the Job is deleted and the next attempt creates another.
pub(super) async fn check_result(
    commit: &Commit,
    device: BoxedVolume,
    context: &CleanupContext,
    job: &JobView,
    progress: &Progress,
) -> Result<CleanVolume, Failure> {
    let order = &commit.order;
    // Boxed, so that the futures around it stay small.
    let work = Box::pin(async {
        is_same_device(commit, job)?;
        device.verify(commit, progress).await
    });
    let failure = match monitor(context, order, progress, work).await {
        Err(failure) if !progress.is_cancelled() || progress.is_timed_out() => failure,
        done => return done,
    };
    let (namespace, shown) = (&context.jobs.namespace, context.jobs.shown(&order.pv.name));
    crash_point("delete-job");
    if let Err(error) = context.cluster.delete_job(namespace, job).await {
        tracing::warn!(job = shown, %error, "cannot delete the Job whose device is not clean");
    }
    let text = format!("Job {shown} succeeded, but the device is not clean: {}", failure.message);
    Err(Failure::with_reason(failure.reason, text))
}

fn is_same_device(commit: &Commit, job: &JobView) -> Result<(), Failure> {
    let of_job = job.identity.as_deref().unwrap_or_default();
    if of_job == commit.identity() {
        return Ok(());
    }
    let text =
        format!("the Job was created for {of_job:?}, but the device is {:?}", commit.identity());
    Err(Failure::new(text))
}

/// Checks that a device is as clean as its method requires, and returns whether a quick reset left data. Reads samples,
/// writes nothing. Blocking.
pub(super) fn check(
    method: &Method,
    device: &Device,
    progress: &Progress,
) -> Result<bool, Failure> {
    crash_point("verify");
    let disk = Disk::new(device.file(), device.size(), progress);
    disk.check_reset()?;
    match method {
        Method::Discard | Method::Zero { .. } | Method::Overwrite { .. } => {
            disk.check_zeroed()?;
        }
        Method::QuickReset => {
            return Ok(data_left(disk.check_zeroed())?);
        }
        Method::Command(_) | Method::DeleteContents | Method::Reformat => {}
    }
    Ok(false)
}

/// Whether a quick reset left data. A device that cannot be read is not clean.
fn data_left(zeroed: Result<(), WipeError>) -> Result<bool, WipeError> {
    match zeroed {
        Ok(()) => Ok(false),
        Err(WipeError::NotZero(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_are_not_zero_are_data_that_was_left() {
        let unreadable = WipeError::Failed("a bad sector".into());
        assert_eq!(data_left(Ok(())), Ok(false));
        assert_eq!(data_left(Err(WipeError::NotZero(4096))), Ok(true));
        let left = data_left(Err(unreadable.clone()));
        assert_eq!(left, Err(unreadable));
    }
}
