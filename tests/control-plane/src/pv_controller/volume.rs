//! What happens to a volume.

use super::{
    PROVISIONED_BY,
    bind::{set_volume_phase, unbind},
    origin, reclaim,
};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, Key, Volume},
    },
    recorder::Severity::Warning,
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES},
};

/// Brings one volume to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(volume) = cx.cache.volume(&key.name) else {
        return Ok(());
    };
    let volume = origin::update(cx, volume)?;
    // Without a UID it is only reserved; the claim takes it when it comes.
    if volume.claim_ref().is_none_or(|reference| reference.uid.is_empty()) {
        set_volume_phase(cx, volume, "Available", "")?;
        return Ok(());
    }
    match claim_of(cx, &volume)? {
        None => release(cx, volume),
        Some(claim) if claim.volume_name().is_empty() => {
            expect_claim(cx, &volume, &claim);
            Ok(())
        }
        Some(claim) if claim.volume_name() == volume.name() => {
            set_volume_phase(cx, volume, "Bound", "")?;
            Ok(())
        }
        // The claim is bound elsewhere. Who made the volume for this claim makes no second use
        // of it.
        Some(_)
            if volume.annotation(PROVISIONED_BY).is_some()
                && volume.reclaim_policy() == "Delete" =>
        {
            release(cx, volume)
        }
        Some(_) => unbind(cx, &volume),
    }
}

/// The claim that the volume is bound to. A claim that the cache does not know is read from the
/// store before it counts as gone, whatever bound it: it may have been created a moment ago.
/// A claim of the same name with another UID is another claim.
pub(crate) fn claim_of(cx: &mut Context, volume: &Volume) -> Result<Option<Claim>, SyncError> {
    let Some(reference) = volume.claim_ref() else {
        return Ok(None);
    };
    let key = reference.key();
    let known = cx.cache.claim(&key);
    if let Some(claim) = known.filter(|claim| claim.uid() == reference.uid) {
        return Ok(Some(claim));
    }
    let Some(fresh) = cx.read(&PERSISTENT_VOLUME_CLAIMS, &key)? else {
        return Ok(None);
    };
    cx.cache.store(&PERSISTENT_VOLUME_CLAIMS, &fresh);
    Ok(Some(Claim(fresh)).filter(|claim| claim.uid() == reference.uid))
}

/// Its claim is gone. A failure stays visible; it is tried again all the same.
fn release(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    let volume = if volume.phase() == "Failed" {
        volume
    } else {
        set_volume_phase(cx, volume, "Released", "")?
    };
    reclaim::reclaim(cx, volume)
}

/// The volume names a claim that does not name it back yet: the claim's turn, if it can be bound.
fn expect_claim(cx: &mut Context, volume: &Volume, claim: &Claim) {
    if volume.mode() == claim.mode() {
        cx.queues.claims.add(claim.key());
        return;
    }
    let to_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
        claim.name()
    );
    let to_claim = format!(
        "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
        volume.name()
    );
    cx.tell((&PERSISTENT_VOLUMES, volume), Warning, "VolumeMismatch", to_volume);
    cx.tell((&PERSISTENT_VOLUME_CLAIMS, claim), Warning, "VolumeMismatch", to_claim);
}
