//! Two rules that were once wrong in kube-controller-manager. A test puts a wrong one in place of the
//! right one, and shows what it breaks; outside of tests there is none of this.

use super::{BOUND_BY_CONTROLLER, provision};
use crate::controllers::{
    Context,
    object::{Claim, Volume},
};

/// A wrong rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldBug {
    /// A claim with the selected-node annotation does not bind late, whatever its class says.
    AnnotationDecidesAboutLateBinding,
    /// A claim that the cache does not know is gone, unless the controller bound its volume: only
    /// then the API is asked.
    UnknownMeansGone,
}

/// Whether a claim waits for a pod.
pub(super) fn binds_late(cx: &Context, claim: &Claim, by_class: bool) -> bool {
    match cx.old_bug {
        Some(OldBug::AnnotationDecidesAboutLateBinding) => {
            by_class && !provision::is_asked_for(claim)
        }
        _ => by_class,
    }
}

/// Whether the claim of a volume, which the cache does not know, is gone without a further look.
pub(super) fn gone_unasked(cx: &Context, volume: &Volume) -> bool {
    cx.old_bug == Some(OldBug::UnknownMeansGone) && volume.annotation(BOUND_BY_CONTROLLER).is_none()
}
