//! Writes the marks on the disks. The plan decides what they say.

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use crate::cleanup::blocking::within;
use crate::cluster::ApiError;
use crate::host::mark::MarkState;
use crate::names::{ANNOTATION_OFFER, ANNOTATION_STATE_DIRECTORY};
use crate::plan::{MarkWrite, Patch, PvSearch};
use crate::view::{PvRef, PvView};

/// The time limit for a write of a mark.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the protection of a used PV waits for its mark.
const USED_TIMEOUT: Duration = Duration::from_secs(5);

impl Execution {
    /// Writes a mark, durably.
    pub(super) async fn write_mark(&self, write: &MarkWrite) -> Result<(), String> {
        let written = self.context.host.mark(write, &self.facts);
        let limit = match write.mark.state {
            MarkState::Used => USED_TIMEOUT,
            _ => TIMEOUT,
        };
        let written = within(limit, "the disk", written).await;
        // Also after an error: the mark may be written.
        let table = &self.context.table;
        table.facts().marked.insert(write.volume.path.clone());
        written.map_err(|why| format!("{}: the mark cannot be written: {why}", write.volume.path))
    }

    /// Writes the mark that precedes a patch. The protection of a used PV does not wait for a mark that cannot be
    /// written; the next pass tries again.
    pub(super) async fn mark(&self, patch: &mut Patch) -> Result<(), ApiError> {
        let Some(write) = patch.mark.take() else {
            return Ok(());
        };
        // The scan precedes this: so the root that it has seen is the administrator's.
        let before = &write.volume.candidate.mark.on_disk;
        let records_root = write.mark.state == MarkState::Offered && !before.is_pending();
        if records_root || before.is_free() {
            self.ensure_current(&patch.pv).await?;
        }
        let Err(why) = self.write_mark(&write).await else {
            return Ok(());
        };
        // With it, a missing mark would be a mismatch.
        patch.annotations.remove(ANNOTATION_OFFER);
        patch.annotations.remove(ANNOTATION_STATE_DIRECTORY);
        let is_needed = write.mark.state != MarkState::Used || patch.changes_nothing();
        if is_needed {
            return Err(ApiError::Disk(why));
        }
        tracing::warn!("{why}; it is tried again");
        Ok(())
    }

    /// Fails if the watch has not shown the latest state of a PV. A lagging API server may show a PV whose volume was wiped
    /// since, and only a restored one may contradict a mark `free`.
    async fn ensure_current(&self, known: &PvRef) -> Result<(), ApiError> {
        let found = self.context.cluster.pv(&known.name).await?;
        let is_same = |pv: PvView| pv.reference() == *known;
        if found.is_some_and(is_same) {
            return Ok(());
        }
        Err(ApiError::Conflict)
    }

    /// Writes a mark without a change of a PV.
    pub(super) fn write_mark_only(self: &Arc<Self>, write: MarkWrite) {
        let guard = self.enter(write.volume.path.as_str(), None);
        let this = Arc::clone(self);
        self.write(guard, async move {
            let written = this.write_mark(&write).await;
            written.map(|()| true).map_err(ApiError::Failed)
        });
    }

    /// Reads the PVs that a mark may name. One that exists is in the cache afterwards.
    pub(super) fn search(self: &Arc<Self>, search: PvSearch) {
        let (this, guard) = (Arc::clone(self), self.enter(search.path.as_str(), None));
        self.write(guard, async move {
            for name in &search.names {
                this.find(name, &search.path).await?;
            }
            this.context.table.facts().record_searched(search.mark);
            Ok(true)
        });
    }
}
