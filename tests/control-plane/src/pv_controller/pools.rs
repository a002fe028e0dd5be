//! The volumes that claims may be offered, sorted so that the best one comes first.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::matching::{reaches, would_match};
use crate::controllers::object::{AccessModes, Claim, Node, Volume};

/// The volumes by name.
pub(crate) type Volumes = BTreeMap<Arc<str>, Volume>;

/// Volumes by their size in bytes, the smaller one first.
type Row = BTreeSet<(i128, Arc<str>)>;

/// The volumes that any claim may get: Available, not reserved, not terminating. By their
/// class, then by their access modes, the fewest first.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    classes: HashMap<Arc<str>, BTreeMap<AccessModes, Row>>,
}

impl Pools {
    /// Whether claims may be offered this volume at all.
    pub(crate) fn offers(volume: &Volume) -> bool {
        volume.phase() == "Available" && volume.claim_ref().is_none() && !volume.is_terminating()
    }

    pub(crate) fn insert(&mut self, volume: &Volume) {
        if Self::offers(volume) {
            let rows = self.classes.entry(volume.class().into()).or_default();
            let row = rows.entry(volume.access_modes()).or_default();
            row.insert((volume.capacity(), volume.name().into()));
        }
    }

    /// Takes the volume away again; it must be the state that was inserted.
    pub(crate) fn remove(&mut self, volume: &Volume) {
        let rows = self.classes.get_mut(volume.class());
        if let Some(row) = rows.and_then(|rows| rows.get_mut(&volume.access_modes())) {
            row.remove(&(volume.capacity(), volume.name().into()));
        }
    }

    /// The volume for a claim that binds at once: fewest access modes first, then the smallest.
    pub(crate) fn best(&self, volumes: &Volumes, claim: &Claim) -> Option<Volume> {
        self.firsts(volumes, claim, |_| true).next()
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
        let may = |volume: &Volume| !taken.contains(volume.name()) && reaches(volume, node);
        let found = self.firsts(volumes, claim, may);
        found.min_by_key(|volume| (volume.capacity(), volume.name().to_owned()))
    }

    /// Of each row with the access modes that the claim wants, the first volume that it may have.
    fn firsts(
        &self,
        volumes: &Volumes,
        claim: &Claim,
        may: impl Fn(&Volume) -> bool,
    ) -> impl Iterator<Item = Volume> {
        let (modes, size) = (claim.access_modes(), claim.request());
        let rows = self.classes.get(claim.class()).into_iter().flatten();
        let rows = rows.filter(move |(row, _)| row.contains(modes));
        rows.filter_map(move |(_, row)| {
            let large_enough = row.range((size, Arc::from(""))..);
            let mut known = large_enough.filter_map(|(_, name)| volumes.get(name));
            let fits = |volume: &&Volume| would_match(volume, claim) && may(volume);
            known.find(fits).cloned()
        })
    }
}
