//! Whether a released volume may be cleaned.
//!
//! The same rules apply when the plan is made and again at the gate, on fresh facts, right before the first byte is
//! deleted. An unknown fact refuses.

use crate::config::{Config, WeakIdentity};
use crate::host::identity::{Match, compare, only_rebooted};
use crate::inventory::Candidate;
use crate::names::{ANNOTATION_CONSENT, FINALIZER, LABEL_HOSTNAME};
use crate::quantity;
use crate::types::{SkipReason, VolumeMode};
use crate::view::{NodeView, Ownership, Phase, PvView, ReclaimPolicy};

use super::{Occupied, PvLocation, VolumeState, reasons};

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
    Kept,
}

/// Decides by the PV alone.
#[must_use]
pub fn due(pv: &PvView) -> Due {
    if pv.deleting {
        return match pv.policy {
            _ if !pv.has_finalizer() || pv.phase == Phase::Bound => Due::No,
            ReclaimPolicy::Retain => Due::Kept,
            _ if pv.never_used() => Due::Unused,
            ReclaimPolicy::Delete => Due::Yes,
            // Neither policy allows cleaning or keeping: the volume must not be offered again with the data.
            ReclaimPolicy::Recycle | ReclaimPolicy::Other(_) => Due::No,
        };
    }
    if pv.phase == Phase::Released && pv.policy == ReclaimPolicy::Delete {
        Due::Yes
    } else {
        Due::No
    }
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
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            state: VolumeState::Refused,
            message: message.into(),
        }
    }

    fn state(mut self, state: VolumeState) -> Self {
        self.state = state;
        self
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
    config: &Config,
    node: &NodeView,
    location: &PvLocation<'_>,
    occupied: &Occupied,
) -> Result<Permission, Refusal> {
    if pv.ownership(node, config.use_node_name_only) != Ownership::Ours {
        return Err(Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            "its provisioner annotation does not name this provisioner; nothing was touched",
        ));
    }
    if let Some(refusal) = elsewhere(pv, node) {
        return Err(refusal);
    }
    let (class, candidate) = match location {
        PvLocation::Volume(class, _, candidate) => (class, *candidate),
        other => return Err(not_a_volume(pv, other)),
    };
    if pv.mode != class.volume_mode
        || (pv.mode == VolumeMode::Block && candidate.kind != VolumeMode::Block)
    {
        return Err(Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            format!(
                "its volumeMode is {}, but its class is for {} and its path is now a {}; nothing was touched",
                pv.mode,
                class.volume_mode,
                kind_in_words(candidate.kind)
            ),
        ));
    }
    if candidate.read_only {
        return Err(Refusal::new(
            reasons::VOLUME_READ_ONLY,
            "the volume is read-only and cannot be cleaned; make it writable (mount -o remount,rw) and it will be cleaned",
        ));
    }
    if let Some(path) = pv.path()
        && let Some(rival) = occupied.rival(path, &pv.uid)
    {
        let names = if rival.same_path {
            "the same path"
        } else {
            "a path inside or around this one"
        };
        return Err(Refusal::new(
            reasons::VOLUME_DUPLICATE,
            format!(
                "PV {} names {names}; cleaning {path} would destroy that PV's data, so nothing was touched; delete the wrong one of the two",
                rival.pv
            ),
        ));
    }
    let permission = identity(pv, candidate, class.weak_identity, occupied)?;
    if let Some(path) = pv.path()
        && let Some((other, overlap)) = occupied.conflict(&candidate.footprint, path)
    {
        let whose = other
            .pv
            .as_ref()
            .map_or_else(String::new, |pv| format!(" (PV {pv})"));
        return Err(Refusal::new(
            reasons::VOLUME_DUPLICATE,
            format!(
                "{path} shares its storage with {}{whose}: {overlap}; cleaning one would destroy the other, so nothing was touched; remove one of the two",
                other.path
            ),
        ));
    }
    if let Some(other) = occupied.unseen_sharing(&candidate.identity, &pv.uid) {
        return Err(Refusal::new(
            reasons::VOLUME_DUPLICATE,
            format!(
                "it may share its storage with PV {other}, whose volume is not visible at the moment; cleaning one could destroy the other, so nothing was touched; mount that one again and restore its class in the configuration, or delete that PV"
            ),
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
    let (path, old) = match (pv.path(), pv.hostnames.first()) {
        (Some(path), Some(old)) if pv.was_made_on(node) => (path, old),
        _ => {
            return Some(Refusal::new(
                reasons::VOLUME_FAILED_DELETE,
                format!(
                    "its node affinity does not name this node ({hostname:?}), so its data may be elsewhere; nothing was touched"
                ),
            ));
        }
    };
    Some(Refusal::new(
        reasons::VOLUME_HOSTNAME_MISMATCH,
        format!(
            "{path}: made for hostname {old:?}, the Node's label is {hostname:?}: no new pod can use it, nothing is wiped; change it back: kubectl label node {name} {LABEL_HOSTNAME}={old} --overwrite"
        ),
    ))
}

fn kind_in_words(kind: VolumeMode) -> &'static str {
    match kind {
        VolumeMode::Filesystem => "directory",
        VolumeMode::Block => "block device",
    }
}

fn not_a_volume(pv: &PvView, location: &PvLocation<'_>) -> Refusal {
    match location {
        PvLocation::Skipped(skip) if skip.reason == SkipReason::NotMounted => Refusal::new(
            reasons::VOLUME_NOT_MOUNTED,
            format!(
                "{}; what lies there is not the volume, so nothing was touched; mount the volume and it will be cleaned",
                skip.detail
            ),
        )
        .state(VolumeState::NotMounted),
        PvLocation::Skipped(skip) => Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            format!("{} ({}); nothing was touched", skip.detail, skip.reason),
        ),
        PvLocation::Missing => Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            "there is nothing at its path any more; nothing was touched; put the volume back, or give it up: set the PV's reclaim policy to Retain and delete the PV",
        )
        .state(VolumeState::Missing),
        PvLocation::ClassInvalid => Refusal::new(
            reasons::CLASS_INVALID,
            format!("its class {:?} is switched off because of its configuration; fix that and the volume will be cleaned", pv.class),
        )
        .state(VolumeState::ClassGone),
        PvLocation::ClassGone => Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            format!("its class {:?} is no longer in the configuration, so no cleaning method is configured for it; put the class back, or clean the volume by hand, set the PV's reclaim policy to Retain and delete the PV", pv.class),
        )
        .state(VolumeState::ClassGone),
        PvLocation::Outside(why) => {
            Refusal::new(reasons::VOLUME_FAILED_DELETE, format!("{why}; nothing was touched"))
        }
        PvLocation::Unknown | PvLocation::Volume(..) => Refusal::new(
            reasons::VOLUME_FAILED_DELETE,
            "its discovery directory cannot be read at the moment; cleaning waits until it can",
        ),
    }
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
    let consent_used = consents_to_wipe(pv, &observed.text);
    let permission = Permission {
        identity: observed.text.clone(),
        consent_used,
    };
    if !observed.weak
        && let Some(other) = occupied.recorded_on_another(&observed.text, &pv.uid)
    {
        // Consent does not help: it would be consent to wipe the other PV's data.
        return Err(Refusal::new(
            reasons::VOLUME_IDENTITY_MISMATCH,
            format!(
                "the disk at its path ({:?}) is the one of PV {other}; nothing was touched; put the right disk back, or delete PV {other} first if it is the wrong one",
                observed.text
            ),
        )
        .state(VolumeState::IdentityMismatch));
    }
    if consent_used {
        return Ok(permission);
    }
    let Some(recorded) = recorded else {
        // Created by the Go provisioner and released before we started: only the size can be compared.
        let offered = quantity::offered(candidate.capacity);
        if pv.capacity.as_ref() == Some(&offered) {
            return Ok(permission);
        }
        return Err(mismatch(
            &format!(
                "it was made without a recorded identity, and its capacity {} is not what would be offered there now ({offered})",
                pv.capacity.as_deref().unwrap_or("(none)")
            ),
            observed.text.as_str(),
            None,
        ));
    };
    match compare(recorded, observed) {
        Match::Same => Ok(permission),
        Match::Unknown if weak == WeakIdentity::Accept && only_rebooted(recorded, observed) => {
            Ok(permission)
        }
        Match::Unknown => Err(mismatch(
            "after a reboot nothing proves that its device is still the same one",
            &observed.text,
            Some(recorded),
        )),
        Match::Different => Err(mismatch(
            &format!(
                "another disk is at its path than the one it was made for: recorded {recorded:?}, found {:?}",
                observed.text
            ),
            &observed.text,
            Some(recorded),
        )),
    }
}

