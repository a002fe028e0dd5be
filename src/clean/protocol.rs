//! One cleanup from beginning to end.
//!
//! Permit, gate, commit, wipe, release: each step is a value that only the step before can make, and
//! a crash between any two of them means that the next process begins again at the first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::config::Cleaner;
use crate::metrics::capacity_step;
use crate::plan::{About, CleanOrder, reasons};
use crate::types::VolumeMode;
use crate::view::JobView;

use super::commit::Committed;
use super::device::Means;
use super::gate::{RECONFIGURED, gate};
use super::oversee::oversee;
use super::permit::Permit;
use super::progress::Progress;
use super::table::Patience;
use super::wipe::Wiped;
use super::{Failure, Ground, Stop, Tell, job};

/// Who cleans, in the words of the metrics' label `type`.
const PROCESS: &str = "process";
const JOB: &str = "job";

/// How often a volume in use is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long programs take that only look at a disk.
const GLANCE: Duration = Duration::from_secs(3);
/// How long that goes on before people are told and the pauses get longer.
const PATIENCE: Duration = Duration::from_mins(1);
/// The first and the longest of the longer pauses.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));
/// The pause after a lost race with another writer of the PV; after each further one, longer.
const RACE: Duration = Duration::from_millis(50);

/// Cleans one volume, and enters how far it is into the table. The caller has begun the entry.
pub async fn clean(ground: Arc<Ground>, order: CleanOrder, progress: Progress) {
    let tenancy = order.pv.tenancy();
    let (pv, path) = (order.pv.name.clone(), order.path.clone());
    let about = About::from(&order.pv.reference());
    let mode = order.kind.as_str();
    let by = if order.job.is_some() { JOB } else { PROCESS };
    let lacked = ground.lacking();
    let ended = run(&ground, order, &progress).await;
    let entry = ground.table.get(&tenancy);
    let told = entry.and_then(|entry| entry.last_error);
    match ended {
        Err(Stop::Failed(failure)) if progress.is_cancelled() && !progress.is_timed_out() => {
            tracing::info!(pv, %path, "cleaning was interrupted by the shutdown; the next process begins anew");
            let _ = ground
                .table
                .mark_failed(&tenancy, &failure.message, Patience::Constant);
        }
        Ok(()) => {
            if let Err(error) = ground.table.mark_succeeded(&tenancy) {
                tracing::error!(pv, %path, %error, "the finished cleanup is not in the table; this is a bug");
            }
        }
        Err(Stop::Failed(failure)) => {
            // A missing right may be granted at any moment, and asking for it destroys nothing.
            let for_lack_of_right = failure.reason == reasons::PERMISSION_MISSING;
            let patience = match failure {
                _ if for_lack_of_right => Patience::Constant,
                Failure { lasts: true, .. } => Patience::Long,
                _ => Patience::Growing,
            };
            let pause = ground
                .table
                .mark_failed(&tenancy, &failure.message, patience)
                .unwrap_or_default();
            // What was known before has been told, and this only asked once more.
            let was_known = for_lack_of_right && ground.lacking().is_subset(&lacked)
                || failure.lasts && told.as_ref() == Some(&failure.message);
            if was_known {
                tracing::debug!(pv, %path, "not cleaned: {}", failure.message);
            } else {
                ground
                    .metrics
                    .delete_failed_total
                    .with_label_values(&[mode, by])
                    .inc();
                let message = format!("{path}: {}", failure.message);
                if failure.lasts {
                    tracing::warn!(pv, %path, "cleaning failed: {}", failure.message);
                } else {
                    tracing::warn!(pv, %path, "cleaning failed, next try in {pause:?}: {}", failure.message);
                }
                ground
                    .reporter
                    .warning(&about, failure.reason, "Clean", &message);
            }
            // The loop would come by only at the end of its period.
            let retry = Arc::clone(&ground.wake);
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                retry.notify_one();
            });
        }
        Err(stop) => {
            tracing::info!(pv, %path, "not cleaned: {stop}");
            // A Job of its may have been at work.
            let _ = ground.table.mark_waiting(&tenancy, &stop.to_string());
            if let Err(error) = ground.table.remove_entry(&tenancy) {
                tracing::error!(pv, %path, %error, "the ended cleanup stays in the table; this is a bug");
            }
        }
    }
    // What comes next is up to the main loop, which took this cleanup to be at work until now.
    ground.wake.notify_one();
}

