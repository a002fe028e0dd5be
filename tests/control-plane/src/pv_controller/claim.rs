//! What happens to a claim.

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER,
    bind::{bind, set_claim_status},
    default_class, matching, provision,
};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, Key, Pod, Volume},
    },
    recorder::Severity::{Normal, Warning},
    resource::PERSISTENT_VOLUME_CLAIMS,
};

/// Brings one claim to its next state.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(claim) = cx.cache.claim(key) else {
        return Ok(());
    };
    if claim.annotation(BIND_COMPLETED).is_some() {
        sync_bound(cx, claim)
    } else if claim.volume_name().is_empty() {
        sync_unbound(cx, claim)
    } else {
        sync_naming(cx, claim)
    }
}

/// A claim that went through its binding; whatever disturbs it now loses it its data.
fn sync_bound(cx: &mut Context, claim: Claim) -> Result<(), SyncError> {
    if claim.volume_name().is_empty() {
        let why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lose(cx, claim, "ClaimLost", why);
    }
    let Some(volume) = cx.cache.volume(claim.volume_name()) else {
        let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lose(cx, claim, "ClaimLost", why);
    };
    // A volume without a claim is taken back: it was unbound by hand, or made again.
    if volume.claim_ref().is_none_or(|reference| reference.uid == claim.uid()) {
        return bind(cx, volume, claim);
    }
    let why = "Two claims are bound to the same volume, this one is bound incorrectly";
    lose(cx, claim, "ClaimMisbound", why)
}

fn lose(cx: &mut Context, claim: Claim, reason: &'static str, why: &str) -> Result<(), SyncError> {
    if claim.phase() != "Lost" {
        let claim = set_claim_status(cx, claim, "Lost", None)?;
        cx.tell((&PERSISTENT_VOLUME_CLAIMS, &claim), Warning, reason, why);
    }
    Ok(())
}

/// A claim that leaves the choice to the controller.
fn sync_unbound(cx: &mut Context, claim: Claim) -> Result<(), SyncError> {
    let late = cx.cache.binds_late(&claim);
    if let Some(volume) = find(cx, &claim, late) {
        return bind(cx, volume, claim);
    }
    if default_class::assign(cx, &claim)? {
        return Ok(());
    }
    if late && !provision::is_asked_for(&claim) {
        let (reason, message) = late_binding_event(cx, &claim);
        cx.tell((&PERSISTENT_VOLUME_CLAIMS, &claim), Normal, reason, message);
    } else if claim.class().is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        cx.tell((&PERSISTENT_VOLUME_CLAIMS, &claim), Normal, "FailedBinding", message);
    } else {
        return provision::explain(cx, claim);
    }
    set_claim_status(cx, claim, "Pending", None)?;
    Ok(())
}

/// The volume that is reserved for the claim; else the best one, unless a pod has to come first.
/// Volumes are looked through by their number of access modes, so a free one that has fewer goes
/// before a reserved one.
fn find(cx: &Context, claim: &Claim, late: bool) -> Option<Volume> {
    let reserved = cx.cache.volumes_of(&claim.key()).filter(|volume| {
        volume.claim_ref().is_some_and(|reference| reference.names(claim))
            && matching::reserved_fits(volume, claim)
    });
    let reserved = reserved.min_by_key(|volume| (volume.access_modes(), volume.capacity()));
    if late {
        return reserved;
    }
    let modes = |volume: &Volume| volume.access_modes().count();
    let free = cx.cache.pools.best(&cx.cache.volumes, claim);
    match (reserved, free) {
        (Some(reserved), Some(free)) if modes(&free) < modes(&reserved) => Some(free),
        (reserved, free) => reserved.or(free),
    }
}

fn late_binding_event(cx: &Context, claim: &Claim) -> (&'static str, String) {
    let key = claim.key();
    let waiting = cx
        .cache
        .users(&key)
        .filter(|pod| pod.node().is_empty() && !pod.is_finished() && !pod.is_terminating());
    let mut waiting: Vec<_> = waiting.map(Pod::name).collect();
    waiting.sort_unstable();
    match waiting.as_slice() {
        [] => (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => {
            ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(",")))
        }
    }
}

/// A claim whose user chose the volume, or one whose binding was interrupted.
fn sync_naming(cx: &mut Context, claim: Claim) -> Result<(), SyncError> {
    if let Some(volume) = cx.cache.volume(claim.volume_name()) {
        let (name, owner) = (volume.name(), volume.claim_ref());
        let (reason, message) = match &owner {
            Some(owner) if owner.names(&claim) => return bind(cx, volume, claim),
            Some(_) => {
                ("FailedBinding", format!("volume {name:?} already bound to a different claim."))
            }
            None => match matching::mismatch(&volume, &claim) {
                None => return bind(cx, volume, claim),
                Some(why) => {
                    ("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}"))
                }
            },
        };
        let about = (&PERSISTENT_VOLUME_CLAIMS, &*claim);
        cx.tell(about, Warning, reason, message);
        // What the controller chose cannot be another claim's: an error, and no new state.
        if let Some(owner) = owner
            && claim.annotation(BOUND_BY_CONTROLLER).is_some()
        {
            return Err(SyncError::Claimed {
                claim: claim.key(),
                volume: name.to_owned(),
                owner: owner.key(),
            });
        }
    }
    set_claim_status(cx, claim, "Pending", None)?;
    Ok(())
}
