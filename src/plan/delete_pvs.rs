//! DeletePVs: what becomes of the PVs that exist.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::view::{Ownership, Phase, PvView, ReclaimPolicy};
use crate::wipe::method::Method;

use super::verdict::{Due, consents_to_forget, due, may_clean, without_ours};
use super::{Action, CleanOrder, Patch, Place, Planner, VolumeState, Withdrawal, reasons};

/// What to do where there is no image to run Jobs with.
pub const NO_JOB_IMAGE: &str = "useJobForCleaning is on, but the environment variable JOB_CONTAINER_IMAGE, which names the image of \
    the Jobs, is not set, so no device is cleaned; set it in the DaemonSet to the image of the provisioner (the chart \
    does), or switch useJobForCleaning off";

const FORGOTTEN: &str = "an administrator consented to forget it; its data was not touched";

impl<'a> Planner<'a> {
    /// Goes through our PVs: keeps their metadata right, and sends what is due to be cleaned.
    pub(super) fn delete_pvs(&mut self) {
        self.forget_cleanups();
        for pv in self.pvs {
            // Whatever has become of the PV: what has begun comes to its end.
            if self.cleanup_at_work(pv) {
                continue;
            }
            match pv.ownership(self.node, self.settings.config.use_node_name_only) {
                Ownership::Foreign => {}
                Ownership::FormerNode => self.take_over(pv),
                Ownership::Ours => self.our_pv(pv),
            }
        }
    }

    fn our_pv(&mut self, pv: &'a PvView) {
        let place = self.place(pv);
        match due(pv) {
            // First of all it has to come into our sight: no watch tells of a consent on it, or its end.
            Due::Yes | Due::Unused | Due::Kept if self.lacks_label(pv) => self.label_due_pv(pv),
            Due::Yes => self.due_pv(pv, &place),
            Due::Unused => self.let_go(pv, "it was never used", VolumeState::Terminating),
            Due::Kept => {
                let why = format!("its reclaim policy is {}", pv.policy.as_str());
                self.let_go(pv, &why, VolumeState::Terminating);
            }
            Due::No => self.living_pv(pv, &place),
        }
    }

    /// Whether the data of a PV must not be deleted (now), by what is known of PV and Node.
    pub(super) fn must_not_clean(&self, pv: &PvView) -> bool {
        due(pv) != Due::Yes || consents_to_forget(pv) || self.plan.paused || pv.paused
    }

    fn label_due_pv(&mut self, pv: &'a PvView) {
        let mut patch = Patch::of(pv);
        self.label(pv, &mut patch);
        self.states
            .insert(&pv.name, (VolumeState::Due, Some("being adopted".into())));
        if !self.is_busy(pv) {
            self.patch(patch);
        }
    }

    /// A PV whose volume has to be cleaned.
    fn due_pv(&mut self, pv: &'a PvView, place: &Place<'a>) {
        let disks = place.candidate().map(|it| it.rotational.clone());
        if self.job_at_work(pv, &disks.unwrap_or_default()) {
            return;
        }
        if consents_to_forget(pv) {
            self.withdraw(pv, FORGOTTEN);
            return;
        }
        if self.plan.paused || pv.paused {
            let message = "cleaning is paused; the volume will be cleaned when it no longer is";
            self.call_off_pending(pv, message);
            self.notice(&pv.reference(), reasons::CLEANING_PAUSED, message.into());
            self.states
                .insert(&pv.name, (VolumeState::Paused, Some(message.into())));
            return;
        }
        if matches!(place, Place::Unknown) {
            let wait = "its directory cannot be read at the moment; cleaning waits until it can";
            self.states
                .insert(&pv.name, (VolumeState::Due, Some(wait.into())));
            return;
        }
        let config = &self.settings.config;
        let verdict = may_clean(pv, config, self.node, place, &self.occupied);
        let (Ok(_), Place::Volume(class, entry, candidate), Some(path)) =
            (&verdict, place, pv.path())
        else {
            if let Err(refusal) = verdict {
                self.call_off_pending(pv, &refusal.message);
                self.notice(&pv.reference(), refusal.reason, refusal.message.clone());
                self.states
                    .insert(&pv.name, (refusal.state, Some(refusal.message)));
            }
            return;
        };
        let basis = self.basis(pv, place);
        let job = self.job_terms(candidate.kind);
        if job.is_some() && self.snapshot.job_source.image.is_none() {
            self.notice(
                &pv.reference(),
                reasons::VOLUME_FAILED_DELETE,
                NO_JOB_IMAGE.into(),
            );
            self.states
                .insert(&pv.name, (VolumeState::Refused, Some(NO_JOB_IMAGE.into())));
            return;
        }
        self.states.insert(&pv.name, (VolumeState::Due, None));
        if !self.is_busy(pv) {
            let order = CleanOrder {
                pv: pv.clone(),
                class: Arc::clone(class),
                path: path.clone(),
                mount_path: class.mount_dir.join(entry),
                kind: candidate.kind,
                method: Method::of(candidate.kind, &class.cleaner),
                job,
                cleaned_by: None,
                capacity: candidate.capacity,
                rotational: candidate.rotational.clone(),
                basis,
                generation: self.settings.generation,
            };
            self.next_step(pv, order);
        }
    }

