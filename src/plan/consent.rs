//! Consents: an operator permits one act that the plan refuses otherwise.
//!
//! A consent names the PV, the disk and the contents of the mark that it was given for:
//! `VERB:<PV UID or ->:<identity hash>:<digest of the mark or none>`. So a restored PV, another disk at the path, and
//! each write of the mark make it void, and no annotation permits anything twice.

use crate::host::identity;
use crate::inventory::Candidate;
use crate::view::{NodeView, PvView};

/// The consent to an act on a volume: with a PV, or without one.
pub(super) fn consent(verb: &str, pv: Option<&PvView>, candidate: &Candidate) -> String {
    let uid = pv.map_or("-", |pv| &pv.uid);
    let (disk, mark) = (candidate.identity.hash(), candidate.mark.digest());
    format!("{verb}:{uid}:{disk}:{mark}")
}

/// Whether an operator consented to an act on the volume of a PV.
pub(super) fn consents_to(verb: &str, pv: &PvView, candidate: &Candidate) -> bool {
    let wanted = || consent(verb, Some(pv), candidate);
    let given = pv.consent.as_ref();
    given.is_some_and(|given| given.split(',').any(|it| it == wanted()))
}

/// In the reason of a dirty volume, what precedes the annotations that an operator can set.
pub const TO_DECIDE: &str = "; to decide: ";

/// The same in an event, where it comes first.
pub const TO_DECIDE_FIRST: &str = "to decide, set the annotation ";

/// The consents that a text names.
pub fn consents_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && !":-".contains(it));
    let verbs = ["accept:", "adopt:", "forget:", "move:", "wipe:"];
    words.filter(move |word| verbs.iter().any(|verb| word.starts_with(verb)))
}

/// Whether an operator consented to clean a volume without a PV.
pub fn consents_to_wipe(node: &NodeView, candidate: &Candidate) -> bool {
    node.consents.contains(&consent("wipe", None, candidate))
}

/// The consent to delete a PV and touch no disk. It names the disk that the PV records, and no mark.
pub fn forget(pv: &PvView) -> String {
    let disk = identity::hash(pv.identity.as_deref().unwrap_or_default());
    format!("forget:{}:{disk}:none", pv.uid)
}

/// Whether an operator consented to delete the PV without cleaning.
pub fn consents_to_forget(pv: &PvView) -> bool {
    let given = pv.consent.as_ref();
    given.is_some_and(|given| *given == forget(pv))
}
