//! Inspects a volume before its PV is created, with the inspection of a cleanup. Only what depends on the API server is
//! left to the plan, to the list of the PVs of other nodes in `owners.rs`, and to that of the Pods of this node, which is
//! requested once for all volumes of a pass that pass the inspection.
//!
//! A device is opened exclusively for that. The open fails while the device, one of its partitions or its parent disk
//! is mounted in any mount namespace, or claimed by swap, btrfs, a journal, LVM or md. A device that has a PV, or shares
//! storage with one, is never opened so: a mount by the kubelet would fail at that moment. The plan creates no PV for
//! such a device. (The inspection of a disk that hangs may go on after its time limit. Its result is dropped.)

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use crate::cleanup::blocking::{DISK_TIMEOUT, within};
use crate::cleanup::{Obstacle, path_owner};
use crate::inventory::Skip;
use crate::plan::PvDraft;
use crate::retry;
use crate::types::{HostPath, SkipReason, VolumeMode};

impl Execution {
    /// Creates a PV if its volume passes the inspection.
    pub(super) fn offer(self: &Arc<Self>, draft: Box<PvDraft>) {
        let (this, guard) = (Arc::clone(self), self.enter(&draft.name, Some(&draft)));
        self.run(guard, async move {
            // Without a write permit: an unresponsive disk would hold it forever.
            match this.inspect(&draft).await {
                // After a reload, the next pass decides again.
                _ if !this.is_current() => Ok(true),
                // The PV is ours, or an unlabelled one. Boxed: most offers end before this.
                Ok(()) => {
                    let work = Box::pin(async { this.create(&draft).await.map(|()| true) });
                    this.permitted(work).await
                }
                // One that is not new is reported already.
                Err((skip, pause)) => Ok(this.refuse(&draft, skip, pause)),
            }
        });
    }

    /// Records that a draft's volume must not be offered for this time. Returns whether the reason is new.
    pub(super) fn refuse(&self, draft: &PvDraft, skip: Skip, pause: Duration) -> bool {
        let (now, mut ledger) = (self.context.table.now(), self.context.table.facts());
        ledger.refusals.record(&draft.volume, skip, pause, now)
    }

    /// Fails with why the volume must not be offered, and for how long. The inventory may be some seconds old, so it is
    /// identified again.
    async fn inspect(&self, draft: &PvDraft) -> Result<(), (Skip, Duration)> {
        let (path, planned) = (&draft.volume.path, &draft.volume.candidate);
        let refused = |pause| move |it: Obstacle| (skip(path, planned.kind, &it), pause);
        let permit = self.inspection_permits.acquire().await;
        let owner = path_owner(&self.context, path, &planned.footprint, "", &self.facts).await;
        if let Some(owner) = owner.map_err(refused(retry::INSPECTION))? {
            let detail = format!("{path}: {owner}; delete the wrong one of the two");
            let skip = Skip::new(SkipReason::PathClaimedByOtherPV, detail);
            return Err((skip, retry::OWNED_PATH));
        }
        let found = self.context.host.inspect(draft, &self.facts);
        let found = within(DISK_TIMEOUT, "the disk", found).await;
        let found = found.map_err(refused(retry::INSPECTION))?;
        drop(permit);
        if found.identity.text != planned.identity.text || found.footprint != planned.footprint {
            let detail = format!("{path} leads to another volume than at the last scan");
            return Err((Skip::new(SkipReason::Unreadable, detail), retry::INSPECTION));
        }
        let facts = &self.facts;
        let unused = facts.ensure_no_host_path(&self.context, path, &found.footprint);
        unused.await.map_err(refused(retry::POD))
    }
}

fn skip(path: &HostPath, kind: VolumeMode, obstacle: &Obstacle) -> Skip {
    let (reason, remedy) = match obstacle {
        Obstacle::InUse { .. } if kind == VolumeMode::Block => (SkipReason::DeviceInUse, ""),
        Obstacle::InUse { .. } => (SkipReason::VolumeInUse, ""),
        Obstacle::Nested(_) => (SkipReason::NestedVolume, "; take one of the two away"),
        Obstacle::System(_) => (SkipReason::SystemStorage, "; take the entry away"),
        Obstacle::NotLocal(_) => (SkipReason::NotLocal, "; take the entry away"),
        Obstacle::Silent(_) => (SkipReason::TimedOut, "; see the kernel log"),
        Obstacle::Unknown(_) => (SkipReason::Unreadable, ""),
    };
    Skip::new(reason, format!("{path}: {obstacle}{remedy}"))
}
