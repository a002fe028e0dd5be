//! The volumes that claims may be offered, sorted so that finding one takes no search.
//!
//! What has to be the same on both sides picks the pool: class, volume mode, VolumeAttributesClass.
//! In it lies one row per set of access modes, in that the volumes by size: a claim looks at the few
//! rows that satisfy it and takes the first volume that is large enough. For claims with a selector
//! volumes of the same labels lie together once more, and each label knows where it occurs, so the
//! selector is asked once for each set of labels that can satisfy it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::matching::reaches;
use crate::controllers::{
    known::Known,
    object::{AccessModes, Claim, Node, Volume, VolumeMode},
    selector,
};

/// The volumes by name.
pub(crate) type Volumes = Known<Arc<str>, Volume>;

/// A volume as the rows sort it: the smaller one first.
type Slot = (i128, Arc<str>);
type Row = BTreeSet<Slot>;
type Labels = Arc<BTreeMap<String, String>>;

/// The volumes that any claim may get: Available, reserved for nobody, not terminating.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: HashMap<Kind, Pool>,
}

/// What has to be the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    class: Arc<str>,
    mode: VolumeMode,
    attributes_class: Arc<str>,
}

#[derive(Debug, Default)]
struct Pool {
    all: Shelf,
    /// The same volumes by the only host that can use them; `None` for those of no single host.
    by_host: HashMap<Option<Arc<str>>, Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    rows: Rows,
    /// The same volumes by their labels.
    alike: HashMap<Labels, Rows>,
    /// The keys of `alike` in which a label occurs.
    labelled: HashMap<(String, String), HashSet<Labels>>,
}

#[derive(Debug, Default)]
struct Rows(BTreeMap<AccessModes, Row>);

/// Where a volume lies.
struct Place {
    kind: Kind,
    host: Option<Arc<str>>,
    labels: Labels,
    modes: AccessModes,
    slot: Slot,
}

fn place(volume: &Volume) -> Option<Place> {
    let labels = volume["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    Pools::offers(volume).then(|| Place {
        kind: Kind {
            class: volume.class().into(),
            mode: volume.mode(),
            attributes_class: volume.attributes_class().into(),
        },
        host: volume
            .node_selector()
            .and_then(selector::only_hostname)
            .map(Into::into),
        labels: Arc::new(labels.collect()),
        modes: volume.access_modes(),
        slot: (volume.capacity(), volume.name().into()),
    })
}

impl Pools {
    /// Whether claims may be offered this volume at all.
    pub(crate) fn offers(volume: &Volume) -> bool {
        volume.phase() == "Available" && volume.claim_ref().is_none() && !volume.is_terminating()
    }

    pub(crate) fn insert(&mut self, volume: &Volume) {
        if let Some(place) = place(volume) {
            let pool = self.pools.entry(place.kind.clone()).or_default();
            pool.all.insert(&place);
            let of_host = pool.by_host.entry(place.host.clone()).or_default();
            of_host.insert(&place);
        }
    }

    /// Takes the volume away again; it must be the state that was inserted.
    pub(crate) fn remove(&mut self, volume: &Volume) {
        let Some(place) = place(volume) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&place.kind) else {
            return;
        };
        pool.all.remove(&place);
        if let Some(shelf) = pool.by_host.get_mut(&place.host) {
            shelf.remove(&place);
            if shelf.rows.0.is_empty() {
                pool.by_host.remove(&place.host);
            }
        }
        if pool.all.rows.0.is_empty() {
            self.pools.remove(&place.kind);
        }
    }

    /// The volume for a claim that binds at once: fewest access modes first, then the smallest.
    pub(crate) fn best(&self, volumes: &Volumes, claim: &Claim) -> Option<Volume> {
        let pool = self.pool_for(claim)?;
        let firsts = pool.all.rows_for(claim).filter_map(|rows| {
            let mut rows = rows.satisfying(claim);
            rows.find_map(|(modes, mut slots)| Some((modes, slots.next()?)))
        });
        let (_, (_, name)) = firsts.min()?;
        volumes.get(name)
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
        let shelves = [hostname.map(Into::into), None];
        let shelves = shelves.iter().filter_map(|host| pool.by_host.get(host));
        let rows = shelves.flat_map(|shelf| shelf.rows_for(claim));
        let rows = rows.flat_map(|rows| rows.satisfying(claim));
        let found = rows.filter_map(|(_, mut slots)| {
            slots.find_map(|slot| {
                let volume = (!taken.contains(&slot.1)).then(|| volumes.get(&slot.1))??;
                reaches(&volume, node).then_some((slot, volume))
            })
        });
        found
            .min_by_key(|(slot, _)| *slot)
            .map(|(_, volume)| volume)
    }

    fn pool_for(&self, claim: &Claim) -> Option<&Pool> {
        self.pools.get(&Kind {
            class: claim.class().into(),
            mode: claim.mode(),
            attributes_class: claim.attributes_class().into(),
        })
    }
}

