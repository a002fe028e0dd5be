//! Whether PV and disk agree, by the mark on the disk.
//!
//! API objects can be lost, restored and moved apart from their disks. So the disk has a mark that names its PV, and a
//! volume is offered or wiped only if both agree. [`agreement`] is the rule for a volume with a PV, [`unowned`] the rule
//! for a volume without one. docs/marks.md has both as tables.
//!
//! The plan never judges the mark of a PV that is due: only the gate does, on the locked volume.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::Class;
use crate::host::identity::{Match, compare};
use crate::host::mark::{Mark, MarkFact, MarkOnDisk, MarkState, Place};
use crate::inventory::{Candidate, Contents, Volume};
use crate::names::ANNOTATION_CONSENT;
use crate::types::VolumeMode;
use crate::view::{Phase, PvView, ReclaimPolicy};
use crate::wipe::method::Method;

use super::consent::{TO_DECIDE_FIRST, consent, consents_to};
use super::{Settings, Snapshot};

/// The fault, and its fix, while marks are off.
pub const NO_MARKS: &str = "the namespace kube-system cannot be read, so marks are neither written nor judged; grant get on it";

/// How long before the start of this process a mark `pending` may have been written, so that the previous process was
/// about to create the PV.
const CREATION_LIMIT: Duration = Duration::from_mins(10);

/// What follows from the mark of a volume with a PV.
#[derive(Clone, Debug, PartialEq)]
pub enum Agreement {
    /// PV and mark agree.
    Agrees,
    /// They agree once this mark is written: the mark lags behind the PV, or there is none yet.
    Lags(Box<Mark>),
    /// They contradict each other: both sides, and the remedy.
    Mismatch(String),
}

/// What follows from the mark of a volume without a PV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unowned {
    /// It may be offered.
    Clean,
    /// Its PV was deleted unused: the mark becomes `free`.
    Ended,
    /// It is offered with its data, to the claim that its mark names.
    Adopt,
    /// An operator consents to a cleanup.
    Wipe,
    /// It may hold the data of a tenant.
    Dirty,
}

impl Settings {
    /// The cluster that marks name, if a volume has a mark or can have one.
    pub fn judges(&self, candidate: &Candidate) -> Option<&str> {
        let MarkFact { on_disk, place, .. } = &candidate.mark;
        let cluster = self.cluster.as_deref();
        cluster.filter(|_| place.is_some() || *on_disk != MarkOnDisk::Absent)
    }
}

