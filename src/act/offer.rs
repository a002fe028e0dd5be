//! Inspects a volume before its PV is created, with the inspection of a cleanup. Only what depends on the API server is
//! left to the plan, to the list of the PVs of other nodes in `owners.rs`, and to that of the Pods of this node, which is
//! requested once for all volumes of a pass that pass the inspection.
//!
//! A device is opened exclusively for that. The open fails while the device, one of its partitions or its parent disk
//! is mounted in any mount namespace, or claimed by swap, btrfs, a journal, LVM or md. A device that has a PV, or shares
//! storage with one, is never opened so: a mount by the kubelet would fail at that moment. The plan creates no PV for
//! such a device.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use super::Actor;
use super::owners::PassOwners;
use crate::cache::Expectations;
use crate::cleanup::{Obstacle, PassFacts, path_owner};
use crate::inventory::Skip;
use crate::plan::PvDraft;
use crate::retry;
use crate::types::{HostPath, SkipReason, VolumeMode};

impl Actor {
    /// Creates a PV if its volume passes the inspection.
    pub(super) fn offer(
        &self,
        draft: Box<PvDraft>,
        facts: PassFacts,
        owners: PassOwners,
        expectations: Expectations,
        pass: Instant,
    ) {
        let Some(guard) = self.enter(&draft.name, Some(&draft)) else {
            return;
        };
        let (this, generation) = (self.clone(), self.generation());
        let offer = async move {
            // Without a write permit: an unresponsive disk would hold it forever.
            let refusal = this.inspect(&draft, &facts).await;
            let is_new = refusal.map(|(skip, pause)| this.refuse(&draft, skip, pause));
            let is_current = this.generation() == generation;
            match is_new {
                None if is_current => {
                    let (actor, now) = (this.clone(), expectations.clone());
                    let work =
                        async move { actor.create(&draft, &owners, &now, &facts, pass).await };
                    // The PV is ours, or an unlabelled one.
                    this.write(Some(guard), work, |is_ok| is_ok);
                }
                // It is reported already.
                Some(false) if is_current => {}
                _ => {
                    drop(guard);
                    this.context.wake.notify_one();
                }
            }
        };
        tokio::spawn(offer.in_current_span());
    }

    /// Records that a draft's volume must not be offered for this time. Returns whether the reason is new.
    pub(super) fn refuse(&self, draft: &PvDraft, skip: Skip, pause: Duration) -> bool {
        let now = self.context.table.now();
        let mut ledger = self.context.table.facts();
        ledger
            .refusals
            .record(&draft.volume, skip, now + pause, now)
    }

    /// Why the volume must not be offered, and for how long. The inventory may be some seconds old, so it is identified
    /// again.
    async fn inspect(&self, draft: &PvDraft, facts: &PassFacts) -> Option<(Skip, Duration)> {
        let (path, planned) = (&draft.volume.path, &draft.volume.candidate);
        let kind = planned.kind;
        let inspected = {
            let _permit = self.inspection_permits.acquire().await;
            let owner = path_owner(&self.context, path, &planned.footprint, "", facts).await;
            if let Some(owner) = match owner {
                Ok(owner) => owner,
                Err(obstacle) => return Some((skip(path, kind, &obstacle), retry::INSPECTION)),
            } {
                let detail = format!("{path}: {owner}; delete the wrong one of the two");
                let skip = Skip::new(SkipReason::PathClaimedByOtherPV, detail);
                return Some((skip, retry::OWNED_PATH));
            }
            self.context.host.inspect(draft, facts).await
        };
        let footprint = match inspected {
            Ok(it)
                if it.identity.text == planned.identity.text
                    && it.footprint == planned.footprint =>
            {
                it.footprint
            }
            Ok(_) => {
                let detail = format!("{path} leads to another volume than at the last scan");
                return Some((Skip::new(SkipReason::Unreadable, detail), retry::INSPECTION));
            }
            Err(obstacle) => return Some((skip(path, kind, &obstacle), retry::INSPECTION)),
        };
        let unused = facts.ensure_no_host_path(&self.context, path, &footprint);
        let obstacle = unused.await.err()?;
        Some((skip(path, kind, &obstacle), retry::POD))
    }
}

fn skip(path: &HostPath, kind: VolumeMode, obstacle: &Obstacle) -> Skip {
    let (reason, remedy) = match obstacle {
        Obstacle::InUse { .. } if kind == VolumeMode::Block => (SkipReason::DeviceInUse, ""),
        Obstacle::InUse { .. } => (SkipReason::VolumeInUse, ""),
        Obstacle::Nested(_) => (SkipReason::NestedVolume, "; take one of the two away"),
        Obstacle::System(_) => (SkipReason::SystemStorage, "; take the entry away"),
        Obstacle::NotLocal(_) => (SkipReason::NotLocal, "; take the entry away"),
        Obstacle::Unknown(_) => (SkipReason::Unreadable, ""),
    };
    Skip::new(reason, format!("{path}: {obstacle}{remedy}"))
}
