//! Whether a PV can be let go without anybody's data being left behind unseen.

use crate::plan::verdict::{Due, due};
use crate::view::{Phase, PvView};

/// Whether the finalizer may come off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing is to be cleaned: never used, kept by its policy, or still somebody's, and the object
    /// stays.
    Free,
    /// The object would go, or be forgotten, with a tenant's data on the disk.
    Unclean(&'static str),
}

/// Judges by the object alone; the disk is on another machine.
pub(super) fn judge(pv: &PvView) -> Judgement {
    match (due(pv), pv.deleting) {
        (Due::Unused | Due::Kept, _) | (Due::No, false) => Judgement::Free,
        (Due::Yes, true) => Judgement::Unclean("deleted, not cleaned yet"),
        (Due::Yes, false) => Judgement::Unclean("released, not cleaned yet"),
        (Due::No, true) if pv.phase == Phase::Bound => {
            Judgement::Unclean("deleted while its claim still uses it")
        }
        (Due::No, true) => {
            Judgement::Unclean("deleted, and its reclaim policy says nothing we know")
        }
    }
}