/// Compares the mark of a volume with its PV. The first rule that matches decides.
pub fn agreement(pv: &PvView, cluster: &str, candidate: &Candidate, date: Timestamp) -> Agreement {
    let observed = &candidate.identity;
    let recorded = pv.identity.as_deref();
    let is_its_disk =
        !observed.weak && recorded.is_some_and(|it| compare(it, observed) == Match::Same);
    // A PV that is only reserved has no tenant.
    let is_used = pv.used || matches!(pv.phase, Phase::Bound | Phase::Released | Phase::Failed);
    let state = if is_used { MarkState::Used } else { MarkState::Offered };
    let is_released = matches!(pv.phase, Phase::Released | Phase::Failed)
        || (pv.deleting && pv.phase != Phase::Bound);
    let is_empty = candidate.contents == Contents::Empty;
    let found = &candidate.mark.on_disk;
    let agrees = match found {
        // The mark is a copy from another disk.
        MarkOnDisk::Valid(mark) if is_its_disk && mark.identity_hash != observed.hash() => true,
        MarkOnDisk::Valid(mark) if mark.cluster == cluster && mark.pv_uid == pv.uid => {
            match mark.state {
                // The API server was restored to a time before the wipe.
                MarkState::Wiping if !is_released => false,
                MarkState::Free if !is_released => true,
                // Its data belongs to its tenant again.
                MarkState::Wiping | MarkState::Free if pv.policy == ReclaimPolicy::Retain => true,
                MarkState::Wiping | MarkState::Free => return Agreement::Agrees,
                // The API server was restored to a time before the claim, and another one may have come first.
                MarkState::Used
                    if !is_used
                        || ((!pv.used || pv.use_is_unverified) && mark.claim != claim_of(pv)) =>
                {
                    false
                }
                _ if !observed.weak && mark.identity_hash != observed.hash() => false,
                // The API server was restored, and a later claim has the name of the first one. Or the volume was adopted
                // for a claim of this name, whose UID was not known yet.
                MarkState::Used
                    if pv.phase == Phase::Bound && mark.claim_uid != claim_uid_of(pv) =>
                {
                    mark.claim_uid.as_deref() == Some("") && mark.claim == claim_of(pv)
                }
                before if before < state => true,
                // The header has proven the disk, which had another identity in an earlier boot.
                MarkState::Offered if pv.never_used() && mark.identity_hash != observed.hash() => {
                    true
                }
                // An administrator prepared the root for the first tenant.
                MarkState::Offered if pv.claim.is_none() && is_prepared(candidate) => true,
                _ => return Agreement::Agrees,
            }
        }
        MarkOnDisk::Valid(mark) if mark.state == MarkState::Pending && pv.offer.is_some() => {
            let is_its_claim = !mark.is_adoption() || mark.claim == claim_of(pv);
            mark.cluster == cluster && pv.offer.as_ref() == Some(&mark.token) && is_its_claim
        }
        MarkOnDisk::Valid(mark) if mark.cluster == cluster && is_moved(pv, mark) => true,
        // The PV was restored after its volume was wiped: whatever is written since is of its own tenant.
        MarkOnDisk::Valid(mark) if mark.cluster == cluster && mark.state == MarkState::Free => {
            is_its_disk || pv.offer.is_none()
        }
        // The state directory was lost, but the identity proves the disk. Or a filesystem in memory lost its contents
        // with its mark.
        MarkOnDisk::Absent if pv.offer.is_some() => match candidate.mark.place {
            Some(Place::StateDirectory) => is_its_disk,
            _ => observed.weak && recorded == Some(&observed.text) && !observed.is_of_boot(),
        },
        MarkOnDisk::Absent => true,
        // The PV is of an earlier version or of the Go provisioner, which left an old mark behind.
        MarkOnDisk::Valid(mark) if pv.offer.is_none() => {
            // A mark `pending` precedes a PV of ours, whose name this PV has taken.
            let is_pending = mark.state == MarkState::Pending && !mark.is_adoption();
            let is_new = is_pending && mark.cluster == cluster;
            let is_free = mark.state == MarkState::Free;
            is_new || is_free || is_empty || pv.phase == Phase::Bound
        }
        _ => false,
    };
    let is_accepted = candidate.mark.place.is_some() && consents_to("accept", pv, candidate);
    let is_offerable = || pv.never_used() && is_clean(found, cluster, candidate);
    if agrees || is_accepted || is_offerable() {
        let mark = mark_of(pv, cluster, candidate, state, date);
        return Agreement::Lags(Box::new(mark));
    }
    let offer = pv.offer.as_deref().unwrap_or("none");
    let of_mark = found.valid().and_then(|mark| mark.claim_uid.as_deref());
    let of_pv = claim_uid_of(pv);
    let mark = match (of_mark, of_pv.as_deref()) {
        (Some(of_mark), Some(of_pv))
            if of_mark != of_pv && !of_mark.is_empty() && !of_pv.is_empty() =>
        {
            let mark = describe(found);
            format!("{mark}, of the claim with UID {of_mark}, not {of_pv}")
        }
        _ => describe(found),
    };
    let [accept, wipe] = ["accept", "wipe"].map(|verb| consent(verb, Some(pv), candidate));
    Agreement::Mismatch(format!(
        "{TO_DECIDE_FIRST}{ANNOTATION_CONSENT} to {accept:?} (the disk is this PV's) or {wipe:?} (the data may be deleted): the PV (UID {}, offer {offer}) and the disk do not agree: {mark}; nothing was touched",
        pv.uid
    ))
}

/// Whether the owner or the mode of a filesystem's root is not that of its offer any more.
fn is_prepared(candidate: &Candidate) -> bool {
    candidate.kind == VolumeMode::Filesystem && !candidate.is_as_offered
}

/// Whether a PV replaces that of a mark, because its disk was moved. The next write of the mark makes the annotation void.
fn is_moved(pv: &PvView, mark: &Mark) -> bool {
    let from = format!("{}:{}", mark.pv_uid, mark.token);
    mark.state == MarkState::Used
        && pv.moved_from.as_ref() == Some(&from)
        && pv.policy == ReclaimPolicy::Retain
        && mark.claim == claim_of(pv)
}

fn claim_of(pv: &PvView) -> Option<String> {
    pv.claim.as_ref().map(ToString::to_string)
}

/// The UID that the mark of a PV names, or "" if the PV is only reserved. Others keep the format of earlier versions.
fn claim_uid_of(pv: &PvView) -> Option<String> {
    let claim = pv.claim.as_ref().filter(|_| pv.link.is_some())?;
    let reserved = || (pv.phase != Phase::Bound).then(String::new);
    claim.uid.clone().or_else(reserved)
}

/// The mark of a PV's volume in a state. It keeps what the offer recorded.
pub fn mark_of(
    pv: &PvView,
    cluster: &str,
    candidate: &Candidate,
    state: MarkState,
    date: Timestamp,
) -> Mark {
    let before = candidate.mark.on_disk.valid().cloned();
    let is_pending = candidate.mark.on_disk.is_pending();
    // Before the first claim, it is as an administrator has prepared it.
    let now = candidate.root.clone().filter(|_| state == MarkState::Offered && !is_pending);
    let root = now.or_else(|| before.as_ref()?.root.clone());
    Mark {
        cluster: cluster.to_owned(),
        pv_uid: pv.uid.clone(),
        token: pv.offer.clone().unwrap_or_else(|| pv.uid.clone()),
        state,
        identity_hash: candidate.identity.hash(),
        class: pv.class.clone(),
        claim: claim_of(pv),
        claim_uid: claim_uid_of(pv),
        written_at: date,
        boot_time: None,
        root,
        ..before.unwrap_or_default()
    }
}

