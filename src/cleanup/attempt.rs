//! One attempt to clean a volume: inspect, commit, wipe, release.
//!
//! Each step requires a value that only the previous step creates. After a crash, the next process starts again
//! with the first step. An attempt never waits and never retries. It ends at the first step that fails and records
//! the cause in the [`ProcTable`](super::table::ProcTable); the plan decides when the next attempt starts.

use std::sync::Arc;

use tokio::time::Instant;

use crate::config::Cleaner;
use crate::metrics::{BY_JOB, BY_PROCESS, capacity_step};
use crate::plan::{About, CleanOrder, reasons};
use crate::types::VolumeMode;
use crate::view::Tenancy;

use super::commit::Committed;
use super::gate::gate;
use super::oversee::oversee;
use super::wipe::{Cleaned, Wiped};
use super::{CleanupContext, Failure, Stop, job};
use crate::wipe::device::WipeOutcome;
use crate::wipe::progress::Progress;

/// Runs an attempt that the table has started, and records its result.
pub async fn attempt(context: Arc<CleanupContext>, order: CleanOrder, progress: Progress) {
    let tenancy = order.pv.tenancy();
    match run(&context, &order, &progress).await {
        // The plan deletes the Job before the release.
        Ok(Some(wiped)) if order.cleaned_by.is_some() => {
            context.table.mark_wiped(&tenancy, Arc::new(wiped));
        }
        Ok(Some(wiped)) => release(&context, &tenancy, Arc::new(wiped)).await,
        Ok(None) => {
            let shown = context.jobs.shown(&order.pv.name);
            context.table.mark_job(&tenancy, &shown);
        }
        Err(stop) => record(&context, &order, &progress, stop),
    }
    // The last pass saw this attempt running.
    context.wake.notify_one();
}

/// Runs the steps. `None`: a Job was created.
async fn run(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
) -> Result<Option<Wiped>, Stop> {
    let gated = gate(context, order.clone()).await?;
    // Under the lock, which another provisioner of this node holds until its Job is there.
    if order.kind == VolumeMode::Block {
        job::is_unchanged(context, order).await?;
    }
    let committed = gated.commit(context).await?;
    let tenancy = order.pv.tenancy();
    if let Some(job) = &order.cleaned_by {
        context.table.mark_wiping(&tenancy);
        let wiped = job::check_result(committed, context, job, progress).await?;
        return Ok(Some(wiped));
    }
    if order.job.is_some() {
        job::create(committed, context, progress).await?;
        return Ok(None);
    }
    context.table.mark_wiping(&tenancy);
    Ok(Some(wipe(context, committed, order, progress).await?))
}

/// Wipes a volume in this process.
async fn wipe(
    context: &CleanupContext,
    committed: Committed,
    order: &CleanOrder,
    progress: &Progress,
) -> Result<Wiped, Failure> {
    let begun = Instant::now();
    let about = About::from(&order.pv.reference());
    tracing::info!(pv = order.pv.name, path = %order.path, "cleaning the volume");
    let text = format!("cleaning {}", order.path);
    let reporter = &context.reporter;
    reporter.normal(&about, reasons::VOLUME_DELETE, "Clean", &text);
    // Boxed, so that the futures around it stay small.
    let wipe = Box::pin(committed.wipe(progress));
    let cleaned = oversee(context, order, progress, wipe).await?;
    let wiped = Wiped::new(cleaned, BY_PROCESS, begun);
    report_data_left(context, &wiped);
    Ok(wiped)
}

