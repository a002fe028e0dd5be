//! When the state directory was lost, a volume without a mark may have had one there.
//!
//! PVs record the ID of the directory that has their marks. Once one of them records another ID than that of the present
//! directory, an absent mark proves nothing, until an administrator says so.

use crate::host::mark::{MarkOnDisk, Place};
use crate::inventory::Candidate;
use crate::names::ANNOTATION_STATE_DIRECTORY;
use crate::view::{Ownership, PvView};

use super::{Patch, Planner};

impl Planner<'_> {
    /// Whether a PV of this node has had its mark in another directory.
    pub(super) fn do_marks_differ(&self) -> bool {
        let present = self.snapshot.state_directory.as_ref();
        let mut pvs = self.pvs.iter().filter(|pv| {
            let recorded = pv.state_directory.as_ref();
            recorded.is_some() && recorded != present
        });
        pvs.any(|pv| {
            let ownership = self.settings.ownership(self.node, pv);
            matches!(ownership, Ownership::Ours | Ownership::FormerNode)
        })
    }

    /// Whether a volume without a mark may have lost it. One that was never written has lost none.
    pub(super) fn may_have_lost_mark(&self, candidate: &Candidate) -> bool {
        (self.plan.marks_differ || self.snapshot.has_doubt)
            && candidate.mark.on_disk == MarkOnDisk::Absent
            && candidate.mark.place == Some(Place::StateDirectory)
            && !candidate.is_blank
    }

    /// Records the directory that has the mark of a PV. Another one stays recorded until the directory itself has recorded
    /// the loss: a volume that is not there now may have lost its mark, too.
    /// Returns `true`: the PV stays.
    pub(super) fn record_directory(
        &self,
        pv: &PvView,
        candidate: &Candidate,
        patch: &mut Patch,
    ) -> bool {
        let mark = &candidate.mark;
        let has_mark = || mark.on_disk.valid().is_some_and(|it| it.pv_uid == pv.uid);
        // The mark of a patch is written first.
        let is_marked = patch.mark.is_some() || has_mark();
        let present = self.snapshot.state_directory.clone();
        let directory = present.filter(|_| mark.place == Some(Place::StateDirectory));
        let may_replace = self.snapshot.has_doubt || pv.state_directory.is_none();
        if is_marked && may_replace && pv.state_directory != directory {
            let annotations = &mut patch.annotations;
            annotations.insert(ANNOTATION_STATE_DIRECTORY, directory);
        }
        true
    }
}
