//! PVs that go without their volumes being cleaned.

use std::time::{Duration, Instant};

use crate::cache::Expectations;
use crate::cluster::ApiError;
use crate::plan::Withdrawal;
use crate::plan::verdict::{consents_to_forget, without_ours};
use crate::view::PvView;

use super::Actor;

/// How often a change by somebody else is followed at once, and a failure after a pause. After that the
/// next pass goes on, which knows no more why the PV was deleted.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// For how long failures are. Others wait for their turn to write.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);

impl Actor {
    pub(super) async fn withdraw(&self, withdrawal: &Withdrawal, expectations: &Expectations) {
        match self.try_withdraw(withdrawal).await {
            Ok(()) => {}
            Err(ApiError::Conflict | ApiError::NotFound) => {
                expectations.read(&withdrawal.pv).await;
            }
            Err(error) => {
                tracing::warn!(pv = withdrawal.pv.name, %error, "the PV could not be let go; it is retried");
                if !error.is_passing() {
                    expectations.refused(&withdrawal.pv.name);
                }
            }
        }
    }

    /// Deletes first: with our finalizer still on it, the PV is then Terminating and cannot be bound
    /// any more when the finalizer goes.
    async fn try_withdraw(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.context.cluster;
        let pv = &withdrawal.pv;
        if withdrawal.delete {
            cluster.delete_pv(pv).await?;
            return self.let_go(withdrawal).await;
        }
        if let Some(finalizers) = &withdrawal.finalizers {
            cluster.remove_finalizer(pv, finalizers).await?;
        }
        self.tell(withdrawal);
        Ok(())
    }

    fn tell(&self, withdrawal: &Withdrawal) {
        let (pv, because) = (&withdrawal.pv, &withdrawal.because);
        tracing::info!(
            pv = pv.name,
            "the PV goes without its volume being cleaned: {because}"
        );
        let reporter = &self.context.reporter;
        reporter.normal(&pv.into(), withdrawal.reason, "Withdraw", because);
    }

    /// Tells of it, and takes our finalizer off the PV that was deleted, also when others write to it
    /// meanwhile: the protection controller takes its own off at the same moment.
    async fn let_go(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.context.cluster;
        let pv = &withdrawal.pv;
        let begun = Instant::now();
        let (mut tries, mut told) = (0, false);
        loop {
            tries += 1;
            let found = cluster.pv(&pv.name).await;
            let answer = match found.map(|found| found.filter(|now| now.uid == pv.uid)) {
                // What was planned may hold no longer, and the deletion be another's, which hid the
                // answer to ours.
                Ok(Some(now)) if !may_go(&now) => return Err(ApiError::Conflict),
                Ok(now) => {
                    // Not later: if what follows fails, the next pass finds a PV that anybody may have
                    // deleted.
                    if !std::mem::replace(&mut told, true) {
                        self.tell(withdrawal);
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
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }
}

/// Whether a PV that is deleted still goes without being cleaned.
fn may_go(pv: &PvView) -> bool {
    pv.deleting && (pv.never_used() || consents_to_forget(pv))
}
