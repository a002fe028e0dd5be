//! Writes the marks on the disks. The plan decides what they say.

use std::time::Duration;

use super::Actor;
use crate::cache::Expectations;
use crate::cleanup::PassFacts;
use crate::cluster::ApiError;
use crate::host::mark::MarkState;
use crate::names::{ANNOTATION_OFFER, ANNOTATION_STATE_DIRECTORY};
use crate::plan::{MarkWrite, Patch, PvSearch};
use crate::view::{PvRef, PvView};

/// The time limit for a write of a mark.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the protection of a used PV waits for its mark.
const USED_TIMEOUT: Duration = Duration::from_secs(5);

impl Actor {
    /// Writes a mark, durably.
    pub(super) async fn write_mark(
        &self,
        write: &MarkWrite,
        facts: &PassFacts,
    ) -> Result<(), String> {
        let written = self.context.host.mark(write, facts);
        let limit = match write.mark.state {
            MarkState::Used => USED_TIMEOUT,
            _ => TIMEOUT,
        };
        let written = match tokio::time::timeout(limit, written).await {
            Ok(written) => written.map_err(|obstacle| obstacle.to_string()),
            Err(_) => Err(format!("the disk did not answer for {limit:?}")),
        };
        // Also after an error: the mark may be written.
        self.context
            .table
            .facts()
            .marked
            .insert(write.volume.path.clone());
        written.map_err(|why| format!("{}: the mark cannot be written: {why}", write.volume.path))
    }

    /// Writes the mark that precedes a patch. The protection of a used PV does not wait for a mark that cannot be
    /// written; the next pass tries again.
    pub(super) async fn mark(&self, patch: &mut Patch, facts: &PassFacts) -> Result<(), ApiError> {
        let Some(write) = patch.mark.take() else {
            return Ok(());
        };
        // The scan precedes this: so the root that it has seen is the administrator's.
        let before = &write.volume.candidate.mark.on_disk;
        let records_root = write.mark.state == MarkState::Offered && !before.is_pending();
        if records_root || before.is_free() {
            self.ensure_current(&patch.pv).await?;
        }
        let Err(why) = self.write_mark(&write, facts).await else {
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
    pub(super) fn write_mark_only(&self, write: MarkWrite, facts: PassFacts) {
        let guard = self.enter(write.volume.path.as_str(), None);
        let this = self.clone();
        let work = async move {
            let written = this.write_mark(&write, &facts).await;
            written.map_err(ApiError::Failed)
        };
        self.write(guard, work, |is_ok| is_ok);
    }

    /// Reads the PVs that a mark may name. One that exists is in the cache afterwards.
    pub(super) fn search(&self, search: PvSearch, expectations: &Expectations) {
        let guard = self.enter(search.path.as_str(), None);
        let (this, now) = (self.clone(), expectations.clone());
        let work = async move {
            for name in &search.names {
                this.find(name, &search.path, &now).await?;
            }
            this.context.table.facts().record_searched(search.mark);
            Ok(())
        };
        self.write(guard, work, |is_ok| is_ok);
    }
}
