//! Finds the user that has claimed a block device, for messages only. A failed exclusive open does not name it, and
//! not every user can be found: a journal device, for example, names no filesystem.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mounts::{DeviceNumber, unescape};
use super::sysfs::Sysfs;

/// Describes what has claimed the device at a path, a partition of it, or its disk.
#[must_use]
pub fn claimed_by(path: &Path, sysfs: &Sysfs) -> String {
    let found = || {
        let number = DeviceNumber::from_rdev(fs::metadata(path).ok()?.rdev());
        let devices = sysfs.writable_through(number).ok()?;
        holder(&devices, sysfs)
            .or_else(|| swap(&devices))
            .or_else(|| {
                let uuid = sysfs.btrfs_over(&devices)?;
                Some(format!("a member of the mounted btrfs filesystem {uuid}"))
            })
    };
    found().unwrap_or_else(|| {
        "it is mounted (perhaps in another namespace), swap, a journal device, or part of btrfs, LVM or RAID".into()
    })
}

fn holder(devices: &BTreeSet<DeviceNumber>, sysfs: &Sysfs) -> Option<String> {
    devices.iter().find_map(|number| {
        let facts = sysfs.device(*number).ok()?;
        Some(format!(
            "{} is held by {}",
            facts.name,
            facts.holders.first()?
        ))
    })
}

fn swap(devices: &BTreeSet<DeviceNumber>) -> Option<String> {
    let is_one = |path: &Path| {
        fs::metadata(path).is_ok_and(|facts| {
            facts.file_type().is_block_device()
                && devices.contains(&DeviceNumber::from_rdev(facts.rdev()))
        })
    };
    let path = swaps(&fs::read("/proc/swaps").ok()?).find(|path| is_one(path))?;
    Some(format!("{} is swap", path.display()))
}

/// The devices in the text of `/proc/swaps`. It begins with a line of headings.
fn swaps(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    text.split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            let mut words = line
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty());
            let path = words.next()?;
            (words.next()? == b"partition").then(|| unescape(path).into())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_devices_are_read_and_swap_files_are_not() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
            /swap\\040file                           file\t\t1024\t\t0\t\t-3\n\
            /dev/a\\040b\\134c partition 1 0 -4\n";
        let found: Vec<_> = swaps(text).collect();
        assert_eq!(found, [Path::new("/dev/sda2"), Path::new("/dev/a b\\c")]);
        assert_eq!(swaps(b"").count(), 0);
    }
}