/// Releases the PV of a wiped volume, or records why that failed. Only the release is retried, not the wipe.
pub async fn release(context: &CleanupContext, tenancy: &Tenancy, wiped: Arc<Wiped>) {
    let order = &wiped.cleaned.order;
    let (pv, path, mode) = (&order.pv.name, &order.path, order.kind.as_str());
    match wiped.release(context).await {
        Ok(()) => {
            let labels = [mode, wiped.by];
            context
                .metrics
                .delete_total
                .with_label_values(&labels)
                .inc();
            let size = capacity_step(order.capacity);
            // The first word, as dashboards of the Go program expect it.
            let cleaner = order.class.cleaner.to_string();
            let cleaner = cleaner.split(' ').next().unwrap_or_default();
            let took = wiped.begun.elapsed();
            context
                .metrics
                .delete_duration
                .with_label_values(&[mode, wiped.by, &size, cleaner])
                .observe(took.as_secs_f64());
            tracing::info!(pv, %path, "the volume is clean (in {took:?}) and its PV is released");
            context.table.mark_released(tenancy);
        }
        Err(error) => {
            tracing::warn!(pv, %path, "the volume is clean, but releasing its PV failed: {}", error.message);
            context
                .table
                .mark_unreleased(tenancy, Arc::clone(&wiped), error);
        }
    }
}

/// Records why an attempt ended.
fn record(context: &CleanupContext, order: &CleanOrder, progress: &Progress, stop: Stop) {
    let (tenancy, table) = (order.pv.tenancy(), &context.table);
    let (pv, path) = (&order.pv.name, &order.path);
    let failure = match stop {
        Stop::InUse { by, notify } => {
            tracing::info!(pv, %path, "waiting: {by}");
            return table.mark_blocked(&tenancy, &by, Some(notify));
        }
        stop @ (Stop::Again | Stop::NotDue(_)) => {
            tracing::info!(pv, %path, "not cleaned: {stop}");
            return table.mark_blocked(&tenancy, &stop.to_string(), None);
        }
        Stop::Failed(failure) => failure,
    };
    if progress.is_cancelled() && !progress.is_timed_out() {
        tracing::info!(pv, %path, "the shutdown interrupted the cleanup; the next process starts it again");
        table.mark_failed(&tenancy, &failure.message, false);
        return;
    }
    let last_error = table.get(&tenancy).and_then(|entry| entry.last_error);
    let pause = table.mark_failed(&tenancy, &failure.message, failure.lasts);
    let may_repeat = failure.lasts || failure.reason == reasons::PERMISSION_MISSING;
    if may_repeat && last_error.as_ref() == Some(&failure.message) {
        tracing::debug!(pv, %path, "not cleaned: {}", failure.message);
        return;
    }
    let by = if order.job.is_some() {
        BY_JOB
    } else {
        BY_PROCESS
    };
    let labels = [order.kind.as_str(), by];
    context
        .metrics
        .delete_failed_total
        .with_label_values(&labels)
        .inc();
    tracing::warn!(pv, %path, "cleaning failed, retry in {pause:?}: {}", failure.message);
    let about = About::from(&order.pv.reference());
    let message = format!("{path}: {}", failure.message);
    context
        .reporter
        .warning(&about, failure.reason, "Clean", &message);
}

/// Reports that the next tenant can read data that is left on a raw device. Filesystem volumes do not expose it.
pub(super) fn report_data_left(context: &CleanupContext, wiped: &Wiped) {
    let Cleaned { order, outcome, .. } = &wiped.cleaned;
    if *outcome != Some(WipeOutcome::SignaturesOnly) || order.class.volume_mode != VolumeMode::Block
    {
        return;
    }
    let class = &order.class.name;
    let counter = &context.metrics.cleanup_data_left_total;
    counter.with_label_values(&[class]).inc();
    let instead = match order.class.cleaner {
        Cleaner::Method(_) => "",
        Cleaner::Command(_) => " (in place of blockCleanerCommand)",
    };
    let message = format!(
        "{}: the device cannot discard its contents, so only signatures were overwritten; the next tenant can read what the last one wrote; to prevent that, set cleanMethod of class {class:?} to auto{instead}",
        order.path
    );
    tracing::warn!(pv = order.pv.name, "{message}");
    let about = About::from(&order.pv.reference());
    let reason = reasons::VOLUME_DATA_LEFT;
    context.reporter.warning(&about, reason, "Clean", &message);
}
