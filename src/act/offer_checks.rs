//! Inspects a volume before its PV is created, with the inspection of a cleanup. Only what depends on the API server is
//! left to the plan.
//!
//! A device is opened exclusively for that. The open fails while the device, one of its partitions or its parent disk
//! is mounted in any mount namespace, or claimed by swap, btrfs, a journal, LVM or md. A device that has a PV, or shares
//! storage with one, is never opened so: a mount by the kubelet would fail at that moment. The plan creates no PV for
//! such a device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cleanup::{Host, Obstacle, PassFacts};
use crate::config::Config;
use crate::inventory::Skip;
use crate::names::ANNOTATION_IDENTITY;
use crate::plan::{PvDraft, Refusal};
use crate::types::{HostPath, SkipReason, VolumeMode};

/// How long a result is valid. It is shorter than the period of idle passes, so that each of these inspects again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long the result of a removed entry is kept.
const RESULT_TTL: Duration = Duration::from_mins(10);
/// The inspections at a time. Each blocks a thread, and a dead disk blocks it for good.
const MAX_CONCURRENT: usize = 64;

/// The results of the inspections, by path.
#[derive(Clone, Debug)]
pub struct OfferChecks {
    host: Arc<dyn Host>,
    results: Arc<Mutex<BTreeMap<HostPath, CheckResult>>>,
    permits: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
struct CheckResult {
    at: Instant,
    identity: String,
    skip: Option<Skip>,
}

/// The volume is not offered now.
pub(super) struct Refused {
    /// Whether the reason differs from that of the check before.
    pub(super) is_new: bool,
}

impl OfferChecks {
    /// Without results.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self {
            host,
            results: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// The volumes that must not be offered, with the reasons.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<HostPath, Refusal> {
        let refusal = |(path, result): (&HostPath, &CheckResult)| {
            let refusal = Refusal {
                identity: result.identity.clone(),
                skip: result.skip.clone()?,
            };
            Some((path.clone(), refusal))
        };
        self.lock().iter().filter_map(refusal).collect()
    }

    /// Inspects the draft's volume, unless the last result is still valid.
    ///
    /// # Errors
    /// [`Refused`]; the reason is among [`Self::refusals`].
    pub(super) async fn check(
        &self,
        draft: &PvDraft,
        config: &Arc<Config>,
        facts: &PassFacts,
    ) -> Result<(), Refused> {
        let identity = draft.annotations.get(ANNOTATION_IDENTITY);
        let identity = identity.cloned().unwrap_or_default();
        let before = self.lock().get(&draft.path).cloned();
        let before = before.filter(|result| result.identity == identity);
        if let Some(result) = before.as_ref().filter(|it| it.at.elapsed() < MAX_AGE) {
            return match result.skip {
                Some(_) => Err(Refused { is_new: false }),
                None => Ok(()),
            };
        }
        let skip = self.inspect(draft, &identity, config, facts).await;
        let is_new = before.is_none_or(|before| before.skip != skip);
        let result = match skip {
            Some(_) => Err(Refused { is_new }),
            None => Ok(()),
        };
        let at = Instant::now();
        let mut results = self.lock();
        results.retain(|_, result| result.at.elapsed() < RESULT_TTL);
        results.insert(draft.path.clone(), CheckResult { at, identity, skip });
        result
    }

    /// Why the volume must not be offered. The inventory may be some seconds old, so it is identified again.
    async fn inspect(
        &self,
        draft: &PvDraft,
        identity: &str,
        config: &Arc<Config>,
        facts: &PassFacts,
    ) -> Option<Skip> {
        let _permit = self.permits.acquire().await;
        let path = &draft.path;
        match self.host.inspect(draft, config, facts).await {
            Ok(it) if it.identity.text == identity && it.footprint == draft.footprint => None,
            Ok(_) => {
                let detail = format!("{path} leads to another volume than at the last scan");
                Some(Skip::new(SkipReason::Unreadable, detail))
            }
            Err(obstacle) => Some(skip(path, draft.kind(), &obstacle)),
        }
    }

    /// Removes the result of an entry that has a PV: when the PV is gone, the volume is inspected again.
    pub(super) fn forget(&self, path: &HostPath) {
        self.lock().remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostPath, CheckResult>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn skip(path: &HostPath, kind: VolumeMode, obstacle: &Obstacle) -> Skip {
    let (reason, remedy) = match obstacle {
        Obstacle::InUse { .. } | Obstacle::Locked(_) => match kind {
            VolumeMode::Block => (SkipReason::DeviceInUse, ""),
            VolumeMode::Filesystem => (SkipReason::VolumeInUse, ""),
        },
        Obstacle::Nested(_) => (SkipReason::NestedVolume, "; take one of the two away"),
        Obstacle::System(_) => (SkipReason::SystemStorage, "; take the entry away"),
        Obstacle::NotLocal(_) => (SkipReason::NotLocal, "; take the entry away"),
        Obstacle::Unknown(_) => (SkipReason::Unreadable, ""),
    };
    Skip::new(reason, format!("{path}: {obstacle}{remedy}"))
}
