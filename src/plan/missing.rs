//! `missingVolumePolicy: Delete`: deletes an unused PV whose disk was removed, so that no pod is bound to it.
//!
//! It fails closed. The volume has to be missing from a complete reading of the directory in every pass for three
//! discovery periods, and another volume of the class has to be there: when all are missing, the cause is probably
//! the directory or its mounts.

use crate::config::MissingVolumePolicy;
use crate::view::{Phase, PvView};

use super::{Planner, reasons};

impl<'a> Planner<'a> {
    /// Decides about a PV whose volume is gone. Returns whether it is withdrawn; otherwise adds to `message` why not.
    pub(super) fn withdraw_missing(&mut self, pv: &'a PvView, message: &mut String) -> bool {
        let class = self.settings.config.classes.get(&pv.class);
        let policy = class.map(|class| class.missing_volume_policy);
        let unused = pv.phase == Phase::Available && pv.never_used();
        if policy != Some(MissingVolumePolicy::Delete) || !unused {
            return false;
        }
        let observed = self.snapshot.observed.get(&pv.class);
        if !observed.is_some_and(|seen| seen.complete && seen.volumes().next().is_some()) {
            message.push_str("; the PV stays, although its class says missingVolumePolicy: Delete: no volume of the class is there, so it is probably the directory that is missing");
            return false;
        }
        let (now, limit) = (self.snapshot.now, self.snapshot.missing_limit);
        let since = self.snapshot.ledger.missing_since.get(&pv.uid);
        let since = *since.unwrap_or(&now);
        self.plan.missing_since.insert(pv.uid.clone(), since);
        if now.saturating_sub(since) < limit {
            *message = format!(
                "{message}; the PV was never used, and it is deleted when this has lasted for {limit:?} (missingVolumePolicy: Delete)"
            );
            return false;
        }
        let because = format!(
            "its volume has been missing for {limit:?} and it was never used, so the PV is deleted (missingVolumePolicy: Delete); when the volume is back it gets a new one ({message})"
        );
        self.withdraw_as(reasons::VOLUME_MISSING, pv, &because);
        true
    }
}
