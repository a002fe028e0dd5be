//! Which storage the node's volumes occupy, so that no two PVs share a device.
//!
//! [`overlap`] decides whether two volumes share storage. This index finds the candidates for it without
//! comparing all pairs.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::PathBuf;

use crate::host::footprint::{Footprint, Overlap, overlap};
use crate::host::identity::{Identity, may_share};
use crate::host::mounts::DeviceNumber;
use crate::types::HostPath;
use crate::view::{ClaimRef, PathOwner, PvView};

use super::pod_mounts::Contradictions;

/// One volume and where it is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The path that PVs name.
    pub path: HostPath,
    /// The storage behind it.
    pub footprint: Footprint,
    /// The PV, if there is one.
    pub pv: Option<String>,
}

/// The index.
#[derive(Clone, Debug, Default)]
pub struct Occupied {
    occupants: Vec<Occupant>,
    by_path: BTreeMap<HostPath, usize>,
    /// Device volumes by their own number.
    devices: BTreeMap<DeviceNumber, Vec<usize>>,
    /// All volumes by every device that they lie on.
    upon: BTreeMap<DeviceNumber, Vec<usize>>,
    by_wwid: BTreeMap<String, Vec<usize>>,
    /// Filesystem volumes by filesystem and root within it: nested roots are neighbours in this order.
    roots: BTreeMap<DeviceNumber, BTreeMap<PathBuf, Vec<usize>>>,
    /// The UIDs and names of PVs by the identity that is recorded on them.
    recorded: BTreeMap<String, Vec<(String, String)>>,
    /// Identity, UID and name of PVs whose volumes are not among the occupants: their class is gone, or
    /// they cannot be read.
    unseen: Vec<(String, String, String)>,
    /// The UIDs and names of PVs by the path that they name.
    named: BTreeMap<HostPath, Vec<(String, String)>>,
    /// The claims, without UID, that are bound to PVs of ours.
    pub claims: BTreeSet<ClaimRef>,
    /// The PVs that may own storage of this node by a path at which no volume was seen.
    pub owners: Vec<PathOwner>,
    /// The PVs for which the kubelet has mounted something else.
    pub contradictions: Contradictions,
}

impl Occupied {
    /// Adds a volume.
    pub fn insert(&mut self, occupant: Occupant) {
        let at = self.occupants.len();
        for device in occupant.footprint.devices() {
            self.upon.entry(*device).or_default().push(at);
        }
        match &occupant.footprint {
            Footprint::Device { number, wwid, .. } => {
                self.devices.entry(*number).or_default().push(at);
                if let Some(wwid) = wwid {
                    self.by_wwid.entry(wwid.clone()).or_default().push(at);
                }
            }
            Footprint::Filesystem { fs, root, .. } => {
                let roots = self.roots.entry(*fs).or_default();
                roots.entry(root.clone()).or_default().push(at);
            }
        }
        self.by_path.insert(occupant.path.clone(), at);
        self.occupants.push(occupant);
    }

    /// Whether several volumes lie on a filesystem.
    pub fn is_shared(&self, fs: DeviceNumber) -> bool {
        let roots = self.roots.get(&fs);
        roots.is_some_and(|roots| roots.values().map(Vec::len).sum::<usize>() > 1)
    }

    /// Adds a PV with a recorded identity, wherever its storage is now.
    pub fn record(&mut self, identity: &str, pv: &PvView) {
        let pvs = self.recorded.entry(identity.to_owned()).or_default();
        pvs.push((pv.uid.clone(), pv.name.clone()));
    }

    /// The name of a PV of another UID than `uid` on which this identity is recorded; none for a weak identity, which
    /// other storage may have.
    pub fn recorded_on(&self, identity: &Identity, uid: &str) -> Option<&str> {
        self.also_on(&identity.text, uid).filter(|_| !identity.weak)
    }

    /// The name of a PV of another UID than `uid` on which this identity, which may be weak, is recorded.
    pub fn also_on(&self, identity: &str, uid: &str) -> Option<&str> {
        another(self.recorded.get(identity)?, uid)
    }

    /// Adds a PV whose volume was not seen: only its recorded identity is known.
    pub fn unseen(&mut self, identity: &str, pv: &PvView) {
        let (uid, name) = (pv.uid.clone(), pv.name.clone());
        self.unseen.push((identity.to_owned(), uid, name));
    }

    /// The name of an unseen PV of another UID than `uid` that may share storage with `observed`.
    pub fn unseen_sharing(&self, observed: &Identity, uid: &str) -> Option<&str> {
        let mut pvs = self.unseen.iter();
        pvs.find(|(recorded, other, _)| other != uid && may_share(recorded, observed))
            .map(|(_, _, name)| name.as_str())
    }