    /// A fingerprint of what a cleanup is decided on. When it changes, a failed one is tried again at
    /// once. It leaves out what our own writes change.
    fn basis(&self, pv: &PvView, place: &Place<'a>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (
            self.settings.generation,
            &pv.consent,
            pv.policy.as_str(),
            pv.phase,
            self.failed_job(pv),
        )
            .hash(&mut hasher);
        if let Some(candidate) = place.candidate() {
            (
                &candidate.identity.text,
                candidate.read_only,
                &candidate.in_use,
            )
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Takes our finalizer off a Terminating PV that goes without being cleaned.
    fn let_go(&mut self, pv: &'a PvView, why: &str, state: VolumeState) {
        self.states.insert(&pv.name, (state, Some(why.to_owned())));
        let because = format!("the PV was deleted and goes without being cleaned, because {why}");
        self.push_withdrawal(pv, reasons::VOLUME_DELETE, because, false);
    }

    /// Deletes a PV without touching its data.
    pub(super) fn withdraw(&mut self, pv: &'a PvView, because: &str) {
        self.withdraw_as(reasons::VOLUME_DELETE, pv, because);
    }

    /// The same, told by an event with this reason.
    pub(super) fn withdraw_as(&mut self, reason: &'static str, pv: &'a PvView, because: &str) {
        self.states.insert(
            &pv.name,
            (VolumeState::Terminating, Some(because.to_owned())),
        );
        self.push_withdrawal(pv, reason, because.to_owned(), !pv.deleting);
    }

    fn push_withdrawal(
        &mut self,
        pv: &PvView,
        reason: &'static str,
        because: String,
        delete: bool,
    ) {
        // What is said to be untouched must not be wiped after that. When the Job is gone, we are back.
        if let Some(job) = self.job_of(pv).cloned() {
            self.call_off(job, &because);
        } else if !self.is_busy(pv) {
            self.plan.actions.push(Action::Withdraw(Withdrawal {
                pv: pv.reference(),
                finalizers: pv.has_finalizer().then(|| without_ours(pv)),
                delete,
                reason,
                because,
            }));
        }
    }

    /// A PV that is not due.
    fn living_pv(&mut self, pv: &'a PvView, place: &Place<'a>) {
        let state = match (pv.deleting, pv.phase) {
            (true, _) => VolumeState::Terminating,
            (false, Phase::Bound) => VolumeState::Bound,
            (false, Phase::Released) => VolumeState::Retained,
            (false, Phase::Failed) => VolumeState::Failed,
            (false, Phase::Pending | Phase::Available) => VolumeState::Available,
        };
        self.states.insert(&pv.name, (state, None));
        self.call_off_pending(pv, "the PV is not to be cleaned");
        let waits_for_us = !pv.deleting || pv.has_finalizer();
        if waits_for_us && matches!(pv.phase, Phase::Released | Phase::Failed) {
            self.released_but_not_due(pv, place);
        }
        if !pv.deleting {
            self.upkeep(pv, place);
        }
    }

    fn released_but_not_due(&mut self, pv: &'a PvView, place: &Place<'a>) {
        let told = match &pv.policy {
            ReclaimPolicy::Recycle => Some((
                reasons::VOLUME_UNSUPPORTED_RECLAIM_POLICY,
                "its reclaim policy Recycle is not supported for local volumes; nothing is done; change it to Delete or Retain".to_owned(),
            )),
            ReclaimPolicy::Other(policy) => Some((
                reasons::VOLUME_UNKNOWN_RECLAIM_POLICY,
                format!("its reclaim policy {policy:?} is unknown to this program; nothing is done"),
            )),
            _ if matches!(place, Place::ClassGone | Place::ClassInvalid) => Some((
                reasons::VOLUME_FAILED_DELETE,
                format!("its class {:?} is not (any longer) in the valid configuration; nothing is done", pv.class),
            )),
            ReclaimPolicy::Delete if pv.phase == Phase::Failed => Some((
                reasons::VOLUME_FAILED_DELETE,
                "its phase is Failed, which only the cluster's volume controller sets; nothing is done until an administrator looks at it".to_owned(),
            )),
            ReclaimPolicy::Delete | ReclaimPolicy::Retain => None,
        };
        if let Some((reason, message)) = told {
            self.notice(&pv.reference(), reason, message.clone());
            self.states
                .insert(&pv.name, (VolumeState::Failed, Some(message)));
        }
    }

    /// A PV made before the Node object was registered again.
    fn take_over(&mut self, pv: &'a PvView) {
        match self.takeover(pv) {
            Ok(patch) => {
                self.states.insert(
                    &pv.name,
                    (VolumeState::Foreign, Some("being taken over".into())),
                );
                if !self.is_busy(pv) {
                    self.patch(patch);
                }
            }
            // As one of ours: never while a claim has it.
            Err(_) if consents_to_forget(pv) && (pv.never_used() || due(pv) != Due::No) => {
                self.withdraw(pv, FORGOTTEN);
            }
            Err(why) => {
                let message = format!(
                    "it was made by {:?} before this Node was registered again and is not taken over: {why}",
                    pv.provisioned_by.as_deref().unwrap_or_default()
                );
                self.notice(
                    &pv.reference(),
                    reasons::VOLUME_IDENTITY_MISMATCH,
                    message.clone(),
                );
                self.states
                    .insert(&pv.name, (VolumeState::Foreign, Some(message)));
            }
        }
    }

    pub(super) fn event_patch(pv: &PvView, reason: &'static str, text: String) -> Patch {
        let mut patch = Patch::of(pv);
        patch.events.push((reason, text));
        patch
    }
}
