//! Decides whether the finalizer of a PV can be removed without abandoning a tenant's data.

use crate::plan::verdict::{Due, due};
use crate::view::{Phase, PvView};

/// Whether the finalizer can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing is to be cleaned: the volume was never used, its policy keeps the data, or its PV stays in use.
    Free,
    /// The PV would be deleted, or no longer be cleaned, with a tenant's data on the disk.
    Unclean(&'static str),
}

/// Judges by the PV only, since the disk is on another machine.
pub(super) fn judge(pv: &PvView) -> Judgement {
    match (due(pv), pv.deleting) {
        (Due::Unused | Due::Kept, _) | (Due::No, false) => Judgement::Free,
        (Due::Yes, true) => Judgement::Unclean("deleted, not cleaned yet"),
        (Due::Yes, false) => Judgement::Unclean("released, not cleaned yet"),
        (Due::No, true) if pv.phase == Phase::Bound => {
            Judgement::Unclean("deleted while its claim still uses it")
        }
        (Due::No, true) => Judgement::Unclean("deleted, and its reclaim policy is unknown"),
    }
}
