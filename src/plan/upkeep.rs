//! Keeps the metadata and capacity of active PVs up to date, and reports their problems.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::host::identity::{Match, compare};
use crate::host::mark::MarkState;
use crate::inventory::Candidate;
use crate::names::{
    ANNOTATION_IDENTITY, ANNOTATION_PROVISIONED_BY, ANNOTATION_USED, FINALIZER, LABEL_HOSTNAME,
    LABEL_IDENTITY_HASH, UNVERIFIED, provisioner_name,
};
use crate::quantity;
use crate::types::VolumeMode;
use crate::view::{NodeView, Phase, PvView, ReclaimPolicy};

use super::consent::consents_to;
use super::verdict::{PATH_IS_DIRECTORY, absence, mismatch, to_forget, without_ours, wrong_disk};
use super::{Patch, Planner, PvLocation, VolumeState, reasons};

/// Sets the capacity of a PV to that of its volume, which has grown; that of a Bound PV only if its class is expandable. It
/// keeps a capacity that does not parse, and that of a used PV whose disk may be another one.
fn capacity(pv: &PvView, candidate: &Candidate, expandable: bool) -> Option<u64> {
    let is_same = |recorded| compare(recorded, &candidate.identity) == Match::Same;
    let is_its_disk = pv.never_used() || pv.identity.as_deref().is_some_and(is_same);
    let is_directory = pv.mode == VolumeMode::Block && candidate.kind == VolumeMode::Filesystem;
    let is_unclaimed = pv.phase == Phase::Available && pv.claim.is_none();
    let may_grow = is_unclaimed || (pv.phase == Phase::Bound && expandable);
    let current = pv.capacity.as_deref().and_then(quantity::parse)?;
    let offered = quantity::round_down(candidate.capacity);
    let is_wanted = may_grow && offered > current;
    (is_wanted && is_its_disk && !is_directory).then_some(offered)
}

/// Whether a volume is smaller than its PV promises.
fn has_shrunk(pv: &PvView, candidate: &Candidate) -> bool {
    let promised = pv.capacity.as_deref().and_then(quantity::parse);
    candidate.kind == pv.mode && promised.is_some_and(|promised| candidate.capacity < promised)
}

/// The owners of a PV that is one of this Node from now on, if a Node owns it: the garbage collector deletes a PV whose owner is
/// gone.
pub(super) fn owned_by(node: &NodeView, pv: &PvView) -> Option<Vec<OwnerReference>> {
    let mut owners = pv.owners.clone();
    owners.retain(|owner| owner.kind != "Node");
    (owners.len() < pv.owners.len()).then(|| {
        owners.push(node.as_owner());
        owners
    })
}

/// Whether a PV has the label with the hash of a volume's identity.
pub(super) fn is_labelled(pv: &PvView, candidate: &Candidate) -> bool {
    let hash = candidate.global.as_ref().map(|it| &it.hash);
    hash.is_some() && pv.identity_hash.as_ref() == hash
}

/// Sets the label with the hash of the identity to that of the volume, which is the PV's own.
fn label_identity(pv: &PvView, candidate: &Candidate, patch: &mut Patch) {
    let hash = candidate.global.as_ref().map(|it| it.hash.clone());
    if pv.identity_hash == hash {
        return;
    }
    if let Some(before) = &pv.identity_hash {
        let text = format!(
            "the label {LABEL_IDENTITY_HASH} was {before:?}, which is not the hash of its identity, and was corrected"
        );
        let reason = reasons::VOLUME_IDENTITY_RECORDED;
        patch.events.push((reason, text));
    }
    patch.labels.insert(LABEL_IDENTITY_HASH, hash);
}

