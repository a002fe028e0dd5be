//! DeletePVs: reconciles the PVs that exist. It never deletes data itself: it orders cleanups, which the gate checks
//! again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::host::identity::is_made;
use crate::inventory::Volume;
use crate::types::VolumeMode;
use crate::view::{Ownership, Phase, PvView, ReclaimPolicy};
use crate::wipe::method::Method;

use super::consent::consents_to_forget;
use super::verdict::{Due, due, may_clean, without_ours};
use super::{
    Action, CleanOrder, JobTerms, JobWrite, Patch, Planner, PvLocation, VolumeState, Withdrawal,
    reasons,
};

/// The error, and its fix, when no image for cleaning Jobs is known.
pub const NO_JOB_IMAGE: &str = "useJobForCleaning is on, but the environment variable JOB_CONTAINER_IMAGE, which names the image of \
    the Jobs, is not set, so no device is cleaned; set it in the DaemonSet to the image of the provisioner (the chart \
    does), or switch useJobForCleaning off";

pub(super) const PAUSED: &str =
    "cleaning is paused; the volume will be cleaned when it no longer is";
const FORGOTTEN: &str = "an administrator consented to forget it; its data was not touched";
const NEVER_USED: &str =
    "the PV was deleted and its volume is not cleaned, because it was never used";
const RETAINED: &str =
    "the PV was deleted and its volume is not cleaned, because its reclaim policy is Retain";

/// How a volume is cleaned.
fn method(volume: &Volume) -> Method {
    let (class, candidate) = (&volume.class, &volume.candidate);
    if class.makes_filesystems() && is_made(&candidate.identity) {
        return Method::Reformat;
    }
    Method::of(candidate.kind, &class.cleaner)
}

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

    /// Reconciles a PV whose volume has to be cleaned.
    fn reconcile_due(&mut self, pv: &'a PvView, location: &PvLocation<'a>) {
        let disks = location.candidate().map(|it| it.rotational.clone());
        if self.reconcile_running_job(pv, &disks.unwrap_or_default()) {
            return;
        }
        if consents_to_forget(pv) {
            if !self.keep_data(pv, location) {
                self.withdraw(pv, FORGOTTEN);
            }
            return;
        }
        if self.plan.paused || pv.paused {
            self.cancel_pending_job(pv, PAUSED);
            return self.problem(pv, reasons::CLEANING_PAUSED, VolumeState::Paused, PAUSED.into());
        }
        if matches!(location, PvLocation::Unknown) {
            let wait = "its directory cannot be read at the moment; cleaning waits until it can";
            self.states.insert(&pv.name, (VolumeState::Due, Some(wait.into())));
            return;
        }
        let config = &self.settings.config;
        let verdict = may_clean(pv, self.settings, self.node, location, &self.occupied);
        let (Ok(_), PvLocation::Volume(volume)) = (&verdict, location) else {
            if let Err(refusal) = verdict {
                self.cancel_pending_job(pv, &refusal.message);
                self.problem(pv, refusal.reason, refusal.state, refusal.message);
            }
            return;
        };
        let source = &self.snapshot.job_source;
        let is_judged = self.settings.judges(&volume.candidate);
        let job = match &source.image {
            _ if !config.use_job_for_cleaning || volume.candidate.kind != VolumeMode::Block => None,
            Some(image) => Some(JobTerms {
                hostname: self.node.hostname.clone(),
                tolerations: config.job_tolerations.clone(),
                image: image.clone(),
                state_directory: is_judged.and(source.state_directory.clone()),
            }),
            None => {
                let reason = reasons::VOLUME_FAILED_DELETE;
                return self.problem(pv, reason, VolumeState::Refused, NO_JOB_IMAGE.into());
            }
        };
        self.states.insert(&pv.name, (VolumeState::Due, None));
        if !self.is_busy(pv) {
            let mut order = self.clean_order(pv.clone(), volume);
            order.job = job;
            order.basis = self.basis(pv, location);
            self.next_step(pv, order);
        }
    }

    /// How the volume of an entry is cleaned, by this process unless a Job is set.
    pub(super) fn clean_order(&self, pv: PvView, volume: &Arc<Volume>) -> CleanOrder {
        let generation = self.settings.generation;
        CleanOrder {
            pv,
            volume: Arc::clone(volume),
            method: method(volume),
            job: None,
            cleaned_by: None,
            basis: generation,
            generation,
            orphan_on: None,
        }
    }

    /// A hash of the facts that a cleanup depends on. When it changes, a failed cleanup is retried at once.
    /// It excludes what our own writes change.
    fn basis(&self, pv: &PvView, location: &PvLocation<'a>) -> u64 {
        let found = location.candidate().map(|it| (&it.identity.text, it.read_only, &it.in_use));
        let (policy, job) = (&pv.policy, self.failed_job(pv));
        let mut hasher = DefaultHasher::new();
        let generation = self.settings.generation;
        (generation, &pv.consent, policy, pv.phase, job, found).hash(&mut hasher);
        hasher.finish()
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
