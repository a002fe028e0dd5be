//! What happens to a volume whose claim is gone: its own reclaim policy says.
//!
//! Each reads the volume again before it starts. A pod recycles, while the controllers go on with
//! everything else; a volume has one such pod at a time.

use std::collections::HashMap;

use super::{bind::set_volume_phase, delete, origin::is_migrated, recycle, volume::claim_of};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Key, Volume},
    },
    host_paths::HostPaths,
    recorder::Severity::Warning,
    resource::PERSISTENT_VOLUMES,
};

/// The reclaiming that is under way.
#[derive(Debug)]
pub(crate) struct Reclaims {
    /// The volumes that are being recycled, by the pod that does it.
    pub(crate) recycling: HashMap<Key, recycle::Recycling>,
    pub(crate) failures: delete::Failures,
    /// Where directories may be deleted.
    pub(super) host_paths: Option<HostPaths>,
}

impl Reclaims {
    pub(crate) fn new(host_paths: Option<HostPaths>) -> Self {
        Self { recycling: HashMap::new(), failures: delete::Failures::default(), host_paths }
    }
}

/// Does what the policy of a released volume says.
pub(crate) fn reclaim(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    if is_migrated(&volume) {
        return Ok(());
    }
    let start = match volume.reclaim_policy() {
        "Retain" => return Ok(()),
        "Delete" => delete::start,
        "Recycle" if recycle::is_under_way(cx, &volume) => return Ok(()),
        "Recycle" => recycle::start,
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            return fail(cx, volume, "VolumeUnknownReclaimPolicy", message);
        }
    };
    match still_released(cx, &volume)? {
        Some(volume) => start(cx, volume),
        None => Ok(()),
    }
}

/// The volume as the store has it now, if it is still to be reclaimed in the same way: what is
/// about to be destroyed is never judged by a cached state.
fn still_released(cx: &mut Context, volume: &Volume) -> Result<Option<Volume>, SyncError> {
    let key = Key::cluster(volume.name());
    let Some(fresh) = cx.read(&PERSISTENT_VOLUMES, &key)?.map(Volume) else {
        return Ok(None);
    };
    let bound = fresh.claim_ref().is_some_and(|reference| !reference.uid.is_empty());
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
