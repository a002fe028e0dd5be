//! Filesystems that provisioners make on disks: how far they have come, where they are mounted, and what boots do to them.

use std::collections::{BTreeMap, BTreeSet};

use local_volume_provisioner::host::identity::{Identity, is_made};
use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::types::VolumeMode;

use crate::checks::{Wipe, uid};
use crate::found::{identity, number};
use crate::links::{entry_of, node_of};
use crate::process::elapsed;
use crate::script::name;
use crate::world::{Lock, NODES, Slot, State, World};

/// The directory of the links of disks, and that of the entries of the first class.
const LINKS: &str = "/dev/disk/by-id/";
const ENTRIES: &str = "/mnt/c0/";

/// What is on a disk, beside what tenants and other programs have written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    None,
    /// Without its superblock, or with a part of a new filesystem.
    Half,
    Complete,
}

/// The filesystem that provisioners make on a disk.
#[derive(Debug, Default)]
pub struct Made {
    /// The identity of its volume, once it was made.
    pub identity: Option<String>,
    pub format: Format,
    /// The lock of the device. That of the disk is on the root of the filesystem.
    pub lock: Option<Lock>,
    /// The boots of nodes in which it was last mounted there.
    pub mounted_in: BTreeMap<usize, u64>,
}

/// The identity of the volume on a disk.
fn identity_of_made(at: usize) -> String {
    let number = number(at);
    let text = format!("v1:fs=made,on=wwid%3Ddisk-{number},root=/,uuid={number}");
    let identity = Identity { text, weak: false };
    assert!(is_made(&identity), "{identity}");
    identity.text
}

/// The entry of the filesystem on the disk of a link.
pub fn entry_of_made(link: &str) -> String {
    link.replace(LINKS, ENTRIES)
}

impl State {
    /// The mark of a filesystem. One in the state directory counts instead of the attribute that it replaces.
    pub fn mark_of_filesystem(&self, node: usize, at: usize) -> MarkOnDisk {
        let attribute = &self.disks[at].mark;
        let severity = |mark: &MarkOnDisk| match mark {
            MarkOnDisk::Absent => 0,
            MarkOnDisk::Unreadable { .. } => 6,
            MarkOnDisk::Valid(mark) => match mark.state {
                MarkState::Free => 1,
                MarkState::Pending => 2,
                MarkState::Offered => 3,
                MarkState::Used => 4,
                MarkState::Wiping => 5,
            },
        };
        match self.spares.kept.get(&(node, at)) {
            Some((before, kept))
                if before == attribute || severity(kept) >= severity(attribute) =>
            {
                kept.clone()
            }
            _ => attribute.clone(),
        }
    }

    /// Writes the mark of a filesystem to the state directory of a node.
    pub fn keep_mark(&mut self, node: usize, at: usize, mark: Mark) {
        let before = self.disks[at].mark.clone();
        let kept = (before, MarkOnDisk::Valid(mark));
        self.spares.kept.insert((node, at), kept);
    }

    pub fn boot_of(&self, node: usize) -> u64 {
        self.spares.boots.get(&node).copied().unwrap_or_default()
    }

    /// mkfs has ended well.
    pub fn made(&mut self, at: usize) {
        let disk = &mut self.disks[at];
        disk.made.format = Format::Complete;
        disk.made.identity = Some(identity_of_made(at));
        (disk.kind, disk.mark) = (VolumeMode::Filesystem, MarkOnDisk::Absent);
    }

    /// Whether the entry of a slot is that of a filesystem that a provisioner makes.
    pub fn is_entry_of_made(&self, slot: usize) -> bool {
        let slot = &self.slots[slot];
        self.spares.makes && slot.class == 0 && slot.path.starts_with("/mnt/c0/c0-")
    }

    /// Makes a directory for a filesystem.
    pub fn make_directory(&mut self, node: usize, path: &str) -> usize {
        self.slot(node, path).unwrap_or_else(|| {
            self.slots.push(Slot {
                node,
                class: 0,
                path: path.to_owned(),
                disk: None,
                home: None,
                changed_at: elapsed(),
            });
            self.slots.len() - 1
        })
    }

    /// Mounts a filesystem on an empty directory.
    pub fn mount_made(&mut self, slot: usize, at: usize) {
        let (node, boot) = (self.slots[slot].node, self.boot_of(self.slots[slot].node));
        for slot in &mut self.slots {
            slot.home = slot.home.filter(|home| *home != at);
        }
        let place = &mut self.slots[slot];
        (place.disk, place.home, place.changed_at) = (Some(at), Some(at), elapsed());
        let disk = &mut self.disks[at];
        if disk.node.replace(node) != Some(node) {
            disk.mounted_for.clear();
        }
        disk.made.mounted_in.insert(node, boot);
        self.spares.disks.get_mut(&at).unwrap().loose_on = None;
    }

