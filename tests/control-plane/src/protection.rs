//! Finalizers that keep a claim while a pod uses it, and a volume while it is bound. They are
//! added again when a client removes them, and removed once nothing holds the terminating object.

use serde_json::Value;

use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Claim, Key, Pod, Volume, add_finalizer, has_finalizer, remove_finalizer},
    },
    meta,
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource},
    store::{EventKind, Part},
};

/// On every claim.
pub(crate) const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// On every volume.
pub(crate) const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let object = &change.object;
    if change.resource == &PODS {
        for pod in change.previous.iter().chain([object]) {
            for claim in Pod(pod.clone()).claims() {
                let known = cx.cache.claim(&claim);
                if known.is_some_and(|known| known.is_terminating()) {
                    cx.queues.claim_protection.add(claim);
                }
            }
        }
        return;
    }
    // A finalizer is missing on an object that lives, or holds one that is to go.
    let is_due = |finalizer| {
        change.kind != EventKind::Deleted
            && meta::is_terminating(object) == has_finalizer(object, finalizer)
    };
    if change.resource == &PERSISTENT_VOLUME_CLAIMS && is_due(PVC_PROTECTION) {
        cx.queues.claim_protection.add(Key::of(object));
    } else if change.resource == &PERSISTENT_VOLUMES && is_due(PV_PROTECTION) {
        cx.queues.volume_protection.add(Key::of(object));
    }
}

/// A pod protects its claims from the moment that it has a node until it is gone, also when it
/// has run to its end.
pub(crate) fn sync_claim(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(claim) = cx.cache.claim(key) else {
        return Ok(());
    };
    let Claim(object) = &claim;
    if !claim.is_terminating() {
        return protect(cx, &PERSISTENT_VOLUME_CLAIMS, object, PVC_PROTECTION);
    }
    if cx.cache.users(key).any(|pod| !pod.node().is_empty()) {
        return Ok(());
    }
    let_go(cx, &PERSISTENT_VOLUME_CLAIMS, object, PVC_PROTECTION)
}

/// The phase alone says whether a volume is in use.
pub(crate) fn sync_volume(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(volume) = cx.cache.volume(&key.name) else {
        return Ok(());
    };
    let Volume(object) = &volume;
    if !volume.is_terminating() {
        return protect(cx, &PERSISTENT_VOLUMES, object, PV_PROTECTION);
    }
    if volume.phase() == "Bound" {
        return Ok(());
    }
    let_go(cx, &PERSISTENT_VOLUMES, object, PV_PROTECTION)
}

fn protect(
    cx: &mut Context,
    r: &'static Resource,
    object: &Value,
    finalizer: &str,
) -> Result<(), SyncError> {
    if !has_finalizer(object, finalizer) {
        let mut new = object.clone();
        add_finalizer(&mut new, finalizer);
        cx.update(r, new, Part::Main)?;
    }
    Ok(())
}

fn let_go(
    cx: &mut Context,
    r: &'static Resource,
    object: &Value,
    finalizer: &str,
) -> Result<(), SyncError> {
    if has_finalizer(object, finalizer) {
        let mut new = object.clone();
        remove_finalizer(&mut new, finalizer);
        cx.update(r, new, Part::Main)?;
    }
    Ok(())
}
