//! Whether a released volume may be cleaned.
//!
//! The same rules apply when the plan is made and again at the gate, on fresh facts, right before the first byte is
//! deleted. An unknown fact refuses.

use crate::config::WeakIdentity;
use crate::host::identity::{Match, compare, only_rebooted};
use crate::inventory::Candidate;
use crate::names::{ANNOTATION_CONSENT, ANNOTATION_INSTALLATION, FINALIZER, LABEL_HOSTNAME};
use crate::quantity;
use crate::types::{SkipReason, VolumeMode};
use crate::view::{NodeView, Ownership, Phase, PvView, ReclaimPolicy};

use super::consent::{consent, consents_to, forget};
use super::{Occupied, PvLocation, Settings, VolumeState, reasons};

pub(super) const PATH_IS_DIRECTORY: &str =
    "its volumeMode is Block, but its path is now a directory; it will not be cleaned";

/// Whether a PV's volume has to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No: it is usable, retained, or still bound.
    No,
    /// Yes.
    Yes,
    /// It is Terminating and was never used: it can be deleted without cleaning.
    Unused,
    /// It is Terminating, and its reclaim policy keeps the data: it can be deleted without cleaning.
    Retained,
}

/// Decides by the PV alone.
pub fn due(pv: &PvView) -> Due {
    if pv.deleting {
        return match pv.policy {
            _ if !pv.has_finalizer() || pv.phase == Phase::Bound => Due::No,
            ReclaimPolicy::Retain => Due::Retained,
            _ if pv.never_used() => Due::Unused,
            ReclaimPolicy::Delete => Due::Yes,
            // Neither policy allows cleaning or keeping: the volume must not be offered again with the data.
            ReclaimPolicy::Recycle | ReclaimPolicy::Other(_) => Due::No,
        };
    }
    match (pv.phase, &pv.policy) {
        (Phase::Released, ReclaimPolicy::Delete) => Due::Yes,
        _ => Due::No,
    }
}

/// Whether the provisioner of the PV may have begun to wipe its volume, by the PV alone. It deletes the PV before the first
/// byte. Without the PV, the rest would be wiped only with an administrator's consent.
pub fn may_be_wiped(pv: &PvView) -> bool {
    pv.deleting && !pv.paused && due(pv) == Due::Yes
}

/// Why a volume is not cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The event's reason.
    pub reason: &'static str,
    /// The volume's state in `/status`.
    pub state: VolumeState,
    /// What is wrong and what to do, for an operator.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(reason: &'static str, message: String) -> Self {
        Self { reason, state: VolumeState::Refused, message }
    }
}

/// Permission to clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The identity that was checked, to be recorded if the PV has another.
    pub identity: String,
    /// Whether this consumes an administrator's consent.
    pub consent_used: bool,
}

