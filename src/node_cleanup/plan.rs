//! What to do about one PV. Pure: no clock, no client.

use std::time::Duration;

use jiff::Timestamp;

use super::roster::Roster;
use super::timer;
use super::volume::{Place, Volume};
use crate::view::{Phase, ReclaimPolicy};

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The node is back: forget since when it was gone.
    Cancel,
    /// Delete the claim that is bound to it, so that its pods can start elsewhere.
    DeleteClaim,
    /// Note since when the node is gone, and warn the claim's owner.
    StartTimer,
    /// Take our finalizer off: nobody is left who could clean it, and nothing to be cleaned.
    TakeFinalizer,
    /// Delete the PV.
    DeletePv,
}

/// What comes next for a PV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, as far as anybody can tell.
    Nothing,
    /// Nothing, because it is not clear whether its node is gone, and why.
    Unclear(String),
    /// This, at this time.
    Wait(Step, Timestamp),
    /// This, now.
    Now(Step),
}

/// Whether a PV's nodes are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some Node is there that has, or may have, its data.
    There,
    /// None is.
    Gone,
    /// Nobody can say.
    Unclear(String),
}

/// Judges by what the watch of the Nodes has shown.
#[must_use]
pub fn verdict(place: &Result<Place, &'static str>, roster: &Roster) -> Verdict {
    let place = match place {
        Ok(place) => place,
        Err(why) => return Verdict::Unclear((*why).to_owned()),
    };
    if roster.is_empty() {
        return Verdict::Unclear("the API server lists no Node at all".into());
    }
    if place.names().any(|name| roster.knows(name)) {
        return Verdict::There;
    }
    match roster.unlabelled() {
        Some(node) if place.maker.is_none() => Verdict::Unclear(format!(
            "Node {node:?} has no label kubernetes.io/hostname, so it may be this PV's"
        )),
        _ => Verdict::Gone,
    }
}

/// Decides.
#[must_use]
pub fn next(volume: &Volume, roster: &Roster, now: Timestamp, delay: Duration) -> Next {
    match verdict(&volume.place, roster) {
        Verdict::Unclear(why) => return Next::Unclear(why),
        Verdict::There if volume.gone_since.is_some() => return Next::Now(Step::Cancel),
        Verdict::There => return Next::Nothing,
        Verdict::Gone if volume.paused => return Next::Nothing,
        Verdict::Gone => {}
    }
    let Some(step) = in_the_end(volume) else {
        return Next::Nothing;
    };
    // Without data in it, nothing is lost should the node come back.
    if volume.never_used {
        return Next::Now(step);
    }
    let subject = volume.subject();
    let since = volume.gone_since.as_deref();
    match since.and_then(|since| timer::due(since, subject, now, delay)) {
        None => Next::Now(Step::StartTimer),
        Some(due) => {
            // Whoever was not there yet when the Nodes came back gets all of the time.
            let refilled = roster.refilled.and_then(|at| at.checked_add(delay).ok());
            let due = refilled.map_or(due, |refilled| due.max(refilled));
            if due > now {
                Next::Wait(step, due)
            } else {
                Next::Now(step)
            }
        }
    }
}

/// What is done about a PV whose node is gone, when the time has come.
fn in_the_end(volume: &Volume) -> Option<Step> {
    let has_tenant = volume
        .claim
        .as_ref()
        .is_some_and(|claim| claim.uid.is_some());
    match volume.phase {
        Phase::Bound => has_tenant.then_some(Step::DeleteClaim),
        // Whatever its policy: somebody has deleted it, and only our finalizer keeps it.
        _ if volume.deleting => volume.protected.then_some(Step::TakeFinalizer),
        Phase::Available => Some(Step::DeletePv),
        Phase::Released if volume.policy == ReclaimPolicy::Delete => Some(Step::DeletePv),
        // Kept on purpose, or in a state that somebody has to look at.
        Phase::Released | Phase::Pending | Phase::Failed => None,
    }
}
