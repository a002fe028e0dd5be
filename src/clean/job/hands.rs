//! What goes from hand to hand: the volume to a Job, and the clean volume back.

use std::time::Duration;

use crate::cluster::{ApiError, REMEDY};
use crate::crash::crash_point;
use crate::host::device::Device;
use crate::plan::{About, CleanOrder, NO_JOB_IMAGE, reasons};
use crate::view::JobView;

use super::settle::{Still, tell};
use super::{another, delete, known, nobody_left, object};
use crate::clean::blocking::blocking;
use crate::clean::commit::Committed;
use crate::clean::device::{self, Means};
use crate::clean::gate::{SHUTTING_DOWN, api};
use crate::clean::method::Method;
use crate::clean::oversee::{STANDS_STILL, oversee};
use crate::clean::permit::Permit;
use crate::clean::progress::Progress;
use crate::clean::volume::Volume;
use crate::clean::wipe::{self, Wiped};
use crate::clean::{Failure, Ground, Stop};

/// The first and the longest pause after a finished Job could not be deleted.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Committed {
    /// Has a Job clean the volume. Device and lock are let go: the Job takes both itself, and looks
    /// whether it is the right device. The permit stays.
    ///
    /// # Errors
    /// [`Stop`] if no Job was made.
    pub(in crate::clean) async fn hand_over(
        self,
        ground: &Ground,
        progress: &Progress,
    ) -> Result<Permit, Stop> {
        let Self {
            order,
            identity,
            volume,
            lock,
            permit,
        } = self;
        let (Some(terms), Volume::Device(device)) = (&order.job, volume) else {
            return Err(not_a_device().into());
        };
        let place = &ground.jobs;
        let Some(image) = &place.image else {
            return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, NO_JOB_IMAGE).into());
        };
        let job = object::job(&order, terms, place, image, &identity, device.size());
        drop((device, lock));
        // Nobody might come after us who looks after it.
        if progress.is_cancelled() {
            return Err(Stop::NotDue(SHUTTING_DOWN.into()));
        }
        let shown = place.job_of(&order);
        crash_point("create-job");
        match ground.cluster.create_job(&place.namespace, &job).await {
            Ok(()) => {
                let text = format!("cleaning {} by Job {shown}", order.path);
                tracing::info!(pv = order.pv.name, job = shown, "{text}");
                let about = About::from(&order.pv.reference());
                let reason = reasons::VOLUME_DELETE;
                ground.reporter.normal(&about, reason, "Clean", &text);
                Ok(permit)
            }
            // The next look at it says whose it is.
            Err(ApiError::AlreadyExists | ApiError::Conflict) => Err(Stop::Again),
            Err(error @ ApiError::Forbidden { .. }) => Err(Failure::new(
                reasons::PERMISSION_MISSING,
                format!(
                    "making Job {shown} failed: {error}; without this right no device is cleaned by Jobs; {REMEDY}, or \
                     switch useJobForCleaning off"
                ),
            )
            .into()),
            Err(error) => Err(api("making the cleaning Job")(error)),
        }
    }

    /// Takes a Job's work over, if it is good: looks at the device, and sends the Job away.
    ///
    /// # Errors
    /// [`Failure`] if the device is not clean. The Job is deleted then, so that the next try makes
    /// another one.
    pub(in crate::clean) async fn accept(
        self,
        ground: &Ground,
        job: &JobView,
        progress: &Progress,
    ) -> Result<Wiped, Failure> {
        let Self {
            order,
            identity,
            volume,
            lock,
            permit,
        } = self;
        let Volume::Device(device) = volume else {
            return Err(not_a_device());
        };
        let work = {
            let (order, job, progress) = (order.clone(), job.clone(), progress.clone());
            // Device and lock go where the work is: it may outlive this task, hanging in a system call.
            move || {
                let means = check(&order, &job, &identity, &device, &progress)?;
                Ok((means, device, lock))
            }
        };
        // On the heap, or each future around it would be as large.
        let work = Box::pin(blocking(true, work));
        match oversee(ground, &order, progress, &permit.recall(), work).await {
            Ok((means, _device, lock)) => {
                // The disk's work is done.
                permit.recall().now();
                send_away(ground, &order, job, progress).await?;
                Ok(Wiped {
                    order,
                    means,
                    _lock: lock,
                })
            }
            Err(failure) if failure.stopped => Err(failure),
            Err(failure) => {
                if let Err(error) = delete(ground, job).await {
                    tracing::warn!(pv = order.pv.name, job = job.name, %error, "the Job whose result is not clean stays");
                }
                Err(Failure {
                    message: format!(
                        "Job {} says that it cleaned the device, and it is not so: {}",
                        ground.jobs.job_of(&order),
                        failure.message
                    ),
                    ..failure
                })
            }
        }
    }
}

