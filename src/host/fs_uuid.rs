//! Reads a filesystem's UUID through a descriptor.

use std::io;
use std::os::fd::BorrowedFd;

use super::ioctl::{self, Uuid};

/// Filesystems with a UUID on disk. Others (tmpfs, overlay) generate one at each mount, which does not identify
/// the volume.
const FS_WITH_UUID: [&str; 7] = ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"];

/// The UUID on disk; `None` where there is none or the kernel cannot report it.
pub fn on_disk(fd: BorrowedFd<'_>, fs_type: &str) -> io::Result<Option<String>> {
    if !FS_WITH_UUID.contains(&fs_type) {
        return Ok(None);
    }
    let uuid = if fs_type == "btrfs" {
        // The generic ioctl returns the temporary `fsid` of a mounted clone.
        ioctl::btrfs(fd)?.map(|btrfs| btrfs.metadata_uuid.unwrap_or(btrfs.fsid))
    } else if let Some(uuid) = ioctl::generic_uuid(fd)? {
        Some(uuid)
    } else {
        match fs_type {
            "ext2" | "ext3" | "ext4" => ioctl::ext4_uuid(fd)?,
            "xfs" => ioctl::xfs_uuid(fd)?,
            _ => None,
        }
    };
    Ok(uuid.filter(|uuid| *uuid != [0; 16]).map(|uuid| text(&uuid)))
}

/// The name of a btrfs filesystem's directory in `/sys/fs/btrfs`.
pub fn btrfs_sysfs_name(fd: BorrowedFd<'_>) -> io::Result<Option<String>> {
    Ok(ioctl::btrfs(fd)?.map(|btrfs| text(&btrfs.fsid)))
}

/// As `blkid` prints it.
fn text(uuid: &Uuid) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*uuid));
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use support::{LoopDevice, Sandbox, skip};

    use super::*;

    /// On a kernel with the generic ioctl, no other test reaches the old ones.
    #[test]
    fn old_ioctls_report_the_same_uuid() {
        let Some(sandbox) = Sandbox::enter() else {
            return;
        };
        for (fs_type, size) in [("ext4", 16 << 20), ("xfs", 300 << 20)] {
            let device = match LoopDevice::formatted(sandbox.path(), size, fs_type) {
                Ok(device) => device,
                Err(error) => {
                    skip(&format!("no {fs_type}: {error}"));
                    continue;
                }
            };
            let root = File::open(sandbox.mount(device.path(), fs_type, fs_type).unwrap()).unwrap();
            let old = if fs_type == "xfs" {
                ioctl::xfs_uuid
            } else {
                ioctl::ext4_uuid
            };
            let uuid = old(root.as_fd()).unwrap().map(|uuid| text(&uuid));
            assert!(uuid.is_some(), "{fs_type}");
            assert_eq!(uuid, on_disk(root.as_fd(), fs_type).unwrap());
        }
    }

    #[test]
    fn uuid_generated_at_mount_time_is_ignored() {
        let Some(sandbox) = Sandbox::enter() else {
            return;
        };
        let root = File::open(sandbox.tmpfs("ram", "size=1m").unwrap()).unwrap();
        assert_eq!(on_disk(root.as_fd(), "tmpfs").unwrap(), None);
        // An unsupported ioctl is not an error.
        assert_eq!(ioctl::ext4_uuid(root.as_fd()).unwrap(), None);
    }

    #[test]
    fn a_uuid_is_written_as_blkid_writes_it() {
        let bytes = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(text(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
