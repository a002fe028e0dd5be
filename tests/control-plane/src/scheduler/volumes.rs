//! The claims of a pod, and the volumes that they can get on a node.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use crate::{
    controllers::{
        Context,
        object::{Claim, Key, Node, Pod, Volume},
    },
    pv_controller::{
        BIND_COMPLETED,
        matching::{reaches, reserved_fits},
        provision::SELECTED_NODE,
    },
};

/// The claims of a pod, sorted by what they ask of the scheduler.
#[derive(Default)]
pub(super) struct Claims {
    /// Volumes that are bound to a claim: the node must reach them.
    bound: Vec<Volume>,
    /// Some of the bound claims' status does not say so yet.
    settling: bool,
    /// Late-binding claims without a volume, the smallest request first.
    open: Vec<Claim>,
}

/// What has to be done for a pod's claims on one node.
#[derive(Default)]
pub(super) struct Plan {
    /// These volumes are to be reserved for these claims.
    pub(super) reserve: Vec<(Volume, Claim)>,
    /// Volumes are reserved, and their binding is under way.
    pub(super) in_flight: bool,
}

impl Claims {
    /// The claims of this pod; an error says why no node at all will do for it.
    pub(super) fn of(cx: &Context, pod: &Pod) -> Result<Self, String> {
        let mounted: BTreeSet<Key> = pod.claims().collect();
        let mut claims = Self::default();
        for key in mounted {
            let Some(claim) = cx.cache.claim(&key) else {
                return Err(format!("persistentvolumeclaim {:?} not found", key.name));
            };
            claims.sort_in(cx, claim)?;
        }
        claims.open.sort_by_key(Claim::request);
        Ok(claims)
    }

    fn sort_in(&mut self, cx: &Context, claim: Claim) -> Result<(), String> {
        let (name, volume) = (claim.name(), claim.volume_name());
        if claim.is_terminating() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if !volume.is_empty() && claim.annotation(BIND_COMPLETED).is_some() {
            let Some(volume) = cx.cache.volume(volume) else {
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            };
            self.settling |= claim.phase() != "Bound";
            self.bound.push(volume);
        } else if !volume.is_empty() || !cx.cache.binds_late(&claim) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        } else {
            self.open.push(claim);
        }
        Ok(())
    }

    /// A volume for every claim on this node, if there is one.
    pub(super) fn plan(&self, cx: &Context, node: &Node) -> Option<Plan> {
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            return None;
        }
        let mut plan = Plan {
            in_flight: self.settling,
            ..Plan::default()
        };
        let mut taken = HashSet::new();
        for claim in &self.open {
            // Its volume is to be made by a provisioner, and there is none.
            if claim.annotation(SELECTED_NODE).is_some() {
                return None;
            }
            if let Some(reserved) = reserved_for(cx, claim) {
                if !reaches(&reserved, node) {
                    return None;
                }
                plan.in_flight = true;
                continue;
            }
            let cache = &cx.cache;
            let volume = cache
                .pools
                .smallest_on(&cache.volumes, claim, node, &taken)?;
            taken.insert(Arc::from(volume.name()));
            plan.reserve.push((volume, claim.clone()));
        }
        Some(plan)
    }
}

/// The volume that is reserved for a claim which does not name it yet.
fn reserved_for(cx: &Context, claim: &Claim) -> Option<Volume> {
    let mut volumes = cx.cache.volumes_of(&claim.key());
    volumes.find(|volume| {
        volume
            .claim_ref()
            .is_some_and(|reference| reference.names(claim))
            && reserved_fits(volume, claim)
    })
}
