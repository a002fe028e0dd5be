//! Which volume a claim gets.
//!
//! Volumes that may be offered lie sorted in [`Pools`]: one pool per class and volume mode, in it
//! one row per set of access modes, in that the volumes by size. So a claim looks at the few rows
//! that satisfy it and takes the first volume that is large enough, however many there are.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use crate::controllers::{
    object::{AccessModes, Claim, Node, Volume, VolumeMode},
    selector,
};

/// The volumes by name.
pub(crate) type Volumes = HashMap<Arc<str>, Volume>;

/// A volume as the rows sort it: the smaller one first.
type Slot = (i128, Arc<str>);
type Row = BTreeSet<Slot>;

/// The volumes that any claim may get: Available, reserved for nobody, not terminating.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: HashMap<(Arc<str>, VolumeMode), Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    by_modes: BTreeMap<AccessModes, Row>,
    /// The same volumes by the only host that can use them; `None` for those of no single host.
    by_host: BTreeMap<Option<Arc<str>>, Row>,
}

/// Where a volume lies.
struct Place<'a> {
    pool: (Arc<str>, VolumeMode),
    modes: AccessModes,
    host: Option<&'a str>,
    slot: Slot,
}

fn place(volume: &Volume) -> Option<Place<'_>> {
    let offered =
        volume.phase() == "Available" && volume.claim_ref().is_none() && !volume.is_terminating();
    offered.then(|| Place {
        pool: (volume.class().into(), volume.mode()),
        modes: volume.access_modes(),
        host: volume.node_selector().and_then(selector::only_hostname),
        slot: (volume.capacity(), volume.name().into()),
    })
}

impl Pools {
    /// Whether claims may be offered this volume at all.
    pub(crate) fn offers(volume: &Volume) -> bool {
        place(volume).is_some()
    }

    pub(crate) fn insert(&mut self, volume: &Volume) {
        if let Some(Place {
            pool,
            modes,
            host,
            slot,
        }) = place(volume)
        {
            let pool = self.pools.entry(pool).or_default();
            pool.by_modes.entry(modes).or_default().insert(slot.clone());
            pool.by_host
                .entry(host.map(Into::into))
                .or_default()
                .insert(slot);
        }
    }

    /// Takes the volume away again; it must be the state that was inserted.
    pub(crate) fn remove(&mut self, volume: &Volume) {
        let Some(Place {
            pool: key,
            modes,
            host,
            slot,
        }) = place(volume)
        else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&key) else {
            return;
        };
        take(&mut pool.by_modes, &modes, &slot);
        take(&mut pool.by_host, &host.map(Into::into), &slot);
        if pool.by_host.is_empty() {
            self.pools.remove(&key);
        }
    }

    /// The volume for a claim that binds at once: fewest access modes first, then the smallest.
    pub(crate) fn best(&self, volumes: &Volumes, claim: &Claim) -> Option<Volume> {
        let wanted = claim.access_modes();
        let rows = &self.pool_for(claim)?.by_modes;
        rows.iter()
            .filter(|(modes, _)| modes.contains(wanted))
            .find_map(|(_, row)| {
                large_enough(row, claim)
                    .filter_map(|(_, name)| volumes.get(name))
                    .find(|volume| suits(volume, claim))
                    .cloned()
            })
    }

    /// The volume for a late-binding claim whose pod would run on `node`: the smallest, whatever
    /// its access modes, as the real scheduler does. `taken` are the pod's other claims' volumes.
    pub(crate) fn smallest_on(
        &self,
        volumes: &Volumes,
        claim: &Claim,
        node: &Node,
        taken: &HashSet<Arc<str>>,
    ) -> Option<Volume> {
        let pool = self.pool_for(claim)?;
        let hostname = node["metadata"]["labels"][selector::HOSTNAME].as_str();
        let hosts = [hostname.map(Into::into), None];
        let found = hosts.iter().filter_map(|host| {
            let row = pool.by_host.get(host)?;
            large_enough(row, claim).find_map(|slot| {
                let volume = volumes.get(&slot.1)?;
                let fits = !taken.contains(&slot.1)
                    && volume.access_modes().contains(claim.access_modes())
                    && suits(volume, claim)
                    && reaches(volume, node);
                fits.then_some((slot, volume))
            })
        });
        found
            .min_by_key(|(slot, _)| *slot)
            .map(|(_, volume)| volume.clone())
    }

    fn pool_for(&self, claim: &Claim) -> Option<&Pool> {
        self.pools.get(&(claim.class().into(), claim.mode()))
    }
}

/// Takes a volume out of a row; the row goes with its last volume.
fn take<K: Ord>(rows: &mut BTreeMap<K, Row>, key: &K, slot: &Slot) {
    if let Some(row) = rows.get_mut(key) {
        row.remove(slot);
        if row.is_empty() {
            rows.remove(key);
        }
    }
}

fn large_enough<'a>(row: &'a Row, claim: &Claim) -> impl Iterator<Item = &'a Slot> {
    row.range((claim.request(), Arc::from(""))..)
}

/// What the pools do not sort by: the claim's label selector and the VolumeAttributesClass.
fn suits(volume: &Volume, claim: &Claim) -> bool {
    claim.attributes_class() == volume.attributes_class()
        && claim
            .selector()
            .is_none_or(|wanted| selector::selects(wanted, volume))
}

/// Whether a pod on this node can use the volume.
pub(crate) fn reaches(volume: &Volume, node: &Node) -> bool {
    volume
        .node_selector()
        .is_none_or(|selector| selector::selects_node(selector, node))
}

/// Whether a volume that is reserved for this claim may be bound to it. Class, selector and
/// binding mode are the business of whoever reserved it.
pub(crate) fn reserved_fits(volume: &Volume, claim: &Claim) -> bool {
    !volume.is_terminating()
        && volume.capacity() >= claim.request()
        && volume.mode() == claim.mode()
        && volume.attributes_class() == claim.attributes_class()
        && volume.access_modes().contains(claim.access_modes())
}

/// Whether a volume can be offered to this claim right now, by everything that [`Pools::best`]
/// asks for.
pub(crate) fn would_match(volume: &Volume, claim: &Claim) -> bool {
    Pools::offers(volume)
        && volume.class() == claim.class()
        && volume.mode() == claim.mode()
        && volume.capacity() >= claim.request()
        && volume.access_modes().contains(claim.access_modes())
        && suits(volume, claim)
}

/// Why a volume that the claim names, and that is free, cannot be bound to it.
pub(crate) fn mismatch(volume: &Volume, claim: &Claim) -> Option<Cow<'static, str>> {
    if volume.is_terminating() {
        let name = volume.name();
        return Some(format!("the volume is marked for deletion {name:?}").into());
    }
    let why = if volume.capacity() < claim.request() {
        "requested PV is too small"
    } else if volume.class() != claim.class() {
        "storageClassName does not match"
    } else if volume.attributes_class() != claim.attributes_class() {
        "volumeAttributesClassName does not match"
    } else if volume.mode() != claim.mode() {
        "incompatible volumeMode"
    } else if !volume.access_modes().contains(claim.access_modes()) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.into())
}
