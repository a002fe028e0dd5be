//! The claims of a pod, and the volumes that they can get on a node.

use std::{collections::HashSet, sync::Arc};

use super::fit::{is_allowed, is_in_zone};
use crate::{
    controllers::{
        Context,
        object::{Claim, Key, Node, Pod, Volume, items},
    },
    ephemeral::belongs_to,
    pv_controller::{
        BIND_COMPLETED,
        matching::{reaches, reserved_fits},
        provision::SELECTED_NODE,
    },
};

/// No volume fits the pod's claims.
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
/// Classes of this provisioner have the volumes that an administrator makes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The claims of a pod, sorted by what they ask of the scheduler.
#[derive(Default)]
pub(super) struct Claims {
    /// Volumes that are bound to a claim: the node must reach them.
    bound: Vec<Volume>,
    /// Some of the bound claims' status does not say so yet.
    settling: bool,
    /// Late-binding claims without a volume, the smallest request first.
    open: Vec<Claim>,
    /// A claim that one pod at a time may use is in use by another.
    pub(super) taken: bool,
}

/// What has to be done for a pod's claims on one node.
#[derive(Default)]
pub(super) struct Plan {
    /// These volumes are to be reserved for these claims.
    pub(super) reserve: Vec<(Volume, Claim)>,
    /// For these claims a volume is to be made.
    pub(super) provision: Vec<Claim>,
    /// Volumes are reserved or asked for, and their binding is under way.
    pub(super) in_flight: bool,
}

impl Claims {
    /// The claims of this pod; an error says why no node at all will do for it.
    pub(super) fn of(cx: &Context, pod: &Pod) -> Result<Self, String> {
        let mut mounted: Vec<(Key, bool)> = Vec::new();
        for mount in pod.claims_with_origin() {
            if !mounted.contains(&mount) {
                mounted.push(mount);
            }
        }
        let absent = |key: &Key| !cx.cache.claims.contains_key(key);
        if let Some((key, _)) = mounted.iter().find(|(key, own)| !own && absent(key)) {
            return Err(format!("persistentvolumeclaim {:?} not found", key.name));
        }
        let mut found = Vec::new();
        for (key, own) in &mounted {
            found.push(usable(cx, pod, key, *own)?);
        }
        let mut claims = Self::default();
        for claim in found {
            claims.sort_in(cx, pod, &claim)?;
        }
        claims.open.sort_by_key(Claim::request);
        Ok(claims)
    }

    fn sort_in(&mut self, cx: &Context, pod: &Pod, claim: &Claim) -> Result<(), String> {
        let is_user =
            |user: &Pod| user.uid() != pod.uid() && !user.node().is_empty() && !user.is_finished();
        if claim.access_modes().is_single_pod() {
            self.taken |= cx.cache.users(&claim.key()).any(is_user);
        }
        let volume = claim.volume_name();
        if !volume.is_empty() && claim.annotation(BIND_COMPLETED).is_some() {
            let Some(volume) = cx.cache.volumes.get(volume) else {
                return Err(format!("persistentvolume {volume:?} not found"));
            };
            self.settling |= claim.phase() != "Bound";
            self.bound.push(volume);
        } else if !volume.is_empty() || !cx.cache.binds_late(claim) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        } else {
            self.open.push(claim.clone());
        }
        Ok(())
    }

    /// The classes of which a new volume might help.
    pub(super) fn open_classes(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(Claim::class)
    }

    /// A volume, or somebody who makes one, for every claim on this node; or why not.
    pub(super) fn plan(&self, cx: &Context, node: &Node) -> Result<Plan, Vec<&'static str>> {
        let mut obstacles = Vec::new();
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            obstacles.push("node(s) didn't match PersistentVolume's node affinity");
        }
        let plan = self.choose(cx, node);
        if plan.is_none() {
            obstacles.push(NO_VOLUME);
        }
        match plan {
            Some(plan) if obstacles.is_empty() => {
                if self.bound.iter().all(|volume| is_in_zone(volume, node)) {
                    Ok(plan)
                } else {
                    Err(vec!["node(s) had no available volume zone"])
                }
            }
            _ => Err(obstacles),
        }
    }

    fn choose(&self, cx: &Context, node: &Node) -> Option<Plan> {
        let mut plan = Plan {
            in_flight: self.settling,
            ..Plan::default()
        };
        let mut taken = HashSet::new();
        for claim in &self.open {
            // A claim that is to be provisioned is for one node, and for no volume that is there.
            if let Some(selected) = claim.annotation(SELECTED_NODE) {
                if selected != node.name() || !can_provision(cx, claim, node) {
                    return None;
                }
                plan.in_flight = true;
            } else if let Some(reserved) = reserved_for(cx, claim) {
                if !reaches(&reserved, node) {
                    return None;
                }
                plan.in_flight = true;
            } else if let Some(volume) =
                cx.cache
                    .pools
                    .smallest_on(&cx.cache.volumes, claim, node, &taken)
            {
                taken.insert(Arc::from(volume.name()));
                plan.reserve.push((volume, claim.clone()));
            } else if can_provision(cx, claim, node) {
                plan.provision.push(claim.clone());
            } else {
                return None;
            }
        }
        Some(plan)
    }
}

/// A claim that the pod may use; `own` says that it is to be the pod's own (a generic ephemeral
/// volume).
fn usable(cx: &Context, pod: &Pod, key: &Key, own: bool) -> Result<Claim, String> {
    let name = &key.name;
    let Some(claim) = cx.cache.claims.get(key) else {
        return Err(format!(
            "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
        ));
    };
    if claim.phase() == "Lost" {
        let volume = claim.volume_name();
        return Err(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.is_terminating() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if own && !belongs_to(&claim, pod) {
        return Err(format!(
            "PVC {key} was not created for pod {} (pod is not owner)",
            pod.key()
        ));
    }
    Ok(claim)
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

/// Whether somebody may make a volume for the claim on this node.
fn can_provision(cx: &Context, claim: &Claim, node: &Node) -> bool {
    cx.cache.classes.get(claim.class()).is_some_and(|class| {
        !matches!(class.provisioner(), "" | NO_PROVISIONER) && is_allowed(class, node)
    })
}

/// Whether a pod is held back by its scheduling gates.
pub(super) fn is_gated(pod: &Pod) -> bool {
    items(&pod["spec"]["schedulingGates"]).next().is_some()
}
