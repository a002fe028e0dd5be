//! Binds claims to volumes and reclaims the volumes: what kube-controller-manager's
//! `persistentvolume-binder` does for volumes that exist.
//!
//! Claims and volumes have a queue each. An event about one of them queues it and its counterpart,
//! and the resync queues everything.
//!
//! | rule | file |
//! |---|---|
//! | what happens to a claim | `claim` |
//! | what happens to a volume | `volume` |
//! | which volume suits which claim | `matching` |
//! | how the best one is found among many | `pools` |
//! | the four writes that bind, and their undoing | `bind` |
//! | what happens to a volume whose claim is gone | `reclaim`, `recycle`, `delete` |
//! | the pod that empties a volume | `recycler_pod` |
//! | what follows from who provisioned a volume | `origin` |
//! | a claim without a class gets the default one | `default_class` |
//! | a claim for which no volume exists | `provision` |

pub(crate) mod bind;
pub(crate) mod claim;
mod default_class;
pub(crate) mod delete;
pub(crate) mod matching;
mod origin;
pub(crate) mod pools;
pub(crate) mod provision;
pub(crate) mod reclaim;
pub(crate) mod recycle;
pub(crate) mod recycler_pod;
#[cfg(test)]
mod tests;
pub(crate) mod volume;

use crate::{
    controllers::{
        Change, Context,
        object::{Claim, Key, Volume},
    },
    meta, resource,
    store::EventKind,
};

/// The name that its events carry.
pub(crate) const COMPONENT: &str = "persistentvolume-controller";

/// On a volume: the controller, not its user, chose its claim. On a claim: likewise its volume.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim whose binding went through all its steps.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a volume: who made it, and may delete it.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a volume of an in-tree plug-in that a CSI driver has taken over.
pub(crate) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let states = change.previous.iter().chain([&change.object]);
    if change.resource == &resource::PERSISTENT_VOLUMES {
        cx.queues.volumes.add(Key::of(&change.object));
        if change.kind == EventKind::Deleted {
            cx.reclaims.failures.forget(meta::uid(&change.object));
        }
        for claim in states.filter_map(|state| Some(Volume(state.clone()).claim_ref()?.key())) {
            cx.queues.claims.add(claim);
        }
        if cx.options.eager_rebind {
            offer(cx, &Volume(change.object.clone()));
        }
    } else if change.resource == &resource::PERSISTENT_VOLUME_CLAIMS {
        let key = Key::of(&change.object);
        for state in states {
            let claim = Claim(state.clone());
            if !claim.volume_name().is_empty() {
                cx.queues.volumes.add(Key::cluster(claim.volume_name()));
            }
        }
        for volume in cx.cache.volumes_of(&key) {
            cx.queues.volumes.add(Key::cluster(volume.name()));
        }
        cx.queues.claims.add(key);
    }
}

/// Queues the claims that a volume is for: those that name it, and the first that it would suit.
fn offer(cx: &mut Context, volume: &Volume) {
    let suits = |claim: &&Claim| {
        claim.volume_name().is_empty()
            && matching::would_match(volume, claim)
            && cx.cache.volumes_of(&claim.key()).next().is_none()
            && !cx.cache.binds_late(claim)
    };
    let claims = || cx.cache.claims.values();
    let naming = claims().filter(|claim| claim.volume_name() == volume.name());
    let suited = claims().filter(suits).map(Claim::key).min();
    for claim in naming.map(Claim::key).chain(suited) {
        cx.queues.claims.add(claim);
    }
}

/// Queues every claim and every volume.
pub(crate) fn resync(cx: &mut Context) {
    for key in cx.cache.claims.keys() {
        cx.queues.claims.add(key.clone());
    }
    for name in cx.cache.volumes.keys() {
        cx.queues.volumes.add(Key::cluster(name));
    }
}
