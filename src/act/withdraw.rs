//! PVs that go without their volumes being cleaned.

use std::time::Duration;

use crate::cache::Learnt;
use crate::cluster::ApiError;
use crate::plan::Withdrawal;
use crate::plan::verdict::without_ours;
use crate::view::PvRef;

use super::Actor;

/// How often a change by somebody else is followed at once, and a failure after a pause. After that the
/// next pass goes on, which knows no more why the PV was deleted.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);

impl Actor {
    pub(super) async fn withdraw(&self, withdrawal: &Withdrawal, learnt: &Learnt) {
        match self.try_withdraw(withdrawal).await {
            Ok(()) => {}
            Err(ApiError::Conflict | ApiError::NotFound) => {
                self.look_again(&withdrawal.pv, learnt).await;
            }
            Err(error) => {
                tracing::warn!(pv = withdrawal.pv.name, %error, "the PV could not be let go; the next pass tries again");
            }
        }
    }

    /// Deletes first: with our finalizer still on it, the PV is then Terminating and cannot be bound
    /// any more when the finalizer goes.
    async fn try_withdraw(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.ground.cluster;
        let pv = &withdrawal.pv;
        if withdrawal.delete {
            cluster.delete_pv_surely(pv).await?;
            // Told now: if what follows fails, a later pass finds a PV that anybody may have deleted.
            self.tell(withdrawal);
            return self.let_go(pv).await;
        }
        if let Some(finalizers) = &withdrawal.finalizers {
            cluster.take_finalizer_off(pv, finalizers).await?;
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
        let reporter = &self.ground.reporter;
        reporter.normal(&pv.into(), withdrawal.reason, "Withdraw", because);
    }

    /// Takes our finalizer off a PV that we deleted, whatever else happens to it: the protection
    /// controller takes its own off at the same moment.
    async fn let_go(&self, pv: &PvRef) -> Result<(), ApiError> {
        for _ in 1..TRIES {
            match self.try_let_go(pv).await {
                Err(ApiError::Conflict) => {}
                Err(error) if error.is_passing() => tokio::time::sleep(PAUSE).await,
                done => return done,
            }
        }
        self.try_let_go(pv).await
    }

    async fn try_let_go(&self, pv: &PvRef) -> Result<(), ApiError> {
        let cluster = &self.ground.cluster;
        let found = cluster.pv(&pv.name).await?;
        match found.filter(|now| now.uid == pv.uid && now.deleting && now.has_finalizer()) {
            None => Ok(()),
            Some(now) => {
                let others = without_ours(&now);
                cluster.take_finalizer_off(&now.reference(), &others).await
            }
        }
    }
}
