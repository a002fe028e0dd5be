//! The ioctls that read facts about devices and filesystems. Only [`set_inode`] writes.
//!
//! Numbers and layouts are those of `linux/fs.h`, `linux/btrfs.h`, `linux/loop.h` and `xfs/xfs_fs.h`.

use std::io::{self, ErrorKind::Unsupported};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::{libc, request_code_read, request_code_write};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use serde::{Deserialize, Serialize};

type Uuid = [u8; 16];

const FS_IOC_GETFSUUID: libc::Ioctl = request_code_read!(0x15, 0, 17);
/// The header alone is counted in the number; the 16 bytes of the UUID follow it.
const EXT4_IOC_GETFSUUID: libc::Ioctl = request_code_read!(b'f', 44, 8);
const XFS_IOC_FSGEOMETRY_V4: libc::Ioctl = request_code_read!(b'X', 124, 112);
const BTRFS_IOC_FS_INFO: libc::Ioctl = request_code_read!(0x94, 31, 1024);

/// The name of the filesystem's directory in `/sys/fs/btrfs`. The second of two mounted clones gets a temporary one,
/// so it is not an identity.
const BTRFS_FSID: usize = 16;
const BTRFS_FLAGS: usize = 48;
/// The flag of the UUID on disk: since Linux 5.11.
const BTRFS_HAS_METADATA_UUID: u64 = 1 << 2;
const BTRFS_METADATA_UUID: usize = 64;

const BLKROGET: libc::Ioctl = 0x125E;
const BLKGETSIZE64: libc::Ioctl = request_code_read!(0x12, 114, size_of::<usize>());
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

const FS_IOC_FSGETXATTR: libc::Ioctl = request_code_read!(b'X', 31, 28);
const FS_IOC_FSSETXATTR: libc::Ioctl = request_code_write!(b'X', 32, 28);
/// The numbers of `struct fsxattr`: flags, extent size, number of extents, project, extent size of copies, padding.
type FsXattr = [u32; 7];
const FS_XFLAG_PROJINHERIT: u32 = 0x200;
/// `FS_XFLAG_*` that `chattr` and `xfs_io` change, without the immutable and append-only flags, which a cleanup clears:
/// sync, noatime, nodump, rtinherit, nosymlinks, extszinherit, nodefrag, filestream, dax and cowextsize.
const XFLAGS: u32 = 0x1_f5e0;
/// `FS_*_FL` that `chattr` changes, without the same two and the project's: those of files that are deleted, compressed,
/// synchronous, encrypted, journaled or not copied on write, and of directories.
const FLAGS: u32 = 0x4283_cccf;
/// `FS_ENCRYPT_FL`: the directory has an encryption policy.
const FS_ENCRYPT: u32 = 0x800;

