//! What a look at a disk finds: its identity, its mark and its contents.

use std::collections::BTreeSet;

use local_volume_provisioner::host::footprint::Footprint;
use local_volume_provisioner::host::identity::Identity;
use local_volume_provisioner::host::mark::{MarkFact, MarkOnDisk, Place};
use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::inventory::{Candidate, Contents};
use local_volume_provisioner::types::VolumeMode;

use crate::world::{Disk, State};

impl State {
    pub fn mark(&self, node: usize, disk: usize) -> MarkOnDisk {
        self.mark_as(self.disks[disk].kind, node, disk)
    }

    /// The mark of a disk as a filesystem or as a device.
    pub fn mark_as(&self, kind: VolumeMode, node: usize, disk: usize) -> MarkOnDisk {
        match kind {
            VolumeMode::Filesystem => self.mark_of_filesystem(node, disk),
            VolumeMode::Block => self.marks.get(&(node, disk)).cloned().unwrap_or_default(),
        }
    }

    pub fn set_mark(&mut self, node: usize, disk: usize, mark: MarkOnDisk) {
        match self.disks[disk].kind {
            VolumeMode::Filesystem => {
                self.disks[disk].mark = mark;
                self.spares.kept.remove(&(node, disk));
            }
            VolumeMode::Block => self.set_mark_of_device(node, disk, mark),
        }
    }

    pub fn set_mark_of_device(&mut self, node: usize, disk: usize, mark: MarkOnDisk) {
        self.marks.insert((node, disk), mark);
    }

    /// What a look at a volume of a node finds.
    pub fn candidate(&self, node: usize, at: usize, reads: bool) -> Candidate {
        self.candidate_as(self.disks[at].kind, node, at, reads)
    }

    /// What a look at a disk of a node finds.
    pub fn candidate_as(&self, kind: VolumeMode, node: usize, at: usize, reads: bool) -> Candidate {
        let disk = &self.disks[at];
        let device = DeviceNumber { major: 8, minor: 16 * number(at) };
        let below = BTreeSet::from([device]);
        let footprint = match kind {
            VolumeMode::Filesystem => {
                Footprint::Filesystem { devices: below, fs: device, root: "/".into() }
            }
            VolumeMode::Block => Footprint::Device {
                number: device,
                below,
                wwid: Some(format!("disk-{}", number(at))),
            },
        };
        let text = match kind {
            VolumeMode::Filesystem => identity(at, disk),
            VolumeMode::Block => name(at),
        };
        let mounted = self.slot_of(node, at).filter(|_| kind != disk.kind);
        Candidate {
            kind,
            capacity: disk.gib << 30,
            identity: Identity { text, weak: false },
            global: Some(disk.global.clone()),
            footprint,
            read_only: false,
            in_use: mounted.map(|slot| format!("mounted at {}", slot.path)),
            contents: match &disk.data {
                _ if !reads => Contents::NotLookedAt,
                None => Contents::Empty,
                Some(_) => Contents::Holds("a file".into()),
            },
            rotational: BTreeSet::new(),
            mark: MarkFact {
                on_disk: self.mark_as(kind, node, at),
                place: Some(match kind {
                    VolumeMode::Filesystem => Place::Attribute,
                    VolumeMode::Block => Place::StateDirectory,
                }),
                directory: None,
                is_outdated: false,
            },
            is_as_offered: kind == VolumeMode::Filesystem || disk.data.is_none(),
            is_blank: false,
            root: None,
        }
    }
}

pub fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap() + 1
}

/// The identity of a device.
fn name(at: usize) -> String {
    format!("v1:wwid=disk-{}", number(at))
}

/// The identity of a volume.
pub fn identity(at: usize, disk: &Disk) -> String {
    match (disk.kind, &disk.made.identity) {
        (VolumeMode::Block, _) => name(at),
        (VolumeMode::Filesystem, Some(made)) => made.clone(),
        (VolumeMode::Filesystem, None) => format!("v1:fs=ext4,root=/,uuid=u{}", number(at)),
    }
}