impl Shelf {
    fn insert(&mut self, place: &Place) {
        let Place {
            labels,
            modes,
            slot,
            ..
        } = place;
        self.rows.insert(*modes, slot.clone());
        if !self.alike.contains_key(labels) {
            for (key, value) in &**labels {
                let label = (key.clone(), value.clone());
                let places = self.labelled.entry(label).or_default();
                places.insert(Arc::clone(labels));
            }
        }
        let alike = self.alike.entry(Arc::clone(labels)).or_default();
        alike.insert(*modes, slot.clone());
    }

    fn remove(&mut self, place: &Place) {
        let Place {
            labels,
            modes,
            slot,
            ..
        } = place;
        self.rows.remove(*modes, slot);
        let Some(alike) = self.alike.get_mut(labels) else {
            return;
        };
        alike.remove(*modes, slot);
        if !alike.0.is_empty() {
            return;
        }
        self.alike.remove(labels);
        for (key, value) in &**labels {
            let label = (key.clone(), value.clone());
            if let Some(places) = self.labelled.get_mut(&label) {
                places.remove(labels);
                if places.is_empty() {
                    self.labelled.remove(&label);
                }
            }
        }
    }

    /// Together these have every volume that the claim's selector wants, and no other.
    fn rows_for<'a>(&'a self, claim: &Claim) -> impl Iterator<Item = &'a Rows> + use<'a> {
        let Some(wanted) = claim.selector() else {
            return vec![&self.rows].into_iter();
        };
        let wants = |labels: &Labels| {
            examine();
            selector::selects_labels(wanted, &|key| labels.get(key).map(String::as_str))
        };
        let candidates = self.rarest(wanted);
        let candidates = candidates.unwrap_or_else(|| self.alike.keys().collect());
        let found = candidates.into_iter().filter(|labels| wants(labels));
        let found: Vec<_> = found.filter_map(|labels| self.alike.get(labels)).collect();
        found.into_iter()
    }

    /// The sets of labels that satisfy the one requirement which the fewest satisfy; `None` if the
    /// selector requires no certain label.
    fn rarest(&self, wanted: &Value) -> Option<Vec<&Labels>> {
        let places = |labels: Vec<(String, String)>| -> Vec<&HashSet<Labels>> {
            let places = labels.iter().filter_map(|label| self.labelled.get(label));
            places.collect()
        };
        let required = selector::required_labels(wanted).map(places);
        let rarest =
            required.min_by_key(|places| places.iter().map(|set| set.len()).sum::<usize>());
        Some(rarest?.into_iter().flatten().collect())
    }
}

impl Rows {
    fn insert(&mut self, modes: AccessModes, slot: Slot) {
        self.0.entry(modes).or_default().insert(slot);
    }

    /// A row goes with its last volume.
    fn remove(&mut self, modes: AccessModes, slot: &Slot) {
        if let Some(row) = self.0.get_mut(&modes) {
            row.remove(slot);
            if row.is_empty() {
                self.0.remove(&modes);
            }
        }
    }

    /// Of each row with the access modes that the claim wants the volumes that are large enough.
    fn satisfying<'a>(
        &'a self,
        claim: &Claim,
    ) -> impl Iterator<Item = (AccessModes, impl Iterator<Item = &'a Slot> + use<'a>)> + use<'a>
    {
        let (modes, size) = (claim.access_modes(), claim.request());
        let rows = self.0.iter().filter(move |(row, _)| row.contains(modes));
        rows.map(move |(modes, row)| {
            let slots = row.range((size, Arc::from(""))..);
            (*modes, slots.inspect(|_| examine()))
        })
    }
}

/// Called for all that is looked at on the way to a volume; the tests count.
fn examine() {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + 1);
}

#[cfg(test)]
thread_local! {
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