async fn run(ground: &Ground, order: CleanOrder, progress: &Progress) -> Result<(), Stop> {
    let tenancy = order.pv.tenancy();
    let about = About::from(&order.pv.reference());
    let mut wait = Wait::default();
    let mut races = 0;
    let mut held = None;
    let mut work = job::Watched::default();
    let (committed, job) = loop {
        let permit = if let Some(permit) = held.take() {
            permit
        } else {
            tokio::select! {
                permit = ground.permits.acquire(&order.rotational) => permit,
                () = progress.cancelled() => return Err(work.is_left(ground, &order)),
                () = ground.reconfigured(order.generation), if !work.has_begun() => {
                    return Err(Stop::NotDue(RECONFIGURED.into()));
                }
            }
        };
        let stop = match enter(ground, &order, permit, progress, &mut work).await {
            Ok((committed, None)) if order.job.is_some() => {
                match committed.hand_over(ground, progress).await {
                    Ok(permit) => {
                        // What that Job fails at is news.
                        ground.table.forget_error(&tenancy).map_err(Failure::from)?;
                        held = Some(permit);
                        continue;
                    }
                    Err(stop) => stop,
                }
            }
            Ok(entered) => break entered,
            Err(stop) => stop,
        };
        let pause = match stop {
            Stop::Again => {
                races += 1;
                (RACE * races).min(LOOK_AGAIN)
            }
            Stop::InUse { by, tell } => {
                ground
                    .table
                    .mark_waiting(&tenancy, &by)
                    .map_err(Failure::from)?;
                wait.pause(&by, tell, |text| {
                    tracing::info!(pv = order.pv.name, path = %order.path, "waiting: {text}");
                    ground
                        .reporter
                        .warning(&about, reasons::VOLUME_IN_USE, "Clean", text);
                })
            }
            Stop::NotDue(why) => {
                // What the main loop sees is older than what the API server said just now. Until the
                // watch has caught up, it would send us again and again.
                let _ = ground.table.mark_waiting(&tenancy, &why);
                tokio::select! {
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                    () = progress.cancelled() => {}
                }
                return Err(Stop::NotDue(why));
            }
            stop @ Stop::Failed(_) => return Err(stop),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = progress.cancelled() => return Err(work.is_left(ground, &order)),
            // A Job at work is waited for all the same, and the next order would not know of it.
            () = ground.reconfigured(order.generation), if !work.has_begun() => {
                return Err(Stop::NotDue(RECONFIGURED.into()));
            }
        }
    };
    let tenancy = order.pv.tenancy();
    if !ground.table.is_running(&tenancy) {
        ground.table.mark_running(&tenancy).map_err(Failure::from)?;
    }
    match job {
        None => {
            let begun = Instant::now();
            let wiped = wipe(ground, committed, &order, progress).await?;
            release(ground, &order, wiped, (PROCESS, begun), progress).await
        }
        Some(job) => {
            let begun = begun_at(&job);
            let wiped = committed.accept(ground, &job, progress).await?;
            release(ground, &order, wiped, (JOB, begun), progress).await
        }
    }
}

/// Waits for a Job that is there, and passes the gate and the commit. With a Job in the answer the
/// volume is clean, if that Job is right.
async fn enter(
    ground: &Ground,
    order: &CleanOrder,
    permit: Permit,
    progress: &Progress,
    work: &mut job::Watched,
) -> Result<(Committed, Option<JobView>), Stop> {
    let job = job::settle(ground, order, &permit, progress, work).await?;
    let gated = gate(ground, order.clone(), permit).await?;
    Ok((gated.commit(ground).await?, job))
}