/// Checks a PV that is due.
///
/// # Errors
/// [`Refusal`] with the first obstacle.
pub fn may_clean(
    pv: &PvView,
    settings: &Settings,
    node: &NodeView,
    location: &PvLocation<'_>,
    occupied: &Occupied,
) -> Result<Permission, Refusal> {
    let failed = |message| Err(Refusal::new(reasons::VOLUME_FAILED_DELETE, message));
    let duplicate = |message| Err(Refusal::new(reasons::VOLUME_DUPLICATE, message));
    match settings.ownership(node, pv) {
        Ownership::Ours => {}
        Ownership::OtherInstallation => {
            let other = pv.installation.as_deref().unwrap_or_default();
            return failed(format!(
                "installation {other} manages it; nothing was touched; if that is gone, remove the annotation {ANNOTATION_INSTALLATION}"
            ));
        }
        Ownership::FormerNode | Ownership::Foreign => {
            let text =
                "its provisioner annotation does not name this provisioner; nothing was touched";
            return failed(text.to_owned());
        }
    }
    if let Some(refusal) = elsewhere(pv, node) {
        return Err(refusal);
    }
    let (PvLocation::Volume(volume), Some(path)) = (location, pv.path()) else {
        let absence = absence(pv, location);
        return Err(match absence.reason {
            reasons::VOLUME_MISSING => Refusal { reason: reasons::VOLUME_FAILED_DELETE, ..absence },
            _ => absence,
        });
    };
    let (class, candidate) = (&volume.class, &volume.candidate);
    if pv.mode != class.volume_mode
        || (pv.mode == VolumeMode::Block && candidate.kind != VolumeMode::Block)
    {
        let is = match candidate.kind {
            VolumeMode::Filesystem => "directory",
            VolumeMode::Block => "block device",
        };
        return failed(format!(
            "its volumeMode is {:?}, but its class is for {:?} and its path is now a {is}; nothing was touched",
            pv.mode, class.volume_mode
        ));
    }
    if candidate.read_only {
        let text = "the volume is read-only and cannot be cleaned; make it writable (mount -o remount,rw) and it will be cleaned";
        return Err(Refusal::new(reasons::VOLUME_READ_ONLY, text.to_owned()));
    }
    if let Some((other, names)) = occupied.duplicate(path, &pv.uid) {
        return duplicate(format!(
            "PV {other} names {names}; cleaning {path} would destroy that PV's data, so nothing was touched; delete the wrong one of the two"
        ));
    }
    let permission = identity(pv, candidate, class.weak_identity, occupied)?;
    if let Some(fault) = occupied.contradictions.fault(&class.name) {
        let message = format!("{fault}; nothing was touched");
        return Err(Refusal::new(reasons::CLASS_INVALID, message));
    }
    if let Some(what) = occupied.contradictions.of(&pv.uid)
        && !permission.consent_used
    {
        return Err(mismatch(what, pv, candidate));
    }
    if let Some((other, overlap)) = occupied.conflict(&candidate.footprint, path) {
        let whose = other.pv.as_ref().map(|pv| format!(" (PV {pv})"));
        return duplicate(format!(
            "{path} shares its storage with {}{}: {overlap}; cleaning one would destroy the other, so nothing was touched; remove one of the two",
            other.path,
            whose.unwrap_or_default()
        ));
    }
    if let Some(other) = occupied.unseen_sharing(&candidate.identity, &pv.uid) {
        return duplicate(format!(
            "it may share its storage with PV {other}, whose volume is not visible at the moment; cleaning one could destroy the other, so nothing was touched; mount that one again and restore its class in the configuration, or delete that PV"
        ));
    }
    Ok(permission)
}

/// Why a PV is not on this node, by the affinity that Kubernetes enforces.
pub(super) fn elsewhere(pv: &PvView, node: &NodeView) -> Option<Refusal> {
    if pv.is_on(node) {
        return None;
    }
    let (hostname, name) = (&node.hostname, &node.name);
    let (reason, message) = match (pv.path(), pv.hostnames.first()) {
        (Some(path), Some(old)) if pv.was_made_on(node) => (
            reasons::VOLUME_HOSTNAME_MISMATCH,
            format!(
                "{path}: made for hostname {old:?}, the Node's label is {hostname:?}: no new pod can use it, nothing is wiped; change it back: kubectl label node {name} {LABEL_HOSTNAME}={old} --overwrite"
            ),
        ),
        _ => (
            reasons::VOLUME_FAILED_DELETE,
            format!(
                "its node affinity does not name this node ({hostname:?}), so its data may be elsewhere; nothing was touched"
            ),
        ),
    };
    Some(Refusal::new(reason, message))
}