/// Records that a PV was used, and whether its disk was known to be its own: a restored API server may bind a claim to a PV
/// whose disk has the data of another tenant.
pub(super) fn record_use(pv: &PvView, is_verified: bool, patch: &mut Patch) {
    let is_known = pv.used && !(pv.use_is_unverified && is_verified);
    if matches!(pv.phase, Phase::Bound | Phase::Released | Phase::Failed) && !is_known {
        let used = if is_verified { "true" } else { UNVERIFIED };
        patch.annotations.insert(ANNOTATION_USED, Some(used.into()));
    }
}

impl<'a> Planner<'a> {
    /// Reconciles a PV that is neither due nor Terminating.
    pub(super) fn upkeep(&mut self, pv: &'a PvView, location: &PvLocation<'a>) {
        let mut patch = Patch::of(pv);
        self.label(pv, &mut patch);
        record_use(pv, false, &mut patch);
        self.finalizer(pv, location, &mut patch);
        self.installation(pv, location, &mut patch);
        let stays = if let PvLocation::Volume(volume) = location {
            let candidate = &volume.candidate;
            let class = self.snapshot.storage_classes.get(&pv.class);
            let expandable = matches!(class, Some(Some(class)) if class.expandable);
            patch.capacity = capacity(pv, candidate, expandable);
            self.identity(pv, candidate, &mut patch)
                && self.mark(pv, volume, &mut patch)
                && self.record_directory(pv, candidate, &mut patch)
                && self.check_unique(pv, candidate)
                && self.check_owners(pv, candidate)
        } else {
            self.report_absence(pv, location)
        };
        if let Some(candidate) = location.candidate().filter(|_| stays) {
            self.report_health(pv, candidate);
        }
        if let Some(what) = self.occupied.contradictions.of(&pv.uid).filter(|_| stays) {
            let refusal = wrong_disk(format!("{what}; it will not be cleaned"));
            self.problem(pv, refusal.reason, refusal.state, refusal.message);
        }
        // After a write of the mark, the next scan comes first: the mark `used` precedes the annotation.
        let creating = &self.snapshot.ledger.creating;
        let is_outdated = self.settings.cluster.is_some()
            && pv.path().is_some_and(|path| creating.contains_key(path));
        if stays && !is_outdated {
            self.patch(pv, patch);
        }
    }

    pub(super) fn lacks_label(&self, pv: &PvView) -> bool {
        pv.hostname_label.is_none() && pv.is_on(self.node)
    }

    /// Adds the hostname label, by which our watch selects PVs.
    pub(super) fn label(&self, pv: &PvView, patch: &mut Patch) {
        if self.lacks_label(pv) {
            let hostname = Some(self.node.hostname.clone());
            patch.labels.insert(LABEL_HOSTNAME, hostname);
            let text = "an earlier provisioner created the PV without a hostname label; the label was added";
            patch.events.push((reasons::VOLUME_ADOPTED, text.into()));
        }
    }

    /// Adds our finalizer to each PV with policy Delete if `protectReleasedData` is on, and removes it otherwise. An
    /// unused PV requires it only if its volume can have no mark.
    fn finalizer(&self, pv: &PvView, location: &PvLocation<'a>, patch: &mut Patch) {
        let protect = self.settings.config.protect_released_data;
        let has_mark = match (&self.settings.cluster, location.candidate()) {
            (None, _) => Some(false),
            (Some(_), candidate) => candidate.map(|it| self.settings.judges(it).is_some()),
        };
        let is_unused = pv.never_used();
        let wanted = protect
            && pv.policy == ReclaimPolicy::Delete
            && (!is_unused || has_mark == Some(false));
        let needless =
            !protect || pv.policy == ReclaimPolicy::Retain || (is_unused && has_mark == Some(true));
        if wanted && !pv.has_finalizer() {
            patch.finalizers = Some([pv.finalizers.as_slice(), &[FINALIZER.to_owned()]].concat());
        } else if needless && pv.has_finalizer() {
            patch.finalizers = Some(without_ours(pv));
        }
    }

