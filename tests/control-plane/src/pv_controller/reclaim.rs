//! What happens to a volume whose claim is gone: its own reclaim policy says.
//!
//! Recycling and deleting are operations: each starts by reading the volume again, and runs once at a
//! time per volume. A pod recycles, while the controllers go on with everything else.

use std::{collections::HashMap, time::Instant};

use super::{
    bind::set_volume_phase,
    delete,
    operations::{Name, Operations},
    origin::is_migrated,
    recycle::{self, Recycling},
    volume::claim_of,
};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Key, Volume},
    },
    host_paths::HostPaths,
    recorder::Severity::Warning,
    resource::PERSISTENT_VOLUMES,
};

const DELETE: &str = "delete";
const RECYCLE: &str = "recycle";

/// The reclaiming that is under way.
#[derive(Debug)]
pub(crate) struct Reclaims {
    pub(super) operations: Operations,
    /// The volumes that are being emptied, by the pod that does it.
    pub(crate) recycling: HashMap<Key, Recycling>,
    /// Where directories may be deleted.
    pub(super) host_paths: Option<HostPaths>,
}

impl Reclaims {
    pub(crate) fn new(host_paths: Option<HostPaths>) -> Self {
        Self {
            operations: Operations::default(),
            recycling: HashMap::new(),
            host_paths,
        }
    }

    /// Whether something is being emptied.
    #[cfg(test)]
    pub(crate) fn is_busy(&self) -> bool {
        self.operations.any_runs()
    }

    /// Lets everything start that has to wait after an error.
    #[cfg(test)]
    pub(crate) fn hurry(&mut self) {
        self.operations.hurry();
    }

    /// Ends an operation; after a failure the next one has to wait.
    pub(super) fn end(&mut self, name: &Name, succeeded: bool) {
        self.operations.end(name, succeeded, Instant::now());
    }

    /// Forgets the errors with a volume that is gone.
    pub(super) fn forget(&mut self, volume: &Volume) {
        for verb in [DELETE, RECYCLE] {
            self.operations.forget(&Name::new(verb, volume));
        }
    }
}

/// Whether an operation goes on after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    GoesOn,
    IsOver,
    /// It is over, and the next one has to wait.
    HasFailed,
}

/// Does what the policy of a released volume says.
pub(crate) fn reclaim(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    if is_migrated(&volume) {
        return Ok(());
    }
    match volume.reclaim_policy() {
        "Retain" => Ok(()),
        "Delete" => operate(cx, DELETE, &volume, delete::start),
        "Recycle" => operate(cx, RECYCLE, &volume, recycle::start),
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            fail(cx, volume, "VolumeUnknownReclaimPolicy", message)
        }
    }
}

fn operate(
    cx: &mut Context,
    verb: &str,
    volume: &Volume,
    start: fn(&mut Context, Volume, &Name) -> Result<Started, SyncError>,
) -> Result<(), SyncError> {
    let name = Name::new(verb, volume);
    if !cx.reclaims.operations.start(&name, Instant::now()) {
        tracing::debug!(%name, "runs already, or has to wait after an error");
        return Ok(());
    }
    let started = match still_released(cx, volume) {
        Ok(Some(volume)) => start(cx, volume, &name),
        Ok(None) => Ok(Started::IsOver),
        Err(error) => Err(error),
    };
    match started {
        Ok(Started::GoesOn) => {}
        Ok(Started::HasFailed) => cx.reclaims.end(&name, false),
        Ok(Started::IsOver) | Err(_) => cx.reclaims.end(&name, true),
    }
    started.map(drop)
}

/// The volume as the store has it now, if it is still to be reclaimed in the same way: what is
/// about to be destroyed is never judged by a cached state.
fn still_released(cx: &mut Context, volume: &Volume) -> Result<Option<Volume>, SyncError> {
    let key = Key::cluster(volume.name());
    let Some(fresh) = cx.read(&PERSISTENT_VOLUMES, &key)?.map(Volume) else {
        return Ok(None);
    };
    let bound = fresh
        .claim_ref()
        .is_some_and(|reference| !reference.uid.is_empty());
    let same = fresh.uid() == volume.uid() && fresh.reclaim_policy() == volume.reclaim_policy();
    if !same || !bound || is_migrated(&fresh) {
        return Ok(None);
    }
    let claim = claim_of(cx, &fresh)?;
    let released = claim
        .is_none_or(|claim| !claim.volume_name().is_empty() && claim.volume_name() != fresh.name());
    Ok(released.then_some(fresh))
}

/// Marks the volume as failed, and says so once. It is tried again all the same.
pub(super) fn fail(
    cx: &mut Context,
    volume: Volume,
    reason: &'static str,
    message: &str,
) -> Result<(), SyncError> {
    let failed_already = volume.phase() == "Failed";
    let volume = set_volume_phase(cx, volume, "Failed", message)?;
    if !failed_already {
        cx.tell((&PERSISTENT_VOLUMES, &volume), Warning, reason, message);
    }
    Ok(())
}
