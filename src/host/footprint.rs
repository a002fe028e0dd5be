//! The storage that a volume occupies, and whether two volumes overlap: a device must have only one PV.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::filesystem::FsRoot;
use super::fs_uuid;
use super::mounts::DeviceNumber;
use super::sysfs::{DeviceFacts, Sysfs};

/// A filesystem, by its number in the mount table. All its mounts have the same, also all subvolumes of btrfs,
/// whose `st_dev` differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsKey(pub DeviceNumber);

/// The storage behind a volume. Valid until devices or mounts change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Footprint {
    /// A directory of a mounted filesystem.
    Filesystem {
        /// All devices that the filesystem lies on, down to the disks. Empty for one without.
        devices: BTreeSet<DeviceNumber>,
        /// Which filesystem.
        fs: FsKey,
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
        /// The names of the devices that lie on it.
        holders: Vec<String>,
    },
}

/// How two volumes share storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Both are one device.
    SameDevice,
    /// Both are one directory of one filesystem.
    SameFilesystemRoot,
    /// One is a directory within the other: emptying the outer empties the inner.
    Nested,
    /// One is the device, or one of the devices, below the other's filesystem.
    DeviceUnderFilesystem,
    /// One is a partition of the other, or it is built from it (LVM, RAID, multipath, loop).
    PartOf,
    /// Both are paths to the same disk.
    SameWwid,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameDevice => "they are the same device",
            Self::SameFilesystemRoot => "they are the same directory of the same filesystem",
            Self::Nested => "one is a directory inside the other",
            Self::DeviceUnderFilesystem => "one is the device under the other's filesystem",
            Self::PartOf => "one is part of the other",
            Self::SameWwid => "they are two paths to the same disk",
        })
    }
}

impl Footprint {
    /// The footprint of a filesystem volume.
    ///
    /// # Errors
    /// When the filesystem or `/sys` do not answer.
    pub fn of_filesystem(root: &FsRoot, sysfs: &Sysfs) -> io::Result<Self> {
        let mut devices = BTreeSet::new();
        for number in devices_of(root, sysfs)? {
            devices.extend(sysfs.device(number)?.below);
        }
        Ok(Self::Filesystem {
            devices,
            fs: FsKey(root.mount().device),
            root: root.mount().root.clone(),
        })
    }

    /// The footprint of a device volume.
    #[must_use]
    pub fn of_device(facts: &DeviceFacts) -> Self {
        Self::Device {
            number: facts.number,
            below: facts.below.clone(),
            wwid: facts.wwid.clone().filter(|_| facts.disk == facts.number),
            holders: facts.holders.clone(),
        }
    }

    /// All devices that the volume lies on, itself included.
    #[must_use]
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
        let name = fs_uuid::btrfs_sysfs_name(root.as_fd())?;
        return name.map_or(Ok(BTreeSet::new()), |name| sysfs.btrfs_devices(&name));
    }
    // Filesystems without a device have major 0.
    let number = Some(root.mount().device).filter(|number| number.major != 0);
    Ok(number.into_iter().collect())
}

/// How two volumes share storage, if they do. The order does not matter.
///
/// Siblings do not overlap: two partitions of one disk, two logical volumes of one group, two sibling directories.
#[must_use]
pub fn overlap(a: &Footprint, b: &Footprint) -> Option<Overlap> {
    use Footprint::{Device, Filesystem};
    match (a, b) {
        (Filesystem { fs: one, root, .. }, Filesystem { fs, root: dir, .. }) if one == fs => {
            roots_overlap(root, dir)
        }
        (Filesystem { .. }, Filesystem { .. }) => None,
        (Filesystem { devices, .. }, Device { number, .. })
        | (Device { number, .. }, Filesystem { devices, .. }) => devices
            .contains(number)
            .then_some(Overlap::DeviceUnderFilesystem),
        (Device { number, .. }, Device { number: other, .. }) if number == other => {
            Some(Overlap::SameDevice)
        }
        (
            Device { number, wwid, .. },
            Device {
                number: other,
                wwid: name,
                ..
            },
        ) => {
            if a.devices().contains(other) || b.devices().contains(number) {
                return Some(Overlap::PartOf);
            }
            (wwid.is_some() && wwid == name).then_some(Overlap::SameWwid)
        }
    }
}

fn roots_overlap(a: &Path, b: &Path) -> Option<Overlap> {
    if a == b {
        return Some(Overlap::SameFilesystemRoot);
    }
    (a.starts_with(b) || b.starts_with(a)).then_some(Overlap::Nested)
}

#[cfg(test)]
mod tests;
