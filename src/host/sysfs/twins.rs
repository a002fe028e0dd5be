//! Disks that are there twice.

use std::io;

use super::{DeviceFacts, Sysfs, device_number};

impl Sysfs {
    /// The names of other disks that have the same bytes: further paths to the disk, without a
    /// multipath device over them, and loop devices over the same part of a file. To the kernel they
    /// are strangers: who uses one is not in the way of an exclusive open of the other.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` does not answer.
    pub fn twins(&self, device: &DeviceFacts) -> io::Result<Vec<String>> {
        let disk = self.device(device.disk)?;
        let mut twins = Vec::new();
        for dir in self.block_dirs()? {
            // A path of a multipath NVMe disk has no number.
            let Ok(number) = device_number(&dir) else {
                continue;
            };
            let other = match self.device(number) {
                Ok(other) => other,
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // What lies on it, or below it, is no stranger.
            if disk.below.contains(&number) || other.below.contains(&disk.number) {
                continue;
            }
            if disk.wwid.is_some() && disk.wwid == other.wwid || self.share_a_file(&disk, &other)? {
                twins.push(other.name);
            }
        }
        twins.sort();
        Ok(twins)
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
            // As whoever made them saw it, which is all that we are told.
            _ => path == other_path,
        })
    }
}
