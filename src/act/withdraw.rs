//! PVs that go without their volumes being cleaned.

use serde_json::json;

use crate::cache::Learnt;
use crate::cluster::ApiError;
use crate::plan::Withdrawal;
use crate::plan::verdict::without_ours;
use crate::view::PvRef;

use super::Actor;

/// How often a change by somebody else is followed at once. Where others write without pause, the next
/// pass goes on.
const TRIES: usize = 5;

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
            cluster.delete_pv(pv).await?;
            // Told now: if what follows fails, a later pass finds a PV that anybody may have deleted.
            self.tell(withdrawal);
            return self.let_go(pv).await;
        }
        if let Some(finalizers) = &withdrawal.finalizers {
            cluster
                .patch_pv(pv, json!({ "finalizers": finalizers }))
                .await?;
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
        let cluster = &self.ground.cluster;
        let mut tries = 0;
        loop {
            let found = cluster.pv(&pv.name).await?;
            let held = found.filter(|now| now.uid == pv.uid && now.deleting && now.has_finalizer());
            let Some(now) = held else {
                return Ok(());
            };
            let metadata = json!({ "finalizers": without_ours(&now) });
            tries += 1;
            match cluster.patch_pv(&now.reference(), metadata).await {
                Err(ApiError::Conflict) if tries < TRIES => {}
                patched => return patched.map(drop),
            }
        }
    }
}
