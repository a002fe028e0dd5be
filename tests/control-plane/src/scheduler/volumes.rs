//! The claims of a pod, and the volumes that they can get on a node.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use crate::{
    controllers::{
        Context,
        object::{Claim, Key, Node, Pod, Volume, items},
    },
    pv_controller::{
        BIND_COMPLETED,
        matching::{reaches, reserved_fits},
        provision::SELECTED_NODE,
    },
};

// The texts are those of kube-scheduler.
const USED_BY_ANOTHER_POD: &str = "node(s) unavailable due to PersistentVolumeClaim with \
    ReadWriteOncePod access mode already in-use by another pod";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NODE_AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";

/// The claims of a pod, sorted by what they ask of the scheduler.
#[derive(Default)]
pub(super) struct Claims {
    /// Volumes that are bound to a claim: the node must reach them.
    bound: Vec<Volume>,
    /// Some of the bound claims' status does not say so yet.
    settling: bool,
    /// Late-binding claims without a volume, the smallest request first.
    open: Vec<Claim>,
    /// Another pod on a node uses a claim that allows one pod only.
    used_by_another: bool,
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
            claims.used_by_another |= items(&claim["spec"]["accessModes"])
                .any(|mode| mode == "ReadWriteOncePod")
                && cx
                    .cache
                    .users(&key)
                    .any(|other| !other.node().is_empty() && !other.is_finished());
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

    /// A volume for every claim on this node, or why the node does not have them.
    pub(super) fn plan(&self, cx: &Context, node: &Node) -> Result<Plan, Vec<&'static str>> {
        if self.used_by_another {
            return Err(vec![USED_BY_ANOTHER_POD]);
        }
        let mut causes = Vec::new();
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            causes.push(NODE_AFFINITY);
        }
        match self.plan_open(cx, node) {
            Some(plan) if causes.is_empty() => return Ok(plan),
            Some(_) => {}
            None => causes.push(NO_VOLUME),
        }
        Err(causes)
    }

    /// A volume for every claim that has none, if there is one.
    fn plan_open(&self, cx: &Context, node: &Node) -> Option<Plan> {
        let mut plan = Plan { in_flight: self.settling, ..Plan::default() };
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
            let volume = cache.pools.smallest_on(&cache.volumes, claim, node, &taken)?;
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
        volume.claim_ref().is_some_and(|reference| reference.names(claim))
            && reserved_fits(volume, claim)
    })
}
