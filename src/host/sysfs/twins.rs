//! Disks that the kernel shows twice: multipath without device-mapper, and loop devices over one file.

use std::collections::BTreeSet;
use std::io;

use super::{DeviceFacts, Sysfs, device_number};
use crate::host::device::{Device, OpenError};
use crate::host::mounts::DeviceNumber;

impl Sysfs {
    /// Other disks with the same bytes as one of the devices that a volume lies on: further paths to the disk
    /// without a multipath device over them, and loop devices over the same part of a file. The kernel does not
    /// relate them, so a user of one does not make an exclusive open of the other fail.
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
        for other in self.disks()? {
            // The volume's own devices, and others on the same disks, are not second paths. An empty disk has no
            // bytes to share.
            let is_own = |disk: &DeviceFacts| other.below.contains(&disk.number);
            if other.size == Some(0) || disks.iter().any(is_own) {
                continue;
            }
            for disk in &disks {
                if is_same_disk(disk, other) || self.share_a_file(disk, other)? {
                    twins.push(other.clone());
                    break;
                }
            }
        }
        twins.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(twins)
    }

    /// Whether a disk is claimed, in any mount namespace: by a mount of it or of a partition, swap, LVM, md,
    /// device-mapper, or another exclusive open.
    ///
    /// # Errors
    /// When the disk cannot be opened.
    pub fn is_claimed(&self, disk: &DeviceFacts) -> io::Result<bool> {
        let node = self.dev.join(disk.name.replace('!', "/"));
        match Device::open_exclusive_readonly(&node) {
            Ok(device) if device.number() == disk.number => Ok(false),
            Err(OpenError::InUse { .. }) => Ok(true),
            Ok(_) => {
                let text = format!("{} is another device", node.display());
                Err(io::Error::other(text))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// All disks.
    fn disks(&self) -> io::Result<&[DeviceFacts]> {
        if let Some(disks) = self.disks.get() {
            return Ok(disks);
        }
        let mut disks = Vec::new();
        for dir in self.block_dirs()? {
            // A path of a multipath NVMe disk has no number.
            let Ok(number) = device_number(&dir) else {
                continue;
            };
            match self.device(number) {
                Ok(disk) => disks.push(disk),
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.disks.get_or_init(|| disks))
    }

    /// Whether both are loop devices, over parts of one file that have bytes in common.
    fn share_a_file(&self, one: &DeviceFacts, other: &DeviceFacts) -> io::Result<bool> {
        let (Some(path), Some(path_of_other)) = (&one.loop_backing, &other.loop_backing) else {
            return Ok(false);
        };
        let end = |it: &DeviceFacts| it.loop_offset.saturating_add(it.size.unwrap_or(u64::MAX));
        if one.loop_offset >= end(other) || other.loop_offset >= end(one) {
            return Ok(false);
        }
        let file_of = |device| Ok::<_, io::Error>(self.loop_of(device)?.and_then(|it| it.backing));
        Ok(match (file_of(one)?, file_of(other)?) {
            (Some(file), Some(other)) => file.is_same(&other),
            // Without access to the devices: the paths may belong to two mount namespaces.
            (None, None) => false,
            _ => path == path_of_other,
        })
    }
}

/// Whether two disks have the same world-wide name. Serial numbers do not count: some machines give all disks
/// the same.
fn is_same_disk(one: &DeviceFacts, other: &DeviceFacts) -> bool {
    let of_serial = |wwid: &String| wwid.starts_with("serial.") || wwid.starts_with("udev.");
    let is_world_wide = one.wwid.as_ref().is_some_and(|wwid| !of_serial(wwid));
    is_world_wide && one.wwid == other.wwid && one.size == other.size
}
