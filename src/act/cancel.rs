//! Cancels running wipes and Jobs.

use super::Execution;
use crate::cluster::ApiError;
use crate::plan::{Cancellation, JobWrite, wipe_ended};

impl Execution {
    /// Cancels a wipe if a fresh read of the PV confirms the reason.
    pub(super) async fn cancel(&self, cancel: &Cancellation) -> Result<(), ApiError> {
        let (cluster, tenancy) = (&self.context.cluster, &cancel.tenancy);
        let because = match &cancel.pv {
            None => Some(cancel.because.clone()),
            Some(seen) => {
                let found = cluster.pv(&seen.name).await?.filter(|it| it.uid == seen.uid);
                let because = found.as_ref().and_then(|pv| wipe_ended(pv, tenancy));
                // Until the watch shows it, the plan decides by this.
                if let Some(pv) = found {
                    self.expectations.expect(pv);
                }
                because
            }
        };
        match (because, &cancel.job) {
            (None, _) => {
                let seen = &cancel.because;
                tracing::info!("the wipe is not cancelled, because the watch is late: {seen}");
            }
            (Some(because), Some(job)) => {
                self.change_job(job, &JobWrite::Cancel(because)).await?;
            }
            (Some(because), None) => self.context.table.cancel(tenancy, &because),
        }
        Ok(())
    }
}