    /// Unmounts a filesystem. A link to its entry would lead to an empty directory.
    pub fn unmount_made(&mut self, slot: usize) {
        let (node, path) = (self.slots[slot].node, self.slots[slot].path.clone());
        if let Some(at) = self.slots[slot].disk.take() {
            self.spares.disks.get_mut(&at).unwrap().loose_on = Some(node);
            let disk = &mut self.disks[at];
            (disk.lock, disk.is_wiped) = (None, false);
            let mut links = self.bindings.links.iter();
            if links.any(|(link, to)| link.0 == node && *to == path) {
                self.violation(&format!("disk {at} is unmounted, and a link leads to {path}"));
            }
        }
    }

    /// A machine boots, while no provisioner runs there.
    pub fn boot(&mut self, node: usize) {
        *self.spares.boots.entry(node).or_default() += 1;
        self.bindings.links.retain(|(of, _), _| *of != node);
        for slot in 0..self.slots.len() {
            let at = self.slots[slot].disk;
            let is_made = at.is_some_and(|at| self.disks[at].made.identity.is_some());
            if self.slots[slot].node == node && is_made {
                self.unmount_made(slot);
                self.slots[slot].changed_at = elapsed();
            }
        }
        for disk in &mut self.disks {
            disk.mounted_for.retain(|it| it.0 != node);
        }
    }

    /// Brings the disk of a filesystem to the node of its entry, where it is not mounted yet.
    pub fn bring(&mut self, slot: usize, at: usize) {
        let (node, name) = (self.slots[slot].node, self.slots[slot].path.clone());
        let link = name.replace(ENTRIES, LINKS);
        self.remove(at);
        if let Some(other) = self.slots[slot].disk {
            self.remove(other);
        }
        let mut others: BTreeSet<_> = self.spares.disks.keys().copied().collect();
        others.retain(|other| {
            self.loose_on(*other) == Some(node) && self.spares.disks[other].links.contains(&link)
        });
        for other in others {
            self.remove(other);
        }
        let spare = self.spares.disks.get_mut(&at).unwrap();
        (spare.links, spare.loose_on, spare.gone_from) = (vec![link], Some(node), None);
    }

    /// Plugs a disk in where it belongs. A filesystem that a provisioner made is not mounted by that.
    pub fn put(&mut self, slot: usize, disk: Option<usize>) {
        match disk {
            Some(at) if self.is_entry_of_made(slot) => self.bring(slot, at),
            _ => self.plug(slot, disk),
        }
    }

    /// A disk is nowhere.
    pub fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.iter().position(|slot| slot.disk == Some(at)) {
            self.plug(slot, None);
        }
        self.disks[at].unplug();
        if let Some(spare) = self.spares.disks.get_mut(&at) {
            (spare.loose_on, spare.gone_from) = (None, None);
        }
    }

    /// The filesystem of a disk moves to another node, where no directory is.
    pub fn move_made(&mut self, at: usize, from: usize) {
        let other = (0..NODES.len())
            .find(|node| *node != from && self.slots.iter().any(|slot| slot.node == *node));
        self.remove(at);
        self.spares.disks.get_mut(&at).unwrap().loose_on = other;
    }

    /// Why a filesystem that was made, or begun, is not mounted.
    pub fn unmounted(&self) -> Option<String> {
        let begun = |at: usize| {
            let made = &self.disks[at].made;
            made.identity.is_some() || made.format != Format::None
        };
        let mut spares = self.spares.disks.keys();
        let at = spares.find(|at| begun(**at) && self.loose_on(**at).is_some())?;
        let (links, made) = (&self.spares.disks[at].links, &self.disks[*at].made);
        Some(format!("disk {at}, {links:?}, is not mounted: {made:?}"))
    }
}

impl World {
    /// Checks that a disk may be reset although no cleanup has it open.
    pub fn check_remake(&self, node: usize, at: usize, path: &str) {
        let pvs = self.pvs();
        let is_of_entry = |pv: &&std::sync::Arc<serde_json::Value>| {
            let is_deleted = pv["metadata"]["deletionTimestamp"].is_string();
            is_deleted && node_of(pv) == Some(node) && entry_of(pv) == path
        };
        if let Some(pv) = pvs.iter().find(is_of_entry) {
            let wipe = Wipe {
                node,
                is_orphan: false,
                path: path.to_owned(),
                pv: name(pv).to_owned(),
                pv_uid: uid(pv).to_owned(),
                identity: identity(at, &self.lock().disks[at]),
            };
            return self.check_wipe(at, None, &wipe);
        }
        let mut state = self.lock();
        let kept = state.mark_of_filesystem(node, at);
        let is_by_hand = kept.valid().is_some_and(|it| state.by_hand.contains(&it.pv_uid));
        if !is_by_hand {
            state.violation(&format!("disk {at} is reset, and no PV of {path} is Terminating"));
        }
    }
}
