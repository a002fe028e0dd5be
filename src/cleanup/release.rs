//! The release: removes our finalizer from the PV of a clean volume. Discovery then creates a new PV.

use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{ApiError, REMEDY};
use crate::crash::crash_point;
use crate::metrics::BY_JOB;
use crate::plan::CleanOrder;
use crate::plan::verdict::without_ours;

use super::wipe::{Cleaned, Wiped};
use super::{CleanupContext, job};

/// Why the PV of a clean volume could not be released.
#[derive(Debug)]
pub(super) struct Unreleased {
    /// The cause, with the remedy.
    pub(super) message: String,
    /// Whether the error is transient and is reported only if it lasts.
    pub(super) is_passing: bool,
}

impl Wiped {
    /// `by` is the metric label of the cleaner, which started at `begun`.
    pub(super) fn new(cleaned: Cleaned, by: &'static str, begun: Instant) -> Self {
        Self { cleaned, by, begun }
    }

    /// Removes our finalizer.
    pub(super) async fn release(&self, context: &CleanupContext) -> Result<(), Unreleased> {
        let CleanOrder { pv, path, .. } = &self.cleaned.order;
        if self.by == BY_JOB {
            job::no_pods(context, &self.cleaned.order)
                .await
                .map_err(|stop| Unreleased {
                    message: stop.to_string(),
                    is_passing: true,
                })?;
        }
        self.remove_finalizer(context).await.map_err(|error| {
            let remedy = match error {
                ApiError::Forbidden { .. } => REMEDY,
                ApiError::Invalid(_) => {
                    "allow it in the policy or webhook: kubectl get validatingadmissionpolicies,validatingwebhookconfigurations"
                }
                _ => "see the API server's log",
            };
            let message = format!(
                "{path} is clean, but the finalizer of PV {} cannot be removed: {error}; {remedy}; retried every 30s",
                pv.name
            );
            Unreleased {
                message,
                is_passing: error.is_passing() || matches!(error, ApiError::Conflict),
            }
        })
    }

    async fn remove_finalizer(&self, context: &CleanupContext) -> Result<(), ApiError> {
        let planned = &self.cleaned.order.pv;
        let found = context.cluster.pv(&planned.name).await?;
        let Some(pv) = found.filter(|pv| pv.uid == planned.uid && pv.has_finalizer()) else {
            return Ok(());
        };
        let metadata = json!({ "finalizers": without_ours(&pv) });
        crash_point("remove-finalizer");
        match context.cluster.patch_pv(&pv.reference(), metadata).await {
            Ok(_) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
