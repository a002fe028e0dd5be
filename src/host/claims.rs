//! Finds the user that has claimed a block device, for messages only. A failed exclusive open does not name it, and
//! not every user can be found: a journal device, for example, names no filesystem.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mounts::{DeviceNumber, unescape};
use super::sysfs::Sysfs;

/// Describes what has claimed the device at a path, a partition of it, or its disk.
#[must_use]
pub fn claimed_by(path: &Path, sysfs: &Sysfs) -> String {
    known_claim(path, sysfs).unwrap_or_else(|| {
        "it is mounted (perhaps in another namespace), swap, a journal device, or part of btrfs, LVM or RAID".into()
    })
}

fn known_claim(path: &Path, sysfs: &Sysfs) -> Option<String> {
    let number = DeviceNumber::from_rdev(fs::metadata(path).ok()?.rdev());
    let devices = sysfs.writable_through(number).ok()?;
    let holder = devices.iter().find_map(|number| {
        let facts = sysfs.device(*number).ok()?;
        let holder = facts.holders.first()?;
        Some(format!("{} is held by {holder}", facts.name))
    });
    if holder.is_some() {
        return holder;
    }
    let is_one = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|facts| {
            facts.file_type().is_block_device()
                && devices.contains(&DeviceNumber::from_rdev(facts.rdev()))
        })
    };
    if let Some(path) = swaps().ok()?.iter().find(|path| is_one(path)) {
        return Some(format!("{} is swap", path.display()));
    }
    let uuid = sysfs.btrfs_over(&devices)?;
    Some(format!("a member of the mounted btrfs filesystem {uuid}"))
}

/// The files and devices that the machine swaps to.
///
/// # Errors
/// When `/proc` does not answer.
pub(super) fn swaps() -> io::Result<Vec<PathBuf>> {
    match fs::read("/proc/swaps") {
        Ok(table) => Ok(parse_swaps(&table)),
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Each line begins with a path, except the first, a heading.
fn parse_swaps(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    let paths = paths.filter(|path| path.starts_with(b"/"));
    paths.map(|path| unescape(path).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_devices_and_files_are_read() {
        let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
            /swap\\040file                           file\t\t1024\t\t0\t\t-3\n\
            /dev/a\\040b\\134c partition 1 0 -4\n";
        let expected = ["/dev/sda2", "/swap file", "/dev/a b\\c"];
        assert_eq!(parse_swaps(text), expected.map(PathBuf::from));
        assert!(parse_swaps(b"").is_empty());
    }
}
