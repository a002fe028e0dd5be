//! Disks that are there twice.

use std::collections::BTreeSet;
use std::io;

use super::{DeviceFacts, Sysfs, device_number, number_in};
use crate::host::device::{Device, OpenError};
use crate::host::mounts::DeviceNumber;

impl Sysfs {
    /// Other disks that have the same bytes as one of the devices that a volume lies on: further paths
    /// to the disk, without a multipath device over them, and loop devices over the same part of a file.
    /// To the kernel they are strangers: who uses one is not in the way of an exclusive open of the other.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` does not answer.
    pub fn twins(&self, below: &BTreeSet<DeviceNumber>) -> io::Result<Vec<DeviceFacts>> {
        let below = below.iter().map(|number| self.device(*number));
        let mut disks = below.collect::<io::Result<Vec<_>>>()?;
        disks.retain(|it| it.disk == it.number);
        let mut twins = Vec::new();
        if disks.is_empty() {
            return Ok(twins);
        }
        for dir in self.block_dirs()? {
            // A path of a multipath NVMe disk has no number, and what has no size has no bytes.
            let Ok(number) = device_number(&dir) else {
                continue;
            };
            if number_in(&dir.join("size")) == Some(0) {
                continue;
            }
            let other = match self.device(number) {
                Ok(other) => other,
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // What the volume lies on, and what lies on the same disks, is not a second path.
            if disks.iter().any(|disk| other.below.contains(&disk.number)) {
                continue;
            }
            for disk in &disks {
                if is_same_disk(disk, &other) || self.share_a_file(disk, &other)? {
                    twins.push(other);
                    break;
                }
            }
        }
        twins.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(twins)
    }

    /// Whether the kernel has a disk claimed for one user, in whatever mount namespace: a mount of it or
    /// of a partition, swap, LVM, md, device-mapper, another exclusive open.
    ///
    /// # Errors
    /// When the disk cannot be opened.
    pub fn is_claimed(&self, disk: &DeviceFacts) -> io::Result<bool> {
        let node = self.dev.join(disk.name.replace('!', "/"));
        match Device::open_exclusive_readonly(&node) {
            Ok(device) if device.number() == disk.number => Ok(false),
            Err(OpenError::ReadOnly { .. }) => Ok(false),
            Err(OpenError::InUse { .. }) => Ok(true),
            Ok(_) => Err(io::Error::other(format!(
                "{} is another device",
                node.display()
            ))),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Whether both are loop devices, over parts of one file that have bytes in common.
    fn share_a_file(&self, one: &DeviceFacts, other: &DeviceFacts) -> io::Result<bool> {
        let (Some(path), Some(other_path)) = (&one.loop_backing, &other.loop_backing) else {
            return Ok(false);
        };
        let end = |it: &DeviceFacts| it.loop_offset.saturating_add(it.size.unwrap_or(u64::MAX));
        if one.loop_offset >= end(other) || other.loop_offset >= end(one) {
            return Ok(false);
        }
        let backing = |it: &DeviceFacts| {
            let dir = self.dir(it.number)?;
            io::Result::Ok(self.loop_backing(&dir))
        };
        Ok(match (backing(one)?, backing(other)?) {
            (Some(file), Some(other)) if file.rdev == 0 || other.rdev == 0 => {
                (file.dev, file.inode) == (other.dev, other.inode)
            }
            (Some(node), Some(other)) => node.rdev == other.rdev,
            // Paths of two mount namespaces, perhaps, where no driver may be asked.
            (None, None) => false,
            _ => path == other_path,
        })
    }
}

/// Whether a world-wide name says that two disks are one. Disks of some machines have the same serial number.
fn is_same_disk(one: &DeviceFacts, other: &DeviceFacts) -> bool {
    let name = |disk: &DeviceFacts| {
        let of_serial = |wwid: &String| wwid.starts_with("serial.") || wwid.starts_with("udev.");
        disk.wwid.clone().filter(|wwid| !of_serial(wwid))
    };
    name(one).is_some() && name(one) == name(other) && one.size == other.size
}