/// Calls an ioctl of this module, all of which read and write a structure. Returns the structure, or `None` where the
/// filesystem or device does not support it.
#[expect(unsafe_code, reason = "nix has no wrappers for these ioctls")]
fn call<T: Copy>(fd: impl AsFd, request: libc::Ioctl, structure: T) -> io::Result<Option<T>> {
    let mut structure = structure;
    // SAFETY: `T` is an integer or an array of them, as large as the request's structure, so any bits are valid. The
    // kernel copies it, so it needs no alignment.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut structure) };
    match Errno::result(result) {
        Ok(_) => Ok(Some(structure)),
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The field at an offset.
fn field<const M: usize>(structure: &[u8], offset: usize) -> [u8; M] {
    std::array::from_fn(|at| structure[offset + at])
}

fn number(structure: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(field(structure, offset))
}

/// A block device's size in bytes. A seek to its end would wait for a discard of another process.
pub fn block_size_bytes(fd: impl AsFd) -> io::Result<u64> {
    call(fd, BLKGETSIZE64, 0_u64)?.ok_or_else(|| Errno::ENOTTY.into())
}

/// Whether a block device is read-only.
pub fn block_read_only(fd: impl AsFd) -> io::Result<bool> {
    Ok(call(fd, BLKROGET, 0_i32)?.is_some_and(|flag| flag != 0))
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
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_file = (self.dev, self.inode) == (other.dev, other.inode);
        self.rdev == other.rdev && (self.rdev != 0 || is_same_file)
    }
}

/// The file behind a loop device, or behind the disk of its partition.
pub fn loop_backing(fd: impl AsFd) -> io::Result<Option<LoopBacking>> {
    let answer: Option<[u64; 29]> = call(fd, LOOP_GET_STATUS64, [0; 29])?;
    Ok(answer.map(|[dev, inode, rdev, ..]| LoopBacking { dev, inode, rdev }))
}

/// Filesystems with a UUID on disk. Others (tmpfs, overlay) generate one at each mount, which does not identify
/// the volume.
const FS_WITH_UUID: [&str; 7] = ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"];

/// The UUID on disk; `None` where there is none or the kernel cannot report it.
pub fn uuid_on_disk(fd: BorrowedFd<'_>, fs_type: &str) -> io::Result<Option<String>> {
    if !FS_WITH_UUID.contains(&fs_type) {
        return Ok(None);
    }
    let uuid: Option<Uuid> = if fs_type == "btrfs" {
        // The generic ioctl returns the temporary `fsid` of a mounted clone.
        btrfs(fd)?.map(|info| match number(&info, BTRFS_FLAGS) & BTRFS_HAS_METADATA_UUID {
            0 => field(&info, BTRFS_FSID),
            _ => field(&info, BTRFS_METADATA_UUID),
        })
    } else {
        match generic(fd)? {
            None => of_type(fd, fs_type)?,
            uuid => uuid,
        }
    };
    Ok(uuid.filter(|uuid| *uuid != [0; 16]).map(text))
}

/// The name of a btrfs filesystem's directory in `/sys/fs/btrfs`.
pub fn btrfs_sysfs_name(fd: BorrowedFd<'_>) -> io::Result<Option<String>> {
    Ok(btrfs(fd)?.map(|info| text(field(&info, BTRFS_FSID))))
}

fn btrfs(fd: BorrowedFd<'_>) -> io::Result<Option<[u8; 1024]>> {
    let mut request = [0_u8; 1024];
    request[BTRFS_FLAGS..BTRFS_FLAGS + 8].copy_from_slice(&BTRFS_HAS_METADATA_UUID.to_ne_bytes());
    call(fd, BTRFS_IOC_FS_INFO, request)
}

/// The UUID of any filesystem that sets it in its superblock (Linux 6.9 and later).
fn generic(fd: BorrowedFd<'_>) -> io::Result<Option<Uuid>> {
    let answer = call(fd, FS_IOC_GETFSUUID, [0_u8; 17])?;
    // The first byte is the UUID's length.
    Ok(answer.filter(|it| it[0] == 16).map(|it| field(&it, 1)))
}

/// The UUID by the older ioctl of a filesystem type.
fn of_type(fd: BorrowedFd<'_>, fs_type: &str) -> io::Result<Option<Uuid>> {
    Ok(match fs_type {
        // Linux 6.0 and later: the requested length, flags, and the UUID.
        "ext2" | "ext3" | "ext4" => {
            let mut request = [0_u8; 24];
            request[..4].copy_from_slice(&16_u32.to_ne_bytes());
            call(fd, EXT4_IOC_GETFSUUID, request)?.map(|it| field(&it, 8))
        }
        "xfs" => call(fd, XFS_IOC_FSGEOMETRY_V4, [0_u8; 112])?.map(|it| field(&it, 64)),
        _ => None,
    })
}

/// The attributes of a directory's inode that its files get, without the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Inode {
    /// `FS_*_FL` of `linux/fs.h`.
    #[serde(skip_serializing_if = "is_zero")]
    pub flags: u32,
    /// `FS_XFLAG_*` of `linux/fs.h`.
    #[serde(skip_serializing_if = "is_zero")]
    pub xflags: u32,
    /// Bytes; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub extent_size: u32,
    /// The same for copies on write.
    #[serde(skip_serializing_if = "is_zero")]
    pub cow_extent_size: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Inode {
    /// Whether the directory has an encryption policy, which nothing takes off.
    pub fn is_encrypted(&self) -> bool {
        self.flags & FS_ENCRYPT != 0
    }
}

/// The attributes of a directory's inode, and its quota project; `None` where the filesystem has none.
pub fn inode(dir: BorrowedFd<'_>) -> io::Result<Option<(Inode, u32)>> {
    let found = call::<FsXattr>(dir, FS_IOC_FSGETXATTR, [0; 7])?;
    let Some([xflags, extent_size, _, project, cow_extent_size, ..]) = found else {
        return Ok(None);
    };
    let flags = match ioctl_getflags(dir) {
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => 0,
        flags => flags?.bits(),
    };
    let (flags, xflags) = (flags & FLAGS, xflags & XFLAGS);
    Ok(Some((Inode { flags, xflags, extent_size, cow_extent_size }, project)))
}

/// Sets the quota project of a directory, and the attributes of its inode, if they differ. New files in it get them; other
/// files keep theirs.
pub fn set_inode(dir: BorrowedFd<'_>, inode: Option<&Inode>, project: u32) -> io::Result<()> {
    let Some((found, _)) = self::inode(dir)? else {
        let is_none = project == 0 && inode.is_none_or(|it| *it == Inode::default());
        return is_none.then_some(()).ok_or_else(|| Unsupported.into());
    };
    let wanted = inode.unwrap_or(&found);
    if wanted.flags != found.flags {
        let others = ioctl_getflags(dir)?.bits() & !FLAGS;
        ioctl_setflags(dir, IFlags::from_bits_retain(others | wanted.flags))?;
    }
    let before: FsXattr = call(dir, FS_IOC_FSGETXATTR, [0; 7])?.ok_or(Unsupported)?;
    let [xflags, _, extents, _, _, padding @ ..] = before;
    let others = xflags & !(XFLAGS | FS_XFLAG_PROJINHERIT);
    let inherit = if project == 0 { 0 } else { FS_XFLAG_PROJINHERIT };
    let xflags = others | wanted.xflags | inherit;
    let (size, of_copies) = (wanted.extent_size, wanted.cow_extent_size);
    let request = [xflags, size, extents, project, of_copies, padding[0], padding[1]];
    if request != before {
        call(dir, FS_IOC_FSSETXATTR, request)?.ok_or(Unsupported)?;
    }
    let now = self::inode(dir)?.map(|(now, _)| now);
    if now.as_ref() == Some(wanted) {
        return Ok(());
    }
    Err(io::Error::other("the kernel keeps other flags or extent sizes"))
}

/// As `blkid` prints it.
fn text(uuid: Uuid) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(uuid));
    for dash in [20, 16, 12, 8] {
        text.insert(dash, '-');
    }
    text
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
            let uuid = of_type(root.as_fd(), fs_type).unwrap().map(text);
            assert!(uuid.is_some(), "{fs_type}");
            assert_eq!(uuid, uuid_on_disk(root.as_fd(), fs_type).unwrap());
        }
    }

    #[test]
    fn uuid_generated_at_mount_time_is_ignored() {
        let Some(sandbox) = Sandbox::enter() else {
            return;
        };
        let root = File::open(sandbox.tmpfs("ram", "size=1m").unwrap()).unwrap();
        assert_eq!(uuid_on_disk(root.as_fd(), "tmpfs").unwrap(), None);
        // An unsupported ioctl is not an error.
        assert_eq!(of_type(root.as_fd(), "ext4").unwrap(), None);
    }

    #[test]
    fn a_uuid_is_written_as_blkid_writes_it() {
        let bytes = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(text(bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