/// When a Job began, by this process's clock.
fn begun_at(job: &JobView) -> Instant {
    let now = Instant::now();
    let age = job.made_at.and_then(|made_at| {
        let age = Timestamp::now().duration_since(made_at);
        Duration::try_from(age).ok()
    });
    age.and_then(|age| now.checked_sub(age)).unwrap_or(now)
}

/// Wipes a volume in this process.
async fn wipe(
    ground: &Ground,
    committed: Committed,
    order: &CleanOrder,
    progress: &Progress,
) -> Result<Wiped, Failure> {
    let about = About::from(&order.pv.reference());
    tracing::info!(pv = order.pv.name, path = %order.path, "cleaning the volume");
    let text = format!("cleaning {}", order.path);
    ground
        .reporter
        .normal(&about, reasons::VOLUME_DELETE, "Clean", &text);
    let recall = committed.recall();
    // On the heap, or each future around it would be as large.
    let wipe = Box::pin(committed.wipe(progress));
    oversee(ground, order, progress, &recall, wipe).await
}

/// Lets a clean volume's PV go; `(by, begun)` is who cleaned it, and since when.
async fn release(
    ground: &Ground,
    order: &CleanOrder,
    wiped: Wiped,
    (by, begun): (&str, Instant),
    progress: &Progress,
) -> Result<(), Stop> {
    let mode = order.kind.as_str();
    let took = begun.elapsed();
    if wiped.means == Some(Means::SignaturesOnly) && order.class.volume_mode == VolumeMode::Block {
        tell_of_data_left(ground, order);
    }
    wiped
        .release(ground, progress)
        .await
        .map_err(|cancelled| Failure::new(reasons::VOLUME_FAILED_DELETE, cancelled.to_string()))?;
    ground
        .metrics
        .delete_total
        .with_label_values(&[mode, by])
        .inc();
    ground
        .metrics
        .delete_duration
        .with_label_values(&[
            mode,
            by,
            &capacity_step(order.capacity),
            &order.class.cleaner.to_string(),
        ])
        .observe(begun.elapsed().as_secs_f64());
    tracing::info!(pv = order.pv.name, path = %order.path, "the volume is clean (in {took:?}) and its PV released");
    Ok(())
}

/// Says that the next tenant of a raw device can read it. (Behind a filesystem nobody can.)
fn tell_of_data_left(ground: &Ground, order: &CleanOrder) {
    let class = &order.class.name;
    ground
        .metrics
        .cleanup_data_left_total
        .with_label_values(&[class])
        .inc();
    let instead = match order.class.cleaner {
        Cleaner::Method(_) => "",
        Cleaner::Command(_) => " (in place of blockCleanerCommand)",
    };
    let message = format!(
        "{}: the device cannot drop its contents, so only signatures were overwritten, and the next tenant can read \
         what the last one wrote; where that matters, set cleanMethod of class {class:?} to auto{instead}",
        order.path
    );
    tracing::warn!(pv = order.pv.name, "{message}");
    let about = About::from(&order.pv.reference());
    ground
        .reporter
        .warning(&about, reasons::VOLUME_DATA_LEFT, "Clean", &message);
}

/// The patience with a volume in use.
#[derive(Debug, Default)]
struct Wait {
    since: Option<Instant>,
    told: Option<String>,
    pause: Option<Duration>,
}

impl Wait {
    /// How long to wait before the next look; `say` is called when people ought to know.
    fn pause(&mut self, by: &str, tell: Tell, say: impl FnOnce(&str)) -> Duration {
        let lasted = self.since.get_or_insert_with(Instant::now).elapsed();
        let silence = match tell {
            Tell::AtOnce => Duration::ZERO,
            Tell::Soon => GLANCE,
            Tell::IfItLasts => PATIENCE,
        };
        if lasted >= silence && self.told.as_deref() != Some(by) {
            say(by);
            self.told = Some(by.to_owned());
        }
        if lasted < PATIENCE {
            return LOOK_AGAIN;
        }
        let pause = self
            .pause
            .map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
        self.pause = Some(pause);
        pause
    }
}