    /// Adds a PV that names a path, whatever is there.
    pub fn name(&mut self, path: &HostPath, pv: &PvView) {
        let pvs = self.named.entry(path.clone()).or_default();
        pvs.push((pv.uid.clone(), pv.name.clone()));
    }

    /// Another PV than that of UID `uid` that names the path, or one inside or around it, and which of these.
    pub fn duplicate(&self, path: &HostPath, uid: &str) -> Option<(&str, &'static str)> {
        let same = self.named.get(path).and_then(|pvs| another(pvs, uid));
        let around = || another(around(&self.named, path)?, uid);
        same.map(|pv| (pv, "the same path"))
            .or_else(|| Some((around()?, "a path inside or around this one")))
    }

    /// The volume at a path, if one was added.
    pub fn at(&self, path: &HostPath) -> Option<&Occupant> {
        self.by_path.get(path).map(|at| &self.occupants[*at])
    }

    /// A volume whose path is inside or around `path`.
    pub fn around(&self, path: &HostPath) -> Option<&Occupant> {
        around(&self.by_path, path).map(|at| &self.occupants[*at])
    }

    /// A volume at another path than `path` that shares storage with `footprint`, and how.
    pub fn conflict(&self, footprint: &Footprint, path: &HostPath) -> Option<(&Occupant, Overlap)> {
        self.neighbours(footprint)
            .into_iter()
            .flatten()
            .map(|at| &self.occupants[*at])
            .filter(|other| other.path != *path)
            .find_map(|other| Some((other, overlap(&other.footprint, footprint)?)))
    }

    /// The volumes that may share storage with `footprint`.
    fn neighbours(&self, footprint: &Footprint) -> Vec<&Vec<usize>> {
        let devices = footprint.devices().iter();
        let on_device = devices.filter_map(|device| self.devices.get(device));
        match footprint {
            Footprint::Device { number, wwid, .. } => on_device
                .chain(self.upon.get(number))
                .chain(wwid.as_ref().and_then(|wwid| self.by_wwid.get(wwid)))
                .collect(),
            Footprint::Filesystem { fs, root, .. } => {
                let roots = self.roots.get(fs);
                let above = root.ancestors().filter_map(|dir| roots?.get(dir));
                let within = roots
                    .into_iter()
                    .flat_map(|roots| roots.range(root.clone()..))
                    .take_while(|(other, _)| other.starts_with(root))
                    .map(|(_, at)| at);
                above.chain(within).chain(on_device).collect()
            }
        }
    }
}

/// The name of the first PV of another UID.
fn another<'a>(pvs: &'a [(String, String)], uid: &str) -> Option<&'a str> {
    let mut others = pvs.iter().filter(|(other, _)| other != uid);
    others.next().map(|(_, name)| name.as_str())
}

/// Which found volumes lie on which device, whether they are offered or not.
///
/// A disk and its partition cannot both be offered. The partition takes precedence: it was created on
/// purpose, and its data is part of the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    upon: BTreeMap<DeviceNumber, HostPath>,
}

impl Layers {
    /// Adds the volume at a path.
    pub fn insert(&mut self, path: &HostPath, footprint: &Footprint) {
        let own = match footprint {
            Footprint::Device { number, .. } => Some(number),
            Footprint::Filesystem { .. } => None,
        };
        for device in footprint.devices() {
            if Some(device) != own {
                let first = self.upon.entry(*device).or_insert_with(|| path.clone());
                if path < first {
                    first.clone_from(path);
                }
            }
        }
    }

    /// The path of a volume that lies on the device of `footprint`: a partition, or a filesystem on one.
    pub fn upon(&self, footprint: &Footprint) -> Option<&HostPath> {
        match footprint {
            Footprint::Device { number, .. } => self.upon.get(number),
            Footprint::Filesystem { .. } => None,
        }
    }
}

/// The value of a path inside or around `path` in a map by paths.
pub(super) fn around<'m, K, V>(paths: &'m BTreeMap<K, V>, path: &HostPath) -> Option<&'m V>
where
    K: Borrow<HostPath> + Ord,
{
    // Paths are in order by components: the first one after a directory is in it, if any is.
    let next = paths.range::<HostPath, _>((Bound::Excluded(path), Bound::Unbounded)).next();
    let within =
        next.filter(|(other, _)| (*other).borrow().is_within(path)).map(|(_, value)| value);
    let text = path.as_str();
    let dirs = text.match_indices('/').map(|(end, _)| &text[..end.max(1)]);
    let mut above = dirs.filter(|dir| *dir != text).filter_map(|dir| HostPath::from_api(dir).ok());
    within.or_else(|| above.find_map(|dir| paths.get(&dir)))
}