/// How to drop a PV. Without a recorded identity the consent has nothing to name.
pub(super) fn or_forget(recorded: Option<&str>) -> String {
    recorded.map_or_else(String::new, |recorded| {
        format!(
            ", or drop the PV and touch nothing with {ANNOTATION_CONSENT}={:?}",
            format!("forget:{recorded}")
        )
    })
}

pub(super) fn mismatch(what: &str, observed: &str, recorded: Option<&str>) -> Refusal {
    let forget = or_forget(recorded);
    Refusal::new(
        reasons::VOLUME_IDENTITY_MISMATCH,
        format!(
            "{what}; nothing was touched; put the right disk back, or allow cleaning what is there with the annotation {ANNOTATION_CONSENT}={:?}{forget}",
            format!("wipe:{observed}")
        ),
    )
    .state(VolumeState::IdentityMismatch)
}

pub(super) fn consents_to_wipe(pv: &PvView, observed: &str) -> bool {
    pv.consent
        .as_deref()
        .and_then(|consent| consent.strip_prefix("wipe:"))
        == Some(observed)
}

/// Whether an administrator consented to delete the PV without cleaning, with its recorded identity.
#[must_use]
pub fn consents_to_forget(pv: &PvView) -> bool {
    let named = pv
        .consent
        .as_deref()
        .and_then(|consent| consent.strip_prefix("forget:"));
    named.is_some() && named == pv.identity.as_deref()
}

/// The PV's finalizers without ours.
#[must_use]
pub fn without_ours(pv: &PvView) -> Vec<String> {
    pv.finalizers
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .cloned()
        .collect()
}