fn not_a_device() -> Failure {
    Failure::new(
        reasons::VOLUME_FAILED_DELETE,
        "a Job is to clean what is no device; this is a bug, and nothing was touched",
    )
}

/// Makes sure that a device is as clean as its method leaves one. Blocking.
fn check(
    order: &CleanOrder,
    job: &JobView,
    identity: &str,
    device: &Device,
    progress: &Progress,
) -> Result<Option<Means>, Failure> {
    if job.identity.as_deref() != Some(identity) {
        let text = format!(
            "it was made for {:?}, and the device is {identity:?}",
            job.identity.as_deref().unwrap_or_default()
        );
        return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, text));
    }
    crash_point("verify");
    let (file, size) = (device.file(), device.size());
    let means = match order.method {
        // That takes seconds, and what the Job did does not matter any more.
        Method::QuickReset => {
            wipe::reset(device, &order.method, progress)?.map(|report| report.means)
        }
        // To discard once more might mean to write all of a device that does not discard.
        Method::Discard | Method::Zero { .. } | Method::Overwrite { .. } => {
            device::check_reset(file, size, progress)?;
            device::check_zeroed(file, size, progress)?;
            None
        }
        Method::Command(_) | Method::DeleteContents => {
            device::check_reset(file, size, progress)?;
            None
        }
    };
    Ok(means)
}

/// Deletes the Job, and waits until it and its pods are gone: a new tenant must not meet them.
async fn send_away(
    ground: &Ground,
    order: &CleanOrder,
    job: &JobView,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut watched = ground.jobs.known.clone();
    let mut pause = PAUSES.0;
    let mut asked = false;
    let mut still = Still::new();
    loop {
        let before = known(&mut watched, &job.name);
        let found = ground.cluster.job(&ground.jobs.namespace, &job.name).await;
        let step = match found {
            Ok(Some(found)) if found.uid == job.uid => {
                let ask = !std::mem::replace(&mut asked, true) && !found.deleting;
                if ask {
                    delete(ground, job).await
                } else {
                    Ok(())
                }
            }
            Ok(_) => match nobody_left(ground, order).await {
                Ok(()) => return Ok(()),
                left => left,
            },
            Err(error) => Err(api("reading the cleaning Job")(error)),
        };
        if still.is_too_long() && still.is_news() {
            let (shown, namespace) = (ground.jobs.job_of(order), &ground.jobs.namespace);
            let text = format!(
                "the volume is clean, but its PV stays: Job {shown} and its pods have not gone for {STANDS_STILL:?}; see kubectl \
                 --namespace {namespace} get jobs,pods --selector pvuuid={}",
                order.pv.uid
            );
            tell(ground, order, &text);
        }
        if let Err(error) = step {
            tracing::warn!(
                pv = order.pv.name, path = %order.path, job = ground.jobs.job_of(order), %error,
                "the volume is clean, but its Job and pods are not gone; trying again in {pause:?}"
            );
            asked = false;
            pause = (pause * 2).min(PAUSES.1);
        }
        tokio::select! {
            () = another(&mut watched, &job.name, before.as_ref()), if asked => {}
            () = tokio::time::sleep(pause) => {}
            () = progress.cancelled() => {}
        }
        progress.check().map_err(|stopped| Failure {
            stopped: true,
            ..Failure::new(reasons::VOLUME_FAILED_DELETE, stopped.to_string())
        })?;
    }
}
