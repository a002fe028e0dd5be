//! The release: removes our finalizer from the PV of a clean volume. Discovery then creates a new PV.

use crate::cluster::{ApiError, REMEDY};
use crate::crash::crash_point;
use crate::metrics::{BY_JOB, BY_PROCESS, capacity_step};
use crate::plan::verdict::without_ours;
use crate::plan::{CleanOrder, reasons};
use crate::wipe::pace::Pace;

use super::{CleanupContext, Failure, Lock, Stop, job};

/// A volume that was wiped, verified and synced. Only a value of this type can be released, and only an attempt
/// creates one.
///
/// It holds the volume's lock but no slot: the API server may refuse the release indefinitely.
#[derive(Debug)]
pub struct Wiped {
    pub(super) order: CleanOrder,
    #[expect(dead_code, reason = "locked until it is dropped")]
    pub(super) lock: Lock,
    /// What was wiped, and how long it took.
    pub(super) pace: Pace,
    /// See [`super::Commit::release`].
    pub(super) release: Option<String>,
}

impl Wiped {
    /// What the volume was wiped for.
    pub fn order(&self) -> &CleanOrder {
        &self.order
    }

    /// Removes our finalizer. Returns whether the PV is still in the release that the volume was wiped for.
    async fn release(&self, context: &CleanupContext) -> Result<bool, Stop> {
        let (pv, path) = (&self.order.pv, &self.order.volume.path);
        if self.order.cleaned_by.is_some() {
            job::no_pods(context, &self.order).await?;
        }
        let error = match self.remove_finalizer(context).await {
            Ok(is_same) => return Ok(is_same),
            Err(error) => error,
        };
        let remedy = match error {
            ApiError::Forbidden { .. } => REMEDY,
            _ => {
                "if a policy or webhook refuses it, allow it there: kubectl get validatingadmissionpolicies,validatingwebhookconfigurations"
            }
        };
        let message = format!(
            "{path} is clean, but the finalizer of PV {} cannot be removed: {error}; {remedy}; retried every 30s",
            pv.name
        );
        if error.is_retriable() {
            return Err(Stop::Changed(message));
        }
        Err(Failure::new(message).into())
    }

    async fn remove_finalizer(&self, context: &CleanupContext) -> Result<bool, ApiError> {
        let (cluster, planned) = (&context.cluster, &self.order.pv);
        let found = cluster.pv(&planned.name).await?;
        // The watch decides that the PV is gone. Until it does, the release is retried.
        let pv = found.filter(|pv| pv.uid == planned.uid).ok_or(ApiError::NotFound)?;
        if !pv.has_finalizer() {
            return Ok(true);
        }
        if !pv.deleting || pv.release != self.release {
            return Ok(false);
        }
        crash_point("remove-finalizer");
        let (pv, others) = (pv.reference(), without_ours(&pv));
        cluster.remove_finalizer(&pv, &others).await?;
        Ok(true)
    }
}

/// Releases the PV of a wiped volume, or records why that failed. Only the release is retried, not the wipe.
pub async fn release(context: &CleanupContext, wiped: &Wiped) {
    let (pv, volume) = (&wiped.order.pv, &wiped.order.volume);
    let path = &volume.path;
    let tenancy = pv.tenancy();
    match wiped.release(context).await {
        Ok(true) => {}
        Ok(false) => {
            let why =
                "the PV was released again after its volume was wiped, as after a restore of etcd";
            tracing::warn!("{why}; the volume is cleaned again");
            return context.table.mark_blocked(&tenancy, why, None);
        }
        Err(stop) => {
            tracing::warn!("the volume is clean, but releasing its PV failed: {}", stop.message());
            return context.table.mark_unreleased(&tenancy, &stop);
        }
    }
    let mode = volume.candidate.kind.as_str();
    let counter = &context.metrics.delete_total;
    let by = match wiped.order.cleaned_by {
        Some(_) => BY_JOB,
        None => BY_PROCESS,
    };
    counter.with_label_values(&[mode, by]).inc();
    let size = capacity_step(volume.candidate.capacity);
    // The first word, as dashboards of the Go program expect it.
    let cleaner = volume.class.cleaner.to_string();
    let cleaner = cleaner.split(' ').next().unwrap_or_default();
    let durations = &context.metrics.delete_duration;
    let duration = durations.with_label_values(&[mode, by, &size, cleaner]);
    duration.observe(wiped.pace.elapsed.as_secs_f64());
    let summary = wiped.pace.summary();
    tracing::info!("clean, and its PV is released: {summary}");
    let text = format!("{path} is clean: {summary}");
    let (about, reason) = (wiped.order.about(), reasons::VOLUME_CLEANED);
    context.reporter.normal(&about, reason, "Clean", &text);
    context.table.mark_released(&tenancy);
}
