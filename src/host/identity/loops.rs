//! What a loop device lies on. Files on two filesystems can have the same path and inode number.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use super::disk_fields;
use crate::host::ioctl::{self, LoopBacking};
use crate::host::mounts::{DeviceNumber, Mount, MountTable};
use crate::host::sysfs::Sysfs;

/// The identity of the device behind a loop device, or the UUID of the filesystem that has its file. `None`: it has none,
/// or the filesystem is not mounted here.
pub(super) fn below(
    backing: &LoopBacking,
    sysfs: &Sysfs,
    mounts: &MountTable,
) -> io::Result<Option<String>> {
    if backing.rdev != 0 {
        let facts = sysfs.device(DeviceNumber::from_rdev(backing.rdev))?;
        let fields = disk_fields(&facts);
        return Ok((!fields.0.is_empty()).then(|| fields.to_string()));
    }
    let number = DeviceNumber::from_rdev(backing.dev);
    let mut mounts = mounts.iter().filter(|mount| mount.device == number);
    Ok(mounts.find_map(|mount| uuid(mount, backing.dev)))
}

/// The UUID of a mounted filesystem, unless another mount hides it.
fn uuid(mount: &Mount, dev: u64) -> Option<String> {
    // Another type may not answer.
    if !ioctl::has_uuid(&mount.fs_type) {
        return None;
    }
    let point = File::open(&mount.point).ok()?;
    let is_its_own = point.metadata().ok()?.dev() == dev;
    is_its_own.then(|| ioctl::uuid_of_superblock(point.as_fd(), &mount.fs_type).ok()?)?
}
