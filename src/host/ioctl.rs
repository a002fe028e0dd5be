//! The ioctls that read facts about devices and filesystems. None of them writes.
//!
//! Numbers and layouts are those of `linux/fs.h`, `linux/btrfs.h`, `linux/loop.h` and `xfs/xfs_fs.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::{libc, request_code_read};

/// A filesystem's UUID.
pub type Uuid = [u8; 16];

const BLKGETSIZE64: libc::Ioctl = request_code_read!(0x12, 114, 8);
const BLKROGET: libc::Ioctl = 0x125E;
const FS_IOC_GETFSUUID: libc::Ioctl = request_code_read!(0x15, 0, 17);
/// The header alone is counted in the number; the 16 bytes of the UUID follow it.
const EXT4_IOC_GETFSUUID: libc::Ioctl = request_code_read!(b'f', 44, 8);
const XFS_IOC_FSGEOMETRY_V4: libc::Ioctl = request_code_read!(b'X', 124, 112);
const BTRFS_IOC_FS_INFO: libc::Ioctl = request_code_read!(0x94, 31, 1024);
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// The memory that the kernel fills: a structure of `N` bytes.
#[repr(C, align(8))]
struct Answer<const N: usize>([u8; N]);

impl<const N: usize> Answer<N> {
    /// The field at an offset.
    fn field<const M: usize>(&self, offset: usize) -> [u8; M] {
        std::array::from_fn(|at| self.0[offset + at])
    }

    fn number(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.field(offset))
    }
}

/// Calls an ioctl of this module, all of which read and write up to `N` bytes at `answer`.
#[expect(unsafe_code, reason = "nix has no wrappers for these ioctls")]
fn call<const N: usize>(
    fd: impl AsFd,
    request: libc::Ioctl,
    answer: [u8; N],
) -> nix::Result<Answer<N>> {
    let mut answer = Answer(answer);
    // SAFETY: `N` is the size of the request's structure, and `answer` is aligned for its fields.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut answer) };
    Errno::result(result).map(|_| answer)
}

/// The same; `None` where the filesystem or device does not support it.
fn call_if_supported<const N: usize>(
    fd: impl AsFd,
    request: libc::Ioctl,
    answer: [u8; N],
) -> io::Result<Option<Answer<N>>> {
    match call(fd, request, answer) {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A block device's size in bytes.
pub fn block_size_bytes(fd: impl AsFd) -> io::Result<u64> {
    Ok(call(fd, BLKGETSIZE64, [0; 8])?.number(0))
}

/// Whether a block device is read-only.
pub fn block_read_only(fd: impl AsFd) -> io::Result<bool> {
    Ok(call(fd, BLKROGET, [0; 4])?.0 != [0; 4])
}

/// The UUID of any filesystem that sets it in its superblock (Linux 6.9 and later).
pub fn generic_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    let answer = call_if_supported(fd, FS_IOC_GETFSUUID, [0; 17])?;
    // The first byte is the UUID's length.
    Ok(answer.filter(|it| it.0[0] == 16).map(|it| it.field(1)))
}

/// The UUID of ext2, ext3 or ext4 (Linux 6.0 and later).
pub fn ext4_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    // The requested length, flags, and the UUID.
    let mut request = [0; 24];
    request[..4].copy_from_slice(&16_u32.to_ne_bytes());
    let answer = call_if_supported(fd, EXT4_IOC_GETFSUUID, request)?;
    Ok(answer.map(|it| it.field(8)))
}

/// The UUID of XFS.
pub fn xfs_uuid(fd: impl AsFd) -> io::Result<Option<Uuid>> {
    let answer = call_if_supported(fd, XFS_IOC_FSGEOMETRY_V4, [0; 112])?;
    Ok(answer.map(|it| it.field(64)))
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
pub fn btrfs(fd: impl AsFd) -> io::Result<Option<Btrfs>> {
    const FLAGS: usize = 48;
    const METADATA_UUID: u64 = 1 << 2;
    let mut request = [0; 1024];
    request[FLAGS..FLAGS + 8].copy_from_slice(&METADATA_UUID.to_ne_bytes());
    let answer = call_if_supported(fd, BTRFS_IOC_FS_INFO, request)?;
    Ok(answer.map(|it| Btrfs {
        fsid: it.field(16),
        metadata_uuid: (it.number(FLAGS) & METADATA_UUID != 0).then(|| it.field(64)),
    }))
}

/// The file behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopBacking {
    /// Its `st_dev`.
    pub dev: u64,
    /// Its inode.
    pub inode: u64,
    /// Its `st_rdev`: the device, if it is a device node; 0 for a regular file.
    pub rdev: u64,
}

impl LoopBacking {
    /// Whether both are the same file, or nodes of the same device.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_file = (self.dev, self.inode) == (other.dev, other.inode);
        self.rdev == other.rdev && (self.rdev != 0 || is_same_file)
    }
}

/// The file behind a loop device, or behind the disk of its partition.
pub fn loop_backing(fd: impl AsFd) -> io::Result<Option<LoopBacking>> {
    let answer = call_if_supported(fd, LOOP_GET_STATUS64, [0; 232])?;
    Ok(answer.map(|it| LoopBacking {
        dev: it.number(0),
        inode: it.number(8),
        rdev: it.number(16),
    }))
}
