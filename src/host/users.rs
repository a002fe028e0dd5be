//! Finds the users of a volume, and describes them. Not every user of a device can be found: a journal device, for
//! example, names no filesystem. The exclusive open of the device fails all the same.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;

use super::Machine;
use super::filesystem::{FsRoot, may_lie_on};
use super::mounts::{DeviceNumber, Mount, MountTable};
use super::sysfs::DeviceFacts;
use super::system::swaps;
use crate::escape::{quoted, tenants_path};

/// The visible user of a device, of a partition of it, or of its disk.
///
/// # Errors
/// When `/sys` does not answer.
pub fn device_user(facts: &DeviceFacts, machine: &Machine) -> io::Result<Option<String>> {
    let Machine { mounts, sysfs, .. } = machine;
    // A disk is in use if one of its partitions is, and a partition if its disk is.
    let through = sysfs.writable_through(facts.number)?;
    for number in &through {
        let facts = sysfs.device(*number)?;
        let DeviceFacts { name, holders, .. } = &*facts;
        if let Some(mount) = mounts.of_device(*number) {
            let point = quoted(mount.point.as_os_str().as_encoded_bytes());
            return Ok(Some(format!("{name} is mounted on {point}")));
        }
        if let Some(holder) = holders.first() {
            return Ok(Some(held_by(name, holder)));
        }
    }
    // A loop device over it does not make an exclusive open fail.
    let loops = sysfs.loops_over(&through)?;
    Ok(loops.first().map(|name| format!("{name} lies on it")))
}

/// Names the holder, and how to detach it: the host may have activated LVM or RAID that a tenant wrote to a raw device.
fn held_by(device: &str, holder: &str) -> String {
    let command = match holder {
        dm if dm.starts_with("dm-") => "dmsetup remove",
        md if md.starts_with("md") => "mdadm --stop",
        _ => return format!("{device} is held by {holder}"),
    };
    format!(
        "{device} is held by {holder}; if the host activated it from a tenant's data: {command} /dev/{holder}"
    )
}

/// Describes what has claimed the device at a path, a partition of it, or its disk, for messages.
pub fn claimed_by(path: &Path, machine: &Machine) -> String {
    known_claim(path, machine).unwrap_or_else(|| {
        "it is mounted (perhaps in another namespace), swap, a journal device, or part of btrfs, LVM or RAID".into()
    })
}

fn known_claim(path: &Path, machine: &Machine) -> Option<String> {
    let sysfs = &machine.sysfs;
    let facts = sysfs.device(block_device(path)?).ok()?;
    if let Some(user) = device_user(&facts, machine).ok()? {
        return Some(user);
    }
    let devices = sysfs.writable_through(facts.number).ok()?;
    let is_one = |path: &PathBuf| block_device(path).is_some_and(|it| devices.contains(&it));
    if let Some(path) = swaps().ok()?.iter().find(|path| is_one(path)) {
        return Some(format!("{} is swap", path.display()));
    }
    let uuid = sysfs.btrfs_over(&devices)?;
    Some(format!("a member of the mounted btrfs filesystem {uuid}"))
}

/// The block device that a path leads to.
fn block_device(path: &Path) -> Option<DeviceNumber> {
    let facts = fs::metadata(path).ok()?;
    let is_block_device = facts.file_type().is_block_device();
    is_block_device.then(|| DeviceNumber::from_rdev(facts.rdev()))
}

/// A loop device over a file in a filesystem volume, in words. [`super::sysfs::Sysfs::loops_over`] lists those over a
/// device.
///
/// The driver reports the file's filesystem, not its directory. If the volume is a directory of a filesystem, the
/// path decides. That misses a file whose path is from another mount namespace.
///
/// # Errors
/// When `/sys` does not answer.
pub fn loop_in(volume: &FsRoot, machine: &Machine) -> io::Result<Option<String>> {
    let (mount, facts) = (volume.mount(), fstat(volume.as_fd())?);
    let is_whole = match &*mount.fs_type {
        // Each subvolume has an `st_dev` of its own, and a root with this inode.
        "btrfs" => facts.st_ino == 256,
        _ => mount.root == Path::new("/"),
    };
    let whole = is_whole.then(|| DeviceNumber::from_rdev(facts.st_dev));
    let mut loops = machine.sysfs.loops()?.iter();
    let found = loops.find(|it| is_loop_in(it, mount, whole, &machine.mounts));
    Ok(found.map(|it| in_words(it)))
}

