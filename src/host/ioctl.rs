//! Wrappers of the ioctls that read facts about devices and filesystems. None of them writes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// A filesystem's UUID.
pub type Uuid = [u8; 16];

mod raw {
    //! Numbers and layouts from `linux/fs.h`, `linux/btrfs.h`, `linux/loop.h`, `xfs/xfs_fs.h`.

    nix::ioctl_read!(block_size_bytes, 0x12, 114, u64);
    nix::ioctl_read_bad!(block_read_only, 0x125E, i32);
    nix::ioctl_read!(generic_uuid, 0x15, 0, GenericUuid);
    nix::ioctl_read!(xfs_geometry, b'X', 124, XfsGeometry);
    nix::ioctl_read!(btrfs_info, 0x94, 31, BtrfsInfo);
    nix::ioctl_read_bad!(loop_status, 0x4C05, LoopStatus);
    // The header alone is counted in the request number; the 16 bytes follow it.
    nix::ioctl_readwrite_bad!(ext4_uuid, nix::request_code_read!(b'f', 44, 8), Ext4Uuid);

    #[repr(C)]
    #[derive(Default)]
    pub struct GenericUuid {
        pub length: u8,
        pub uuid: [u8; 16],
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct Ext4Uuid {
        pub length: u32,
        pub flags: u32,
        pub uuid: [u8; 16],
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct XfsGeometry {
        pub sizes: [u32; 8],
        pub extents: [u64; 4],
        pub uuid: [u8; 16],
        pub rest: [u32; 8],
    }

    #[repr(C)]
    pub struct BtrfsInfo {
        pub max_id: u64,
        pub devices: u64,
        pub fsid: [u8; 16],
        pub sizes: [u32; 3],
        pub checksum: [u16; 2],
        pub flags: u64,
        pub generation: u64,
        pub metadata_uuid: [u8; 16],
        pub reserved: [u8; 944],
    }

    #[repr(C)]
    pub struct LoopStatus {
        pub device: u64,
        pub inode: u64,
        pub rdevice: u64,
        pub rest: [u8; 208],
    }
}

/// A block device's size in bytes.
#[expect(unsafe_code, reason = "nix has no wrapper for BLKGETSIZE64")]
pub fn block_size_bytes(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: BLKGETSIZE64 writes one u64.
    unsafe { raw::block_size_bytes(fd.as_fd().as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// Whether a block device is read-only.
#[expect(unsafe_code, reason = "nix has no wrapper for BLKROGET")]
pub fn block_read_only(fd: impl AsFd) -> io::Result<bool> {
    let mut flag = 0;
    // SAFETY: BLKROGET writes one int.
    unsafe { raw::block_read_only(fd.as_fd().as_raw_fd(), &raw mut flag) }?;
    Ok(flag != 0)
}

/// The UUID of any filesystem that sets it in its superblock (Linux 6.9 and later).
#[expect(unsafe_code, reason = "nix has no wrapper for FS_IOC_GETFSUUID")]
pub fn generic_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    let mut answer = raw::GenericUuid::default();
    // SAFETY: FS_IOC_GETFSUUID writes one `struct fsuuid2`, which `answer` has the layout of.
    let result = unsafe { raw::generic_uuid(fd.as_fd().as_raw_fd(), &raw mut answer) };
    Ok(supported(result)?
        .filter(|()| usize::from(answer.length) == answer.uuid.len())
        .map(|()| answer.uuid))
}

/// The UUID of ext2, ext3 or ext4 (Linux 6.0 and later).
#[expect(unsafe_code, reason = "nix has no wrapper for EXT4_IOC_GETFSUUID")]
pub fn ext4_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    let mut answer = raw::Ext4Uuid {
        length: 16,
        ..Default::default()
    };
    // SAFETY: EXT4_IOC_GETFSUUID writes `length` bytes, the size of `uuid`.
    let result = unsafe { raw::ext4_uuid(fd.as_fd().as_raw_fd(), &raw mut answer) };
    Ok(supported(result)?.map(|()| answer.uuid))
}

/// The UUID of XFS.
#[expect(unsafe_code, reason = "nix has no wrapper for XFS_IOC_FSGEOMETRY_V4")]
pub fn xfs_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    let mut answer = raw::XfsGeometry::default();
    // SAFETY: XFS_IOC_FSGEOMETRY_V4 writes 112 bytes, which `answer` has the layout of.
    let result = unsafe { raw::xfs_geometry(fd.as_fd().as_raw_fd(), &raw mut answer) };
    Ok(supported(result)?.map(|()| answer.uuid))
}

/// The UUIDs of a btrfs filesystem.
pub struct Btrfs {
    /// The name of its directory in `/sys/fs/btrfs`. The second of two mounted clones gets a temporary one, so
    /// it is not an identity.
    pub fsid: Uuid,
    /// The UUID on disk. `None` before Linux 5.11.
    pub metadata_uuid: Option<Uuid>,
}

/// Reads the UUIDs of a btrfs filesystem.
#[expect(unsafe_code, reason = "nix has no wrapper for BTRFS_IOC_FS_INFO")]
pub fn btrfs(fd: impl AsFd) -> io::Result<Option<Btrfs>> {
    const METADATA_UUID: u64 = 1 << 2;
    let mut answer = raw::BtrfsInfo {
        max_id: 0,
        devices: 0,
        fsid: [0; 16],
        sizes: [0; 3],
        checksum: [0; 2],
        flags: METADATA_UUID,
        generation: 0,
        metadata_uuid: [0; 16],
        reserved: [0; 944],
    };
    // SAFETY: BTRFS_IOC_FS_INFO writes 1024 bytes, which `answer` has the layout of.
    let result = unsafe { raw::btrfs_info(fd.as_fd().as_raw_fd(), &raw mut answer) };
    Ok(supported(result)?.map(|()| Btrfs {
        fsid: answer.fsid,
        metadata_uuid: (answer.flags & METADATA_UUID != 0).then_some(answer.metadata_uuid),
    }))
}

/// The file behind a loop device.
pub struct LoopBacking {
    /// Its `st_dev`.
    pub dev: u64,
    /// Its inode.
    pub inode: u64,
    /// Its `st_rdev`: the device, if it is a device node; 0 for a regular file.
    pub rdev: u64,
}

/// The file behind a loop device, or behind the disk of its partition.
#[expect(unsafe_code, reason = "nix has no wrapper for LOOP_GET_STATUS64")]
pub fn loop_backing(fd: impl AsFd) -> io::Result<Option<LoopBacking>> {
    let mut answer = raw::LoopStatus {
        device: 0,
        inode: 0,
        rdevice: 0,
        rest: [0; 208],
    };
    // SAFETY: LOOP_GET_STATUS64 writes 232 bytes, which `answer` has the layout of.
    let result = unsafe { raw::loop_status(fd.as_fd().as_raw_fd(), &raw mut answer) };
    Ok(supported(result)?.map(|()| LoopBacking {
        dev: answer.device,
        inode: answer.inode,
        rdev: answer.rdevice,
    }))
}

/// `None` where the driver does not support the ioctl.
fn supported(result: nix::Result<i32>) -> io::Result<Option<()>> {
    match result {
        Ok(_) => Ok(Some(())),
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_match_the_kernel() {
        assert_eq!(size_of::<raw::GenericUuid>(), 17);
        assert_eq!(size_of::<raw::Ext4Uuid>(), 24);
        assert_eq!(size_of::<raw::XfsGeometry>(), 112);
        assert_eq!(size_of::<raw::BtrfsInfo>(), 1024);
        assert_eq!(size_of::<raw::LoopStatus>(), 232);
    }
}
