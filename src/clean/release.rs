//! The release: the clean volume's PV goes, and discovery makes a new one.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{ApiError, REMEDY};
use crate::crash::crash_point;
use crate::plan::CleanOrder;
use crate::plan::verdict::without_ours;

use super::Ground;
use super::progress::{Cancelled, Progress};
use super::wipe::Wiped;

/// The pause after another writer was first; the first one after a failed release, and the longest.
const RACE: Duration = Duration::from_millis(20);
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

impl Wiped {
    /// Takes our finalizer off. If that fails, it alone is tried again, for as long as it takes: the
    /// finished wipe is not repeated.
    ///
    /// # Errors
    /// [`Cancelled`] at shutdown. Then the next process cleans the empty volume once more.
    pub async fn release(self, ground: &Ground, progress: &Progress) -> Result<(), Cancelled> {
        let mut pause = PAUSES.0;
        loop {
            match self.try_release(ground).await {
                Ok(()) => return Ok(()),
                Err(ApiError::Conflict) => tokio::time::sleep(RACE).await,
                Err(error) => {
                    tracing::warn!(
                        pv = self.order.pv.name, path = %self.order.path, %error,
                        "the volume is clean, but its PV could not be released; trying again in {pause:?}"
                    );
                    // What passes by itself is reported only if it lasts.
                    if !error.is_passing() || pause == PAUSES.1 {
                        self.report(ground, &error);
                    }
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = progress.cancelled() => {}
                    }
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
            progress.check()?;
        }
    }

    /// Has the main loop report the error, by event and metric.
    fn report(&self, ground: &Ground, error: &ApiError) {
        let remedy = match error {
            ApiError::Forbidden { .. } => REMEDY,
            ApiError::Invalid(_) => {
                "allow it in the policy or webhook: kubectl get validatingadmissionpolicies,validatingwebhookconfigurations"
            }
            _ => "see the log of the API server",
        };
        let CleanOrder { pv, path, .. } = &self.order;
        let message = format!(
            "{path} is clean, but the finalizer of PV {} cannot be removed: {error}; {remedy}; retried every {:?}",
            pv.name, PAUSES.1
        );
        // Without its entry, nothing is known of this cleanup any more.
        let _ = ground.table.mark_unreleased(&pv.tenancy(), &message);
        ground.wake.notify_one();
    }

    async fn try_release(&self, ground: &Ground) -> Result<(), ApiError> {
        let planned = &self.order.pv;
        let found = ground.cluster.pv(&planned.name).await?;
        let Some(pv) = found.filter(|pv| pv.uid == planned.uid && pv.has_finalizer()) else {
            return Ok(());
        };
        let metadata = json!({ "finalizers": without_ours(&pv) });
        crash_point("remove-finalizer");
        match ground.cluster.patch_pv(&pv.reference(), metadata).await {
            Ok(_) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
