//! DeletePVs: reconciles the PVs that exist. It never deletes data itself: it orders cleanups, which the gate checks
//! again.

use crate::view::{Ownership, Phase, PvView, ReclaimPolicy};

use super::consent::consents_to_forget;
use super::verdict::{Due, due, without_ours};
use super::{Action, JobWrite, Patch, Planner, PvLocation, VolumeState, Withdrawal, reasons};

pub(super) const PAUSED: &str =
    "cleaning is paused; the volume will be cleaned when it no longer is";
pub(super) const FORGOTTEN: &str =
    "an administrator consented to forget it; its data was not touched";
const NEVER_USED: &str =
    "the PV was deleted and its volume is not cleaned, because it was never used";
const RETAINED: &str =
    "the PV was deleted and its volume is not cleaned, because its reclaim policy is Retain";

impl<'a> Planner<'a> {
    /// Reconciles the metadata of our PVs, and starts the cleanups that are due.
    pub(super) fn delete_pvs(&mut self) {
        self.forget_cleanups();
        for pv in self.pvs {
            // Only a cancellation ends a wipe that has begun.
            if self.reconcile_running(pv) {
                continue;
            }
            match self.ownership(pv) {
                Ownership::Foreign => {}
                Ownership::OtherInstallation => self.take_over(pv),
                Ownership::FormerNode => self.adopt(pv),
                Ownership::Ours => self.reconcile_own(pv),
            }
        }
    }

    fn reconcile_own(&mut self, pv: &'a PvView) {
        let location = self.locate(pv);
        match due(pv) {
            // Our watch selects by the hostname label: without it no later change of the PV is seen.
            Due::Yes | Due::Unused | Due::Retained if self.lacks_label(pv) => self.label_due_pv(pv),
            Due::Yes => self.reconcile_due(pv, &location),
            Due::Unused => self.withdraw(pv, NEVER_USED),
            Due::Retained if self.keep_data(pv, &location) => {}
            Due::Retained => self.withdraw(pv, RETAINED),
            Due::No => self.reconcile_active(pv, &location),
        }
    }

    /// Whether the data of a PV must not be deleted (now), by what is known of PV and Node.
    pub(super) fn must_not_clean(&self, pv: &PvView) -> bool {
        due(pv) != Due::Yes || consents_to_forget(pv) || self.plan.paused || pv.paused
    }

    fn label_due_pv(&mut self, pv: &'a PvView) {
        let mut patch = Patch::of(pv);
        self.label(pv, &mut patch);
        self.states.insert(&pv.name, (VolumeState::Due, Some("being adopted".into())));
        self.patch(pv, patch);
    }

    /// Deletes a PV, or removes our finalizer from a Terminating one, without touching its data.
    pub(super) fn withdraw(&mut self, pv: &'a PvView, because: &str) {
        self.withdraw_as(reasons::VOLUME_DELETE, pv, because);
    }

    /// The same, with this event reason.
    pub(super) fn withdraw_as(&mut self, reason: &'static str, pv: &'a PvView, because: &str) {
        let state = (VolumeState::Terminating, Some(because.to_owned()));
        self.states.insert(&pv.name, state);
        // The event reports the data as untouched, so no Job may start. The next plan after its deletion goes on.
        if let Some(job) = self.job_of(pv) {
            self.write_job(job, JobWrite::Cancel(because.to_owned()));
        } else if !self.is_busy(pv) && (!pv.deleting || pv.has_finalizer()) {
            self.plan.actions.push(Action::Withdraw(Withdrawal {
                pv: pv.reference(),
                finalizers: pv.deleting.then(|| without_ours(pv)),
                reason,
                because: because.to_owned(),
            }));
        }
    }

    /// Reconciles a PV that is not due.
    fn reconcile_active(&mut self, pv: &'a PvView, location: &PvLocation<'a>) {
        let state = match (pv.deleting, pv.phase) {
            (true, _) => VolumeState::Terminating,
            (false, Phase::Bound) => VolumeState::Bound,
            (false, Phase::Released) => VolumeState::Retained,
            (false, Phase::Failed) => VolumeState::Failed,
            (false, Phase::Pending | Phase::Available) => VolumeState::Available,
        };
        self.states.insert(&pv.name, (state, None));
        self.cancel_pending_job(pv, "the PV is not to be cleaned");
        let waits_for_us = !pv.deleting || pv.has_finalizer();
        if waits_for_us && matches!(pv.phase, Phase::Released | Phase::Failed) {
            self.released_but_not_due(pv, location);
        }
        if !pv.deleting {
            self.upkeep(pv, location);
        }
    }

    fn released_but_not_due(&mut self, pv: &'a PvView, location: &PvLocation<'a>) {
        let problem = match &pv.policy {
            ReclaimPolicy::Recycle => Some((
                reasons::VOLUME_UNSUPPORTED_RECLAIM_POLICY,
                "its reclaim policy Recycle is not supported for local volumes; nothing is done; change it to Delete or Retain".to_owned(),
            )),
            ReclaimPolicy::Other(policy) => Some((
                reasons::VOLUME_UNKNOWN_RECLAIM_POLICY,
                format!("its reclaim policy {policy:?} is unknown to this program; nothing is done"),
            )),
            _ if matches!(location, PvLocation::ClassGone | PvLocation::ClassInvalid) => Some((
                reasons::VOLUME_FAILED_DELETE,
                format!("its class {:?} is not in the valid configuration; nothing is done until it is configured again", pv.class),
            )),
            ReclaimPolicy::Delete if pv.phase == Phase::Failed => Some((
                reasons::VOLUME_FAILED_DELETE,
                "its phase is Failed, which only the cluster's volume controller sets; nothing is done until an administrator looks at it".to_owned(),
            )),
            ReclaimPolicy::Delete | ReclaimPolicy::Retain => None,
        };
        if let Some((reason, message)) = problem {
            self.problem(pv, reason, VolumeState::Failed, message);
        }
    }

    /// Adopts a PV that was created before the Node object was registered again.
    fn adopt(&mut self, pv: &'a PvView) {
        match self.adoption_patch(pv) {
            Ok(patch) => {
                let state = (VolumeState::Foreign, Some("being taken over".into()));
                self.states.insert(&pv.name, state);
                self.patch(pv, patch);
            }
            // As with our own PVs: never while a claim uses it.
            Err(_) if consents_to_forget(pv) && (pv.never_used() || due(pv) != Due::No) => {
                self.withdraw(pv, FORGOTTEN);
            }
            Err(why) => {
                let message = format!(
                    "it was made by {:?} before this Node was registered again and is not taken over: {why}",
                    pv.provisioned_by.as_deref().unwrap_or_default()
                );
                let reason = reasons::VOLUME_IDENTITY_MISMATCH;
                self.problem(pv, reason, VolumeState::Foreign, message);
            }
        }
    }
}
