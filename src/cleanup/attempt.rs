//! One attempt to clean a volume: inspect, commit, wipe.
//!
//! Each step requires a value that only the previous step creates. After a crash, the next process starts again
//! with the first step. An attempt never waits and never retries. It ends at the first step that fails and records
//! the cause in the [`ProcTable`](super::table::ProcTable); the plan decides when the next attempt starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash::crash_point;
use crate::host::mark::MarkState;
use crate::metrics::{BY_JOB, BY_PROCESS};
use crate::plan::{CleanOrder, reasons};
use crate::types::VolumeMode;
use crate::wipe::progress::Progress;

use super::commit::{commit, commit_orphan};
use super::monitor::monitor;
use super::release::Wiped;
use super::{BoxedVolume, CleanVolume, CleanupContext, Commit, Failure, Stop, job, mark};

/// Runs an attempt that the table has started, and records its result.
pub async fn attempt(context: &CleanupContext, order: &CleanOrder, progress: &Progress) {
    let tenancy = order.pv.tenancy();
    let result = run(context, order, progress).await;
    // Also if it ended before it noticed: its PV must not be released.
    if let Some(because) = progress.ended() {
        return cancelled(context, order, &because);
    }
    match result {
        Ok(Some(wiped)) => context.table.mark_wiped(&tenancy, Arc::new(wiped)),
        Ok(None) => {
            let shown = context.jobs.shown(&order.pv.name);
            context.table.mark_job(&tenancy, &shown);
        }
        Err(stop) => record(context, order, progress, stop),
    }
}

/// Runs the steps. `None`: a Job was created.
async fn run(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
) -> Result<Option<Wiped>, Stop> {
    let (commit, volume) = match order.orphan_on {
        Some(_) => commit_orphan(context, order).await?,
        None => commit(context, order).await?,
    };
    if mark::is_free(&commit, volume.candidate()) {
        return Ok(Some(Wiped {
            order: commit.order,
            lock: volume.close(),
            pace: progress.pace(Duration::ZERO),
            release: commit.release,
        }));
    }
    if order.cleaned_by.is_none()
        && let Some(terms) = &order.job
    {
        job::create(&commit, terms, volume, context, progress).await?;
        return Ok(None);
    }
    context.table.mark_wiping(&order.pv.tenancy());
    let begun = Instant::now();
    let clean = if let Some(job) = &order.cleaned_by {
        job::check_result(&commit, volume, context, job, progress).await?
    } else {
        wipe(&commit, volume, context, progress).await?
    };
    let created_at = order.cleaned_by.as_ref().and_then(|job| job.created_at);
    let age = created_at.map(|at| context.cluster.now().duration_since(at));
    let took = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_else(|| begun.elapsed());
    if clean.data_left {
        report_data_left(context, order);
    }
    Ok(Some(Wiped {
        order: commit.order,
        lock: clean.lock,
        pace: progress.pace(took),
        release: commit.release,
    }))
}

/// Wipes a volume in this process.
async fn wipe(
    commit: &Commit,
    volume: BoxedVolume,
    context: &CleanupContext,
    progress: &Progress,
) -> Result<CleanVolume, Failure> {
    let order = &commit.order;
    let about = order.about();
    // Durable before the first byte is deleted.
    let volume = volume.mark(commit, MarkState::Wiping).await?;
    tracing::info!("cleaning the volume");
    let text = format!("cleaning {}", order.volume.path);
    let reporter = &context.reporter;
    reporter.normal(&about, reasons::VOLUME_DELETE, "Clean", &text);
    crash_point("wipe");
    monitor(context, order, progress, volume.wipe(commit, progress)).await
}

/// Records and reports that a wipe was cancelled. If it is due again, the next attempt begins at once.
fn cancelled(context: &CleanupContext, order: &CleanOrder, because: &str) {
    let path = &order.volume.path;
    let text =
        format!("{path}: cleaning was cancelled, and a part of its data may be gone: {because}");
    tracing::warn!("{text}");
    let (about, reason) = (order.about(), reasons::CLEANING_CANCELLED);
    context.reporter.warning(&about, reason, "Cancel", &text);
    let tenancy = order.pv.tenancy();
    context.table.mark_blocked(&tenancy, because, None);
}

/// Records why an attempt ended.
fn record(context: &CleanupContext, order: &CleanOrder, progress: &Progress, stop: Stop) {
    let (tenancy, table) = (order.pv.tenancy(), &context.table);
    let path = &order.volume.path;
    let Failure { reason, message } = match stop {
        Stop::InUse { by, notify_after } => {
            tracing::info!("waiting: {by}");
            return table.mark_blocked(&tenancy, &by, Some(notify_after));
        }
        Stop::Changed(why) => {
            tracing::info!("not cleaned: {why}");
            return table.mark_blocked(&tenancy, &why, None);
        }
        Stop::Failed(failure) => failure,
    };
    let last_error = table.get(&tenancy).and_then(|entry| entry.last_error);
    let pause = table.mark_failed(&tenancy, &message);
    if progress.is_cancelled() && !progress.is_timed_out() {
        tracing::info!("the shutdown interrupted the cleanup; the next process starts it again");
        return;
    }
    if reason == reasons::PERMISSION_MISSING && last_error.as_ref() == Some(&message) {
        tracing::debug!("not cleaned: {message}");
        return;
    }
    let by = match &order.job {
        Some(_) => BY_JOB,
        None => BY_PROCESS,
    };
    let labels = [order.volume.candidate.kind.as_str(), by];
    let counter = &context.metrics.delete_failed_total;
    counter.with_label_values(&labels).inc();
    tracing::warn!("cleaning failed, retry in {pause:?}: {message}");
    let (about, message) = (order.about(), format!("{path}: {message}"));
    context.reporter.warning(&about, reason, "Clean", &message);
}

/// Reports that the next tenant can read data that is left on a raw device. Filesystem volumes do not expose it.
fn report_data_left(context: &CleanupContext, order: &CleanOrder) {
    let class = &order.volume.class;
    if class.volume_mode != VolumeMode::Block {
        return;
    }
    let counter = &context.metrics.cleanup_data_left_total;
    counter.with_label_values(&[&class.name]).inc();
    let message = format!(
        "{}: the device cannot discard its contents, so only signatures were overwritten; the next tenant can read what the last one wrote; to prevent that, set cleanMethod of class {:?} to auto, in place of any blockCleanerCommand",
        order.volume.path, class.name
    );
    tracing::warn!("{message}");
    let (about, reason) = (order.about(), reasons::VOLUME_DATA_LEFT);
    context.reporter.warning(&about, reason, "Clean", &message);
}