fn in_words(device: &DeviceFacts) -> String {
    let file = device.loop_backing.clone().unwrap_or_default();
    let file = tenants_path(file.as_os_str().as_encoded_bytes());
    format!("{} is a loop device over {file} in it", device.name)
}

/// `whole` is the number that only files of the volume have.
fn is_loop_in(
    device: &DeviceFacts,
    volume: &Mount,
    whole: Option<DeviceNumber>,
    mounts: &MountTable,
) -> bool {
    let lies_on = device.loop_inode.map(|it| DeviceNumber::from_rdev(it.dev));
    if lies_on.is_some() && lies_on == whole {
        return true;
    }
    if lies_on.is_some_and(|on| !may_lie_on(volume, on)) {
        return false;
    }
    let file = device.loop_backing.as_deref();
    let path = file.and_then(|file| {
        let through = mounts.holding(file);
        through.filter(|mount| mount.device == volume.device)?.path_in_fs(file)
    });
    path.is_some_and(|path| path.starts_with(&volume.root))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::makedev;

    use super::*;
    use crate::host::ioctl::LoopBacking;

    const HOST: &str = "\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:16 / /mnt/disks/whole rw - ext4 /dev/sdb rw
22 20 8:1 /data/one /mnt/disks/one rw - ext4 /dev/sda1 rw
23 20 0:60 / /mnt/disks/subvolume rw - btrfs /dev/sdc rw
";

    #[test]
    fn loop_device_is_found_by_filesystem_and_path_of_its_file() {
        let mounts = MountTable::parse(HOST.as_bytes());
        let found = |point: &str, file: &str, lies_on: Option<&str>| {
            let on = lies_on.and_then(DeviceNumber::parse);
            let it = DeviceFacts {
                loop_backing: Some(file.into()),
                loop_inode: on.map(|on| LoopBacking {
                    dev: makedev(on.major.into(), on.minor.into()),
                    inode: 7,
                    rdev: 0,
                }),
                ..DeviceFacts::default()
            };
            let whole = match point {
                "/mnt/disks/whole" => DeviceNumber::parse("8:16"),
                "/mnt/disks/subvolume" => DeviceNumber::parse("0:61"),
                _ => None,
            };
            is_loop_in(&it, mounts.at(Path::new(point)).unwrap(), whole, &mounts)
        };
        let whole = "/mnt/disks/whole";
        assert!(found(whole, "/a/container/says/image", Some("8:16")));
        assert!(!found(whole, "/mnt/disks/whole/image", Some("8:1")));
        assert!(found(whole, "/mnt/disks/whole/image", None));
        assert!(!found(whole, "/mnt/disks/image", None));
        let one = "/mnt/disks/one";
        assert!(found(one, "/mnt/disks/one/image", Some("8:1")));
        assert!(found(one, "/data/one/image (deleted)", Some("8:1")));
        assert!(!found(one, "/data/two/image", Some("8:1")));
        assert!(!found(one, "/data/one/image", Some("8:16")));
        // btrfs: its number in the mount table is not that of its files.
        let subvolume = "/mnt/disks/subvolume";
        assert!(found(subvolume, "/a/container/says/image", Some("0:61")));
        assert!(!found(subvolume, "/a/container/says/image", Some("0:62")));
        assert!(found(subvolume, "/mnt/disks/subvolume/image", Some("0:62")));
    }

    #[test]
    fn paths_in_messages_are_escaped() {
        let it = DeviceFacts {
            name: "loop0".into(),
            loop_backing: Some("/x\u{1b}[2J".into()),
            ..DeviceFacts::default()
        };
        let words = in_words(&it);
        assert_eq!(words, r"loop0 is a loop device over “/x\u{1b}[2J” in it");
    }
}