    /// Compares the recorded identity with the observed one. An unused PV whose disk changed is withdrawn: discovery decides
    /// again whether the disk is offered. Returns `false` then.
    fn identity(&mut self, pv: &'a PvView, candidate: &Candidate, patch: &mut Patch) -> bool {
        let (observed, text) = (&candidate.identity, &candidate.identity.text);
        let belongs_to_another = self.occupied.recorded_on(observed, &pv.uid).is_some();
        let recorded = pv.identity.as_deref();
        let event = match recorded.map(|recorded| (recorded, compare(recorded, observed))) {
            Some((_, Match::Same)) if pv.never_used() && has_shrunk(pv, candidate) => {
                self.withdraw(pv, "its volume has shrunk, and it was never used");
                return false;
            }
            Some((_, Match::Same)) => {
                label_identity(pv, candidate, patch);
                return true;
            }
            _ if belongs_to_another && pv.never_used() => {
                let because = format!(
                    "the disk at its path is the one of another PV now ({text:?}), and it was never used"
                );
                self.withdraw(pv, &because);
                return false;
            }
            None if belongs_to_another || matches!(pv.phase, Phase::Released | Phase::Failed) => {
                return true;
            }
            // It had one, which was removed.
            None if pv.link.is_some() && !is_labelled(pv, candidate) => return true,
            None => {
                // No other PV may get the same identity in this plan.
                self.occupied.record(text, pv);
                format!("the volume's identity is {text:?}")
            }
            Some((recorded, Match::Unknown))
                if pv.had_no_tenant() && self.is_proven(pv, candidate) =>
            {
                format!(
                    "its device has another identity since a reboot: it was {recorded:?} and is {text:?}"
                )
            }
            Some((recorded, _)) if pv.never_used() => {
                let because = format!(
                    "the disk at its path changed, and it was never used: it was {recorded:?} and is {text:?}"
                );
                self.withdraw(pv, &because);
                return false;
            }
            // A device whose identity cannot be verified is a problem only once it has to be cleaned.
            Some((_, Match::Unknown)) if !pv.had_no_tenant() => return true,
            Some((recorded, _)) => {
                let message = format!(
                    "another disk is at its path than the one it was made for: recorded {recorded:?}, found {text:?}; pods that use the PV may see other data; it will not be cleaned"
                );
                let refusal = wrong_disk(message);
                self.problem(pv, refusal.reason, refusal.state, refusal.message);
                return true;
            }
        };
        let identity = Some(text.clone());
        patch.annotations.insert(ANNOTATION_IDENTITY, identity);
        label_identity(pv, candidate, patch);
        let reason = reasons::VOLUME_IDENTITY_RECORDED;
        patch.events.push((reason, event));
        true
    }

    /// Whether the disk of an unused PV is its own, although its identity does not tell.
    fn is_proven(&self, pv: &PvView, candidate: &Candidate) -> bool {
        let mark = &candidate.mark.on_disk;
        let is_judged = self.settings.judges(candidate).is_some();
        is_judged && mark.is_of(&pv.uid, MarkState::Pending) && self.is_marked(candidate)
    }

    /// Reports a PV that shares its storage with another, as older provisioners could create. Returns `false`
    /// if the PV is withdrawn.
    fn check_unique(&mut self, pv: &'a PvView, candidate: &Candidate) -> bool {
        let Some(path) = pv.path() else { return true };
        let Some((other, overlap)) = self.occupied.conflict(&candidate.footprint, path) else {
            return true;
        };
        let Some(other_pv) = other.pv.as_deref().and_then(|name| self.by_name.get(name)) else {
            return true;
        };
        let (other, name) = (&other.path, &other_pv.name);
        let shares = format!("shares its storage with {other} of PV {name}: {overlap}");
        // Of two unused ones, the one with the later path is withdrawn.
        if pv.never_used() && (!other_pv.never_used() || other < path) {
            self.withdraw(pv, &format!("it was never used, and {shares}"));
            return false;
        }
        let message = format!(
            "it {shares}; two tenants may use one disk, and neither PV will be cleaned; remove one of the two"
        );
        self.notice(pv, reasons::VOLUME_DUPLICATE, message);
        true
    }

