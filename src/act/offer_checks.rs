//! Inspects a volume before its PV is created, with the inspection of a cleanup. Only what depends on the API server is
//! left to the plan, to the list of the PVs of other nodes in `owners.rs`, and to that of the Pods of this node, which is
//! requested once for all volumes of a pass that pass the inspection.
//!
//! A device is opened exclusively for that. The open fails while the device, one of its partitions or its parent disk
//! is mounted in any mount namespace, or claimed by swap, btrfs, a journal, LVM or md. A device that has a PV, or shares
//! storage with one, is never opened so: a mount by the kubelet would fail at that moment. The plan creates no PV for
//! such a device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cleanup::{CleanupContext, Obstacle, PassFacts, path_owner};
use crate::inventory::Skip;
use crate::plan::{PvDraft, Refusal};
use crate::types::{HostPath, SkipReason, VolumeMode};

/// How long a refusal is valid. It is shorter than the period of idle passes, so that each of these inspects again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long a refusal because of a Pod is valid: each of these checks lists the Pods.
const POD_PAUSE: Duration = Duration::from_secs(15);
/// The same while another PV owns the volume: that PV is read each time.
const OWNED_MAX_AGE: Duration = Duration::from_mins(1);
/// How long the refusal of a removed entry is kept, once the next check is due.
const REFUSAL_TTL: Duration = Duration::from_mins(10);
/// The inspections at a time. Each blocks a thread, and a dead disk blocks it for good.
const MAX_CONCURRENT: usize = 64;

/// The volumes that must not be offered, by path, and when the next check is due.
#[derive(Clone, Debug)]
pub struct OfferChecks {
    context: Arc<CleanupContext>,
    refusals: Arc<Mutex<BTreeMap<HostPath, (Instant, Refusal)>>>,
    permits: Arc<Semaphore>,
}

/// The volume is not offered now.
pub(super) struct Refused {
    /// Whether the reason differs from that of the check before.
    pub(super) is_new: bool,
}

impl OfferChecks {
    /// Without refusals.
    pub fn new(context: Arc<CleanupContext>) -> Self {
        Self {
            context,
            refusals: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// The volumes that must not be offered, with the reasons.
    pub fn refusals(&self) -> BTreeMap<HostPath, Refusal> {
        let refusals = self.refusals.lock();
        let refusals = refusals.iter();
        let refusals = refusals.map(|(path, (_, it))| (path.clone(), it.clone()));
        refusals.collect()
    }

    /// Inspects the draft's volume, unless it was refused a moment ago.
    ///
    /// # Errors
    /// [`Refused`]; the reason is among [`Self::refusals`].
    pub(super) async fn check(&self, draft: &PvDraft, facts: &PassFacts) -> Result<(), Refused> {
        let (path, identity) = (&draft.path, draft.candidate.identity.text.clone());
        let before = self.refusals.lock().get(path).cloned();
        let before = before.filter(|(_, refusal)| refusal.identity == identity);
        let is_recent = |(due, _): &(Instant, Refusal)| Instant::now() < *due;
        if before.as_ref().is_some_and(is_recent) {
            return Err(Refused { is_new: false });
        }
        let Some((skip, pause)) = self.inspect(draft, &identity, facts).await else {
            return Ok(());
        };
        let is_new = before.is_none_or(|(_, before)| before.skip != skip);
        self.refuse(draft, skip, pause);
        Err(Refused { is_new })
    }

    /// Records that the draft's volume must not be offered for this time.
    pub(super) fn refuse(&self, draft: &PvDraft, skip: Skip, pause: Duration) {
        let (now, identity) = (Instant::now(), draft.candidate.identity.text.clone());
        let mut refusals = self.refusals.lock();
        refusals.retain(|_, (due, _)| now < *due + REFUSAL_TTL);
        let refusal = Refusal { identity, skip };
        refusals.insert(draft.path.clone(), (now + pause, refusal));
    }

    /// Records that the volume at a path is offered.
    pub(super) fn allow(&self, path: &HostPath) {
        self.refusals.lock().remove(path);
    }

    /// Why the volume must not be offered, and for how long. The inventory may be some seconds old, so it is identified
    /// again.
    async fn inspect(
        &self,
        draft: &PvDraft,
        identity: &str,
        facts: &PassFacts,
    ) -> Option<(Skip, Duration)> {
        let (path, kind) = (&draft.path, draft.candidate.kind);
        let inspected = {
            let _permit = self.permits.acquire().await;
            let footprint = &draft.candidate.footprint;
            let owner = path_owner(&self.context, path, footprint, "", facts).await;
            if let Some(owner) = match owner {
                Ok(owner) => owner,
                Err(obstacle) => return Some((skip(path, kind, &obstacle), MAX_AGE)),
            } {
                let detail = format!("{path}: {owner}; delete the wrong one of the two");
                let skip = Skip::new(SkipReason::PathClaimedByOtherPV, detail);
                return Some((skip, OWNED_MAX_AGE));
            }
            self.context.host.inspect(draft, facts).await
        };
        let footprint = match inspected {
            Ok(it) if it.identity.text == identity && it.footprint == draft.candidate.footprint => {
                it.footprint
            }
            Ok(_) => {
                let detail = format!("{path} leads to another volume than at the last scan");
                return Some((Skip::new(SkipReason::Unreadable, detail), MAX_AGE));
            }
            Err(obstacle) => return Some((skip(path, kind, &obstacle), MAX_AGE)),
        };
        let unused = facts.ensure_no_host_path(&self.context, path, &footprint);
        let obstacle = unused.await.err()?;
        Some((skip(path, kind, &obstacle), POD_PAUSE))
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
