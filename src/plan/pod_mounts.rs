//! Compares what the kubelet has mounted for a PV with the volume that the provisioner sees at its path. Where
//! `hostDir` and `mountDir` of a class are two directories, a wipe would delete one, and offer the other with the data.
//!
//! The kubelet unmounts before the release. So what was seen is kept until a mount agrees, or until the class has other
//! directories. Without a mount there is neither a proof nor a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::escape::quoted;
use crate::host::footprint::Footprint;
use crate::host::identity::{Match, compare};
use crate::host::mounts::DeviceNumber;
use crate::inventory::Volume;
use crate::types::{HostPath, MountPath};
use crate::view::{Ownership, Phase, PvView};

use super::{Planner, PvLocation};

/// A PV for which the kubelet has mounted something else than its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contradiction {
    class: String,
    host_dir: HostPath,
    mount_dir: MountPath,
    /// Whether it proves a fault of the class. Another filesystem of a single PV can be a disk that was plugged in
    /// again while a pod still had it.
    is_proof: bool,
    message: String,
}

impl Contradiction {
    /// Whether the kubelet's mounts for a PV show something else than its volume.
    fn find(
        mounts: &BTreeSet<(DeviceNumber, PathBuf)>,
        pv: &PvView,
        volume: &Arc<Volume>,
    ) -> Option<Self> {
        let class = &volume.class;
        let (seen, agrees, is_proof) = match &volume.candidate.footprint {
            Footprint::Filesystem { fs, root, .. } => (
                shown(*fs, root),
                mounts.contains(&(*fs, root.clone())),
                mounts.iter().all(|(_, mounted)| mounted != root),
            ),
            // A filesystem without a device number, such as btrfs, tells nothing.
            Footprint::Device { number, .. } => {
                let may_be = |fs: &DeviceNumber| fs == number || fs.major == 0;
                let agrees = mounts.iter().any(|(fs, _)| may_be(fs));
                (number.to_string(), agrees, false)
            }
        };
        let (fs, root) = mounts.first().filter(|_| !agrees)?;
        Some(Self {
            class: class.name.clone(),
            host_dir: class.host_dir.clone(),
            mount_dir: class.mount_dir.clone(),
            is_proof,
            message: format!(
                "the kubelet has {} for PV {}, not {seen} of {}: hostDir and mountDir must be one directory",
                shown(*fs, root),
                pv.name,
                volume.mount_path,
            ),
        })
    }
}

/// A directory of a filesystem.
fn shown(fs: DeviceNumber, root: &Path) -> String {
    format!("{fs} {}", quoted(root.as_os_str().as_encoded_bytes()))
}

/// The PVs for which the kubelet has mounted something else, by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contradictions(BTreeMap<String, Contradiction>);

impl Contradictions {
    /// What the kubelet has mounted for the PV of this UID.
    pub fn of(&self, uid: &str) -> Option<&str> {
        self.0.get(uid).map(|it| it.message.as_str())
    }

    /// Why nothing in a class is offered or cleaned.
    pub fn fault(&self, class: &str) -> Option<&str> {
        let mut found = self.0.values();
        found.find(|it| it.is_proof && it.class == class).map(|it| it.message.as_str())
    }
}

impl Planner<'_> {
    /// Compares the volumes of all PVs that the kubelet has mounted, before any of them is cleaned or offered.
    pub(super) fn compare_pod_mounts(&mut self) {
        let mut found = self.snapshot.contradictions.0.clone();
        let classes = &self.settings.config.classes;
        found.retain(|_, it| {
            let class = classes.get(&it.class);
            class.is_none_or(|now| now.host_dir == it.host_dir && now.mount_dir == it.mount_dir)
        });
        for pv in self.pvs {
            let observed = self.snapshot.observed.get(&pv.class);
            let mounts = observed.and_then(|it| it.pod_mounts.get(&pv.name));
            if let Some(mounts) = mounts
                && matches!(pv.phase, Phase::Bound | Phase::Released)
                && self.ownership(pv) == Ownership::Ours
                && let PvLocation::Volume(volume) = self.locate(pv)
            {
                let observed = &volume.candidate.identity;
                // Another disk is reported as such.
                let is_its_disk = |it: &str| compare(it, observed) == Match::Same;
                match Contradiction::find(mounts, pv, volume) {
                    Some(new) if pv.identity.as_deref().is_some_and(is_its_disk) => {
                        found.insert(pv.uid.clone(), new);
                    }
                    Some(_) => {}
                    None => drop(found.remove(&pv.uid)),
                }
            }
        }
        for class in classes.keys() {
            let is_of =
                |uid: &str, it: &Contradiction| it.class == *class && self.by_uid.contains_key(uid);
            if found.iter().filter(|(uid, it)| is_of(uid, it)).count() > 1 {
                let of_class = found.values_mut().filter(|it| it.class == *class);
                of_class.for_each(|it| it.is_proof = true);
            }
        }
        self.occupied.contradictions.0 = found;
    }
}