    fn report_health(&mut self, pv: &'a PvView, candidate: &Candidate) {
        if pv.mode == VolumeMode::Block && candidate.kind == VolumeMode::Filesystem {
            let reason = reasons::VOLUME_FAILED_DELETE;
            self.problem(pv, reason, VolumeState::Unhealthy, PATH_IS_DIRECTORY.into());
        } else if candidate.read_only {
            let message =
                "the volume is read-only; pods can read it, and it cannot be cleaned".to_owned();
            self.notice(pv, reasons::VOLUME_READ_ONLY, message);
        }
    }

    /// The PV at whose path the disk of an absent one is. A request whose answer was lost creates a PV also after its disk
    /// was moved and offered again.
    fn disk_is_of(&self, pv: &'a PvView) -> Option<&'a str> {
        let recorded = pv.identity.as_deref()?;
        let other = self.occupied.also_on(recorded, &pv.uid)?;
        let other = self.by_name.get(other)?;
        let location = self.locate(other);
        let found = &location.candidate()?.identity;
        (!found.weak && found.text == recorded).then_some(&other.name)
    }

    /// Reports a PV whose volume is not there. Returns `false` if the PV is withdrawn.
    fn report_absence(&mut self, pv: &'a PvView, location: &PvLocation<'a>) -> bool {
        if matches!(location, PvLocation::Unknown | PvLocation::Volume(..)) {
            return true;
        }
        let mut absence = absence(pv, location);
        if absence.state == VolumeState::ClassGone {
            let detail = Some(absence.message);
            self.states.insert(&pv.name, (absence.state, detail));
            return true;
        }
        if pv.never_used()
            && let Some(other) = self.disk_is_of(pv)
        {
            let because = format!("PV {other} has its disk now, and it was never used");
            self.withdraw(pv, &because);
            return false;
        }
        if location.is_gone() && self.withdraw_missing(pv, &mut absence.message) {
            return false;
        }
        self.problem(pv, absence.reason, absence.state, absence.message);
        true
    }

    /// The patch that adopts a PV from before this Node was registered again, or why it is not adopted.
    pub(super) fn adoption_patch(&self, pv: &'a PvView) -> Result<Patch, String> {
        let recorded = pv.identity.as_deref();
        let candidate = match self.locate(pv) {
            PvLocation::Volume(volume) => &volume.candidate,
            PvLocation::Outside(refusal) => return Err(refusal.message),
            _ => {
                let forget = to_forget(pv);
                return Err(format!(
                    "discovery would offer nothing at its path; put the volume back, or {forget}"
                ));
            }
        };
        let observed = &candidate.identity;
        let is_same = recorded.is_some_and(|it| compare(it, observed) == Match::Same);
        if !is_same && !consents_to("wipe", pv, candidate) {
            let what = recorded.map_or_else(
                || "it has no recorded identity to compare the disk with".into(),
                |recorded| format!("recorded identity {recorded:?}, found {:?}", observed.text),
            );
            return Err(mismatch(&what, pv, candidate).message);
        }
        let name_only = self.settings.config.use_node_name_only;
        let name = provisioner_name(&self.node.name, &self.node.uid, name_only);
        let mut text = format!("this Node was registered again; the PV is now managed by {name}");
        if !is_same {
            text += "; an administrator consented to wipe what is at its path when it is released";
        }
        let mut patch = Patch::of(pv);
        patch.events.push((reasons::VOLUME_ADOPTED, text));
        let by = Some(name);
        patch.annotations.insert(ANNOTATION_PROVISIONED_BY, by);
        // In the same request.
        patch.owners = owned_by(self.node, pv);
        if pv.hostname_label.is_none() {
            let hostname = Some(self.node.hostname.clone());
            patch.labels.insert(LABEL_HOSTNAME, hostname);
        }
        Ok(patch)
    }
}
