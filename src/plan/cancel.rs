//! Cancels the running wipes whose reason has ended, and suspends those that are paused.
//!
//! The plan sees this in a watch, which may show an earlier state. So a wipe is cancelled only after a fresh read of
//! the PV has confirmed the reason.

use crate::host::identity::{Match, compare};
use crate::types::HostPath;
use crate::view::{JobState, JobView, Phase, PvRef, PvView, ReclaimPolicy, Tenancy};

use super::consent::consents_to_forget;
use super::{Action, Planner, jobs};

/// A running wipe whose reason seems to have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// The PV and claim of the wipe.
    pub tenancy: Tenancy,
    /// The Job that wipes. `None`: this process does.
    pub job: Option<JobView>,
    /// The PV to read, to confirm the reason by [`wipe_ended`]. `None`: the scan has found another disk.
    pub pv: Option<PvRef>,
    /// Why, by what the plan has seen.
    pub because: String,
}

/// Why a wipe for this tenancy must end, by a PV that has its UID or names its path.
pub fn wipe_ended(pv: &PvView, tenancy: &Tenancy) -> Option<String> {
    let name = &pv.name;
    if pv.uid != tenancy.pv_uid {
        Some(format!("PV {name} has the same path"))
    } else if pv.tenancy() != *tenancy {
        Some(format!("PV {name} exists again, or for another claim"))
    } else if consents_to_forget(pv) {
        Some(format!("an administrator consented to forget PV {name}"))
    } else if pv.policy != ReclaimPolicy::Delete {
        let policy = &pv.policy;
        Some(format!("the reclaim policy of PV {name} is {policy:?} now"))
    } else if pv.phase == Phase::Bound || (!pv.deleting && pv.phase != Phase::Released) {
        Some(format!("PV {name} is {:?} again", pv.phase))
    } else {
        None
    }
}

impl Planner<'_> {
    /// Cancels or suspends running wipes.
    pub(super) fn oversee_wipes(&mut self) {
        let snapshot = self.snapshot;
        for (tenancy, cleanup) in &snapshot.ledger.cleanups {
            if cleanup.is_wiping() {
                self.cancel_if_ended(tenancy, Some(&cleanup.path), &cleanup.identity, None);
                let pv = self.by_uid.get(tenancy.pv_uid.as_str());
                let is_paused = self.plan.paused || pv.is_some_and(|pv| pv.paused);
                if is_paused != cleanup.suspended {
                    let action = Action::Suspend(tenancy.clone(), is_paused);
                    self.plan.actions.push(action);
                }
            }
        }
        for job in snapshot.jobs.values() {
            // A Job of the Go provisioner names no claim. Its PV is not Terminating while it runs.
            if !job.deleting
                && job.state == JobState::Running
                && let (Some(pv_uid), Some(claim)) = (&job.pv_uid, &job.claim_uid)
            {
                let tenancy = Tenancy {
                    pv_uid: pv_uid.clone(),
                    claim_uid: Some(claim.clone()).filter(|it| !it.is_empty()),
                };
                let path = jobs::path(self.settings, job);
                let identity = job.identity.as_deref().unwrap_or_default();
                self.cancel_if_ended(&tenancy, path.as_ref(), identity, Some(job));
            }
        }
    }

    /// Cancels a wipe of the disk with this identity.
    fn cancel_if_ended(
        &mut self,
        tenancy: &Tenancy,
        path: Option<&HostPath>,
        identity: &str,
        job: Option<&JobView>,
    ) {
        let own = self.by_uid.get(tenancy.pv_uid.as_str());
        let others = path.and_then(|path| self.by_path.get(path));
        let pvs = own.into_iter().chain(others.into_iter().flatten());
        let mut ended = pvs.filter_map(|pv| Some((wipe_ended(pv, tenancy)?, Some(pv.reference()))));
        let exchanged = || {
            let path = path?;
            let is_other = |observed| compare(identity, observed) == Match::Different;
            let mut volumes = self.volumes().filter(|it| it.path == *path);
            let found = volumes.find(|it| is_other(&it.candidate.identity))?;
            let found = &found.candidate.identity.text;
            Some((format!("another disk is at {path}: {found:?}"), None))
        };
        let ended = ended.next().or_else(exchanged);
        if let Some((because, pv)) = ended
            && !self.snapshot.ledger.writing.contains(&tenancy.pv_uid)
        {
            let cancellation =
                Cancellation { tenancy: tenancy.clone(), job: job.cloned(), pv, because };
            let action = Action::Cancel(Box::new(cancellation));
            self.plan.actions.push(action);
        }
    }
}
