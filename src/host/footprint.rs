//! The storage that a volume occupies, and whether two volumes overlap: a device must have only one PV.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::filesystem::FsRoot;
use super::ioctl;
use super::mounts::DeviceNumber;
use super::sysfs::{DeviceFacts, Sysfs};

/// The storage behind a volume. Valid until devices or mounts change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Footprint {
    /// A directory of a mounted filesystem.
    Filesystem {
        /// All devices that the filesystem lies on, down to the disks. Empty for one without.
        devices: BTreeSet<DeviceNumber>,
        /// Which filesystem, by its number in the mount table. All its mounts have the same, also all subvolumes of
        /// btrfs, whose `st_dev` differ.
        fs: DeviceNumber,
        /// Which directory of it.
        root: PathBuf,
    },
    /// A block device.
    Device {
        /// The device.
        number: DeviceNumber,
        /// It and all that it lies on, down to the disks.
        below: BTreeSet<DeviceNumber>,
        /// A whole disk's world-wide name; `None` for a partition, since all partitions of a disk share it.
        wwid: Option<String>,
    },
}

/// How two volumes share storage, so that only one of them can be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overlap {
    /// Both are one device, or one directory of one filesystem.
    #[error("they are the same device or directory")]
    Same,
    /// One is a directory within the other: emptying the outer empties the inner.
    #[error("one is a directory inside the other")]
    Nested,
    /// One lies on the other: a filesystem or partition on its device, or a device that is built from others (LVM,
    /// RAID, multipath, loop).
    #[error("one lies on the other")]
    PartOf,
    /// Both are paths to the same disk.
    #[error("they are two paths to the same disk")]
    SameWwid,
}

impl Footprint {
    /// The footprint of a filesystem volume.
    ///
    /// # Errors
    /// When the filesystem or `/sys` do not answer.
    pub fn of_filesystem(root: &FsRoot, sysfs: &Sysfs) -> io::Result<Self> {
        let mut devices = BTreeSet::new();
        for number in devices_of(root, sysfs)? {
            devices.extend(&sysfs.device(number)?.below);
        }
        Ok(Self::Filesystem { devices, fs: root.mount().device, root: root.mount().root.clone() })
    }

    /// The footprint of a device volume.
    pub fn of_device(facts: &DeviceFacts) -> Self {
        Self::Device {
            number: facts.number,
            below: facts.below.clone(),
            wwid: facts.wwid.clone().filter(|_| facts.disk == facts.number),
        }
    }

    /// All devices that the volume lies on, itself included.
    pub fn devices(&self) -> &BTreeSet<DeviceNumber> {
        match self {
            Self::Filesystem { devices, .. } => devices,
            Self::Device { below, .. } => below,
        }
    }
}

/// The devices that a filesystem directly lies on.
pub(super) fn devices_of(root: &FsRoot, sysfs: &Sysfs) -> io::Result<BTreeSet<DeviceNumber>> {
    if root.mount().fs_type == "btrfs" {
        let name = ioctl::btrfs_sysfs_name(root.as_fd())?;
        return name.map_or(Ok(BTreeSet::new()), |name| sysfs.btrfs_devices(&name));
    }
    // Filesystems without a device have major 0.
    let number = Some(root.mount().device).filter(|number| number.major != 0);
    Ok(number.into_iter().collect())
}

/// How two volumes share storage, if they do. The order does not matter.
///
/// Siblings do not overlap: two partitions of one disk, two logical volumes of one group, two sibling directories.
pub fn overlap(a: &Footprint, b: &Footprint) -> Option<Overlap> {
    use Footprint::{Device, Filesystem};
    use Overlap::{Nested, Same};
    let lies_on = |upper: &Footprint, lower: &Footprint| match lower {
        Device { number, .. } => upper.devices().contains(number),
        Filesystem { .. } => false,
    };
    match (a, b) {
        (Filesystem { fs, root, .. }, Filesystem { fs: other, root: dir, .. }) => {
            let is_nested = root.starts_with(dir) || dir.starts_with(root);
            let overlap = if root == dir { Same } else { Nested };
            (fs == other && is_nested).then_some(overlap)
        }
        (Device { number, .. }, Device { number: other, .. }) if number == other => Some(Same),
        _ if lies_on(a, b) || lies_on(b, a) => Some(Overlap::PartOf),
        (Device { wwid, .. }, Device { wwid: other, .. }) => {
            let is_same = wwid.is_some() && wwid == other;
            is_same.then_some(Overlap::SameWwid)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
