//! Removes PVs whose volumes are not cleaned.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::Expectations;
use crate::cluster::ApiError;
use crate::plan::Withdrawal;
use crate::plan::verdict::{consents_to_forget, without_ours};
use crate::view::PvView;

use super::Actor;

/// Tries to remove the finalizer: at once after a conflict, after a pause after a transient error. The
/// next pass retries too, but does not know why the PV was deleted.
const TRIES: usize = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The limit for retries after transient errors: they hold a write permit.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);

impl Actor {
    pub(super) async fn withdraw(&self, withdrawal: &Withdrawal, expectations: &Expectations) {
        match self.try_withdraw(withdrawal).await {
            Ok(()) => {}
            Err(ApiError::Conflict | ApiError::NotFound) => {
                expectations.read(&withdrawal.pv).await;
            }
            Err(error) => {
                tracing::warn!(pv = withdrawal.pv.name, %error, "cannot remove the PV without cleaning; the next pass retries");
                if !error.is_passing() {
                    expectations.refused(&withdrawal.pv.name);
                }
            }
        }
    }

    /// Deletes the PV before it removes our finalizer: a Terminating PV cannot be bound.
    async fn try_withdraw(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.context.cluster;
        let pv = &withdrawal.pv;
        if withdrawal.delete {
            cluster.delete_pv(pv).await?;
            return self.remove_finalizer(withdrawal).await;
        }
        if let Some(finalizers) = &withdrawal.finalizers {
            cluster.remove_finalizer(pv, finalizers).await?;
        }
        self.report(withdrawal);
        Ok(())
    }

    fn report(&self, withdrawal: &Withdrawal) {
        let (pv, because) = (&withdrawal.pv, &withdrawal.because);
        tracing::info!(
            pv = pv.name,
            "the PV is removed without cleaning its volume: {because}"
        );
        let reporter = &self.context.reporter;
        reporter.normal(&pv.into(), withdrawal.reason, "Withdraw", because);
    }

    /// Reports the withdrawal and removes our finalizer from the deleted PV. Conflicts are expected: the
    /// pv-protection controller removes its own finalizer at the same moment.
    async fn remove_finalizer(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.context.cluster;
        let pv = &withdrawal.pv;
        let begun = Instant::now();
        let (mut tries, mut reported) = (0, false);
        loop {
            tries += 1;
            let found = cluster.pv(&pv.name).await;
            let answer = match found.map(|found| found.filter(|now| now.uid == pv.uid)) {
                // The PV may have changed since the plan, and another client may have deleted it.
                Ok(Some(now)) if !may_remove(&now) => return Err(ApiError::Conflict),
                Ok(now) => {
                    // Before the removal: if that fails, the next pass cannot tell who deleted the PV.
                    if !std::mem::replace(&mut reported, true) {
                        self.report(withdrawal);
                    }
                    let Some(now) = now.filter(PvView::has_finalizer) else {
                        return Ok(());
                    };
                    let others = without_ours(&now);
                    cluster.remove_finalizer(&now.reference(), &others).await
                }
                Err(error) => Err(error),
            };
            match answer {
                Err(ApiError::Conflict) if tries < TRIES => {}
                Err(error)
                    if error.is_passing() && tries < TRIES && begun.elapsed() < RETRY_TIMEOUT =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                done => return done,
            }
        }
    }
}

/// Whether a Terminating PV may be removed without cleaning.
fn may_remove(pv: &PvView) -> bool {
    pv.deleting && (pv.never_used() || consents_to_forget(pv))
}