/// Why a PV has no volume at its path.
pub(super) fn absence(pv: &PvView, location: &PvLocation<'_>) -> Refusal {
    let class = &pv.class;
    let (reason, state, message) = match location {
        PvLocation::Skipped(skip) if skip.reason == SkipReason::NotMounted => (
            reasons::VOLUME_NOT_MOUNTED,
            VolumeState::NotMounted,
            format!("{}; what lies there is not the volume; mount the volume", skip.detail),
        ),
        PvLocation::Skipped(skip)
            if pv.mode == VolumeMode::Block && skip.reason == SkipReason::ModeMismatch =>
        {
            let message = PATH_IS_DIRECTORY.to_owned();
            (reasons::VOLUME_FAILED_DELETE, VolumeState::Unhealthy, message)
        }
        PvLocation::Skipped(skip) => {
            let message = format!("{} ({:?})", skip.detail, skip.reason);
            let state = if skip.gone { VolumeState::Missing } else { VolumeState::Unhealthy };
            (reasons::VOLUME_MISSING, state, message)
        }
        PvLocation::Missing => (
            reasons::VOLUME_MISSING,
            VolumeState::Missing,
            "there is nothing at its path any more; put the volume back, or give it up: set the PV's reclaim policy to Retain and delete the PV".to_owned(),
        ),
        PvLocation::ClassInvalid => (
            reasons::CLASS_INVALID,
            VolumeState::ClassGone,
            format!("its class {class:?} is disabled because its configuration has a fault; correct it, and the volume is cleaned"),
        ),
        PvLocation::ClassGone => (
            reasons::VOLUME_FAILED_DELETE,
            VolumeState::ClassGone,
            format!("its class {class:?} is no longer in the configuration, so no cleaning method is configured for it; put the class back, or clean the volume by hand, set the PV's reclaim policy to Retain and delete the PV"),
        ),
        PvLocation::Outside(refusal) => return refusal.clone(),
        PvLocation::Unknown | PvLocation::Volume(..) => (
            reasons::VOLUME_FAILED_DELETE,
            VolumeState::Due,
            "its directory cannot be read at the moment; cleaning waits until it can".to_owned(),
        ),
    };
    Refusal { reason, state, message }
}

/// Checks that the disk is the one that the PV was created for, or that an administrator consented.
fn identity(
    pv: &PvView,
    candidate: &Candidate,
    weak: WeakIdentity,
    occupied: &Occupied,
) -> Result<Permission, Refusal> {
    let observed = &candidate.identity;
    let recorded = pv.identity.as_deref();
    let consent_used = consents_to("wipe", pv, candidate);
    if let Some(other) = occupied.recorded_on(observed, &pv.uid) {
        // Consent does not help: it would be consent to wipe the other PV's data.
        return Err(wrong_disk(format!(
            "the disk at its path ({:?}) is the one of PV {other}; nothing was touched; put the right disk back, or delete PV {other} first if it is the wrong one",
            observed.text
        )));
    }
    let offered = quantity::offered(candidate.capacity);
    let problem = match recorded.map(|recorded| (recorded, compare(recorded, observed))) {
        _ if consent_used => None,
        Some((_, Match::Same)) => None,
        Some((recorded, Match::Unknown))
            if weak == WeakIdentity::Accept && only_rebooted(recorded, observed) =>
        {
            None
        }
        Some((_, Match::Unknown)) => {
            Some("after a reboot nothing proves that its device is still the same one".to_owned())
        }
        Some((recorded, Match::Different)) => Some(format!(
            "another disk is at its path than the one it was made for: recorded {recorded:?}, found {:?}",
            observed.text
        )),
        // Created by the Go provisioner and released before we started: only the size can be compared.
        None if pv.capacity.as_ref() == Some(&offered) => None,
        None => Some(format!(
            "it was made without a recorded identity, and its capacity {} is not what would be offered there now ({offered})",
            pv.capacity.as_deref().unwrap_or("(none)")
        )),
    };
    match problem {
        Some(problem) => Err(mismatch(&problem, pv, candidate)),
        None => Ok(Permission { identity: observed.text.clone(), consent_used }),
    }
}

/// How to drop a PV.
pub(super) fn to_forget(pv: &PvView) -> String {
    format!("{ANNOTATION_CONSENT}={:?} drops the PV and touches nothing", forget(pv))
}

/// The consents come first: events are cut.
pub(super) fn mismatch(what: &str, pv: &PvView, candidate: &Candidate) -> Refusal {
    let (wipe, forget) = (consent("wipe", Some(pv), candidate), to_forget(pv));
    wrong_disk(format!(
        "{ANNOTATION_CONSENT}={wipe:?} permits to clean what is there; {forget}; otherwise put the right disk back: {what}; nothing was touched"
    ))
}

pub(super) fn wrong_disk(message: String) -> Refusal {
    Refusal {
        reason: reasons::VOLUME_IDENTITY_MISMATCH,
        state: VolumeState::IdentityMismatch,
        message,
    }
}

/// The PV's finalizers without ours.
pub fn without_ours(pv: &PvView) -> Vec<String> {
    let others = pv.finalizers.iter().filter(|it| *it != FINALIZER);
    others.cloned().collect()
}
