//! `missingVolumePolicy: Delete`: a PV that nobody used goes when its disk has gone for good, so that
//! no pod is bound to a disk that is not there.
//!
//! It fails closed. Only a directory that was read to its end tells that a volume is gone; it has to
//! tell so in every pass, for three discovery periods; and there has to be another volume of the class.
//! Where all are gone at once, it is the directory that is gone, or what mounts things into it.

use crate::config::MissingVolumePolicy;
use crate::view::{Phase, PvView};

use super::{Planner, reasons};

impl<'a> Planner<'a> {
    /// Decides about a PV whose volume is gone. Adds to what is told of it what becomes of the PV;
    /// `None` if that is withdrawn.
    pub(super) fn missing(&mut self, pv: &'a PvView, told: String) -> Option<String> {
        let class = self.settings.config.classes.get(&pv.class);
        let policy = class.map(|class| class.missing_volume_policy);
        let unused = pv.phase == Phase::Available && pv.never_used();
        if policy != Some(MissingVolumePolicy::Delete) || !unused {
            return Some(told);
        }
        let observed = self.snapshot.observed.get(&pv.class);
        if !observed.is_some_and(|seen| seen.complete && seen.volumes().next().is_some()) {
            return Some(format!(
                "{told}; the PV stays, although its class says missingVolumePolicy: Delete: no volume of the class is there, so it is probably the directory that is missing"
            ));
        }
        let (now, limit) = (self.snapshot.now, self.snapshot.missing_limit);
        let since = self.snapshot.missing_since.get(&pv.uid);
        let since = *since.unwrap_or(&now);
        self.plan.missing_since.insert(pv.uid.clone(), since);
        if now.saturating_sub(since) < limit {
            return Some(format!(
                "{told}; nobody has used the PV, and it is deleted when this has lasted for {limit:?} (missingVolumePolicy: Delete)"
            ));
        }
        let because = format!(
            "its volume has been missing for {limit:?} and nobody has used it, so the PV is deleted (missingVolumePolicy: Delete); when the volume is back it gets a new one ({told})"
        );
        self.withdraw_as(reasons::VOLUME_MISSING, pv, &because);
        None
    }
}