/// Whether a volume without a PV can be offered whatever its mark says of the past.
fn is_clean(mark: &MarkOnDisk, cluster: &str, candidate: &Candidate) -> bool {
    let is_empty =
        || candidate.kind == VolumeMode::Filesystem && candidate.contents == Contents::Empty;
    match mark {
        MarkOnDisk::Absent => true,
        MarkOnDisk::Valid(it) if it.cluster == cluster && candidate.mark.is_free() => true,
        MarkOnDisk::Valid(it) if it.is_adoption() => false,
        MarkOnDisk::Valid(_) | MarkOnDisk::Unreadable { .. } => is_empty(),
    }
}

/// Whether the last cleanup of a volume left data that its class promises to remove. A class of raw devices does, unless
/// its cleaner only resets them. Where it is not known, a device of the same class was offered so before.
pub fn holds_leftovers(class: &Class, mark: &MarkOnDisk) -> bool {
    let method = || Method::of(VolumeMode::Block, &class.cleaner);
    let is_left = |mark: &Mark| mark.data_left.unwrap_or(mark.class != class.name);
    mark.valid().is_some_and(is_left)
        && class.volume_mode == VolumeMode::Block
        && method() != Method::QuickReset
}

/// Judges the mark of a volume without a PV. The first rule that matches decides. `is_its_disk` is the result of
/// [`super::Planner::is_marked`].
pub(super) fn unowned(
    cluster: &str,
    volume: &Volume,
    consents: &BTreeSet<String>,
    snapshot: &Snapshot,
    is_its_disk: bool,
) -> Unowned {
    let candidate = &volume.candidate;
    let found = &candidate.mark.on_disk;
    let leftovers = holds_leftovers(&volume.class, found);
    let permits = |verb| !consents.is_empty() && consents.contains(&consent(verb, None, candidate));
    let is_accepted = || candidate.mark.place.is_some() && permits("accept");
    if (is_its_disk && !leftovers && is_clean(found, cluster, candidate)) || is_accepted() {
        return Unowned::Clean;
    }
    if permits("wipe") {
        return Unowned::Wipe;
    }
    let MarkOnDisk::Valid(mark) = found else {
        return Unowned::Dirty;
    };
    let Snapshot { ended, ledger, now, boot_time, .. } = snapshot;
    // How old the mark was when this process started.
    let age = || {
        let age = boot_time.as_ref()?.since(mark.boot_time.as_ref()?)?;
        Some(age.saturating_sub(*now))
    };
    // Of this process, whose request failed. A PV that it has created may have had a tenant before it was deleted.
    let is_own = ledger.unborn.contains(&mark.token);
    let is_recent_device =
        candidate.kind == VolumeMode::Block && age().is_some_and(|age| age < CREATION_LIMIT);
    // A mark `pending` does not name its PV yet.
    let has_ended = || {
        let of_offer = (mark.token.clone(), String::new())..;
        let mut of_offer = ended.range(of_offer).take_while(|it| it.0 == mark.token);
        of_offer.any(|(_, uid)| mark.pv_uid.is_empty() || *uid == mark.pv_uid)
    };
    match mark.state {
        _ if mark.cluster != cluster || !is_its_disk || leftovers => Unowned::Dirty,
        _ if mark.is_adoption() => Unowned::Dirty,
        MarkState::Pending | MarkState::Offered if has_ended() => Unowned::Ended,
        MarkState::Pending | MarkState::Offered if mark.read_only && candidate.read_only => {
            Unowned::Clean
        }
        MarkState::Pending if is_own || (is_recent_device && candidate.is_as_offered) => {
            Unowned::Clean
        }
        _ => Unowned::Dirty,
    }
}

/// What a mark says. It names no claim: `/status` requires no authentication.
pub(super) fn describe(mark: &MarkOnDisk) -> String {
    match mark {
        MarkOnDisk::Absent => "it has no mark".to_owned(),
        MarkOnDisk::Unreadable { .. } => "its mark cannot be read".to_owned(),
        MarkOnDisk::Valid(mark) if mark.state == MarkState::Wiping => {
            format!("a wipe of it was interrupted, of PV UID {}", mark.pv_uid)
        }
        MarkOnDisk::Valid(mark) => {
            let (state, uid) = (mark.state.as_str(), &mark.pv_uid);
            let (token, cluster) = (&mark.token, &mark.cluster);
            format!("its mark is {state}, of PV UID {uid}, offer {token}, cluster {cluster}")
        }
    }
}
