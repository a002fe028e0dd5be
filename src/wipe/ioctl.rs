//! The ioctls that neither nix nor rustix wraps, and whose structures consist of 64-bit numbers.
//!
//! Numbers and layouts are those of `linux/fs.h` and `linux/btrfs.h`.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc::{self, Ioctl};
use nix::{
    Result, request_code_none, request_code_read, request_code_readwrite, request_code_write,
};

use super::dirfd::DirFd;

const BLKRRPART: Ioctl = request_code_none!(0x12, 95);
const BLKFLSBUF: Ioctl = request_code_none!(0x12, 97);
const BLKDISCARD: Ioctl = request_code_none!(0x12, 119);
const FITRIM: Ioctl = request_code_readwrite!(b'X', 121, 24);
const BTRFS_IOC_TREE_SEARCH_V2: Ioctl = request_code_readwrite!(0x94, 17, 112);
const BTRFS_IOC_SUBVOL_GETFLAGS: Ioctl = request_code_read!(0x94, 25, 8);
const BTRFS_IOC_SUBVOL_SETFLAGS: Ioctl = request_code_write!(0x94, 26, 8);

/// Calls an ioctl of this module with its structure.
#[expect(unsafe_code, reason = "nix has no wrappers for these ioctls")]
fn call(fd: impl AsFd, request: Ioctl, structure: &mut [u64]) -> Result<()> {
    // SAFETY: the functions below pass all numbers that the kernel reads and writes.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, structure.as_mut_ptr()) };
    Errno::result(result).map(drop)
}

/// Discards a range. The device decides what the range reads as afterwards.
pub fn discard(device: &File, range: Range<u64>) -> Result<()> {
    let length = range.end - range.start;
    call(device, BLKDISCARD, &mut [range.start, length])
}

/// Drops the kernel's cache of the device. Errors (no permission, not a device) are ignored: the cache is
/// coherent with our own writes.
pub fn drop_cache(device: &File) {
    let _ = call(device, BLKFLSBUF, &mut []);
}

/// Makes the kernel read the partition table again. Devices without partitions return `EINVAL`, which is
/// ignored.
pub fn reread_partitions(device: &File) {
    let _ = call(device, BLKRRPART, &mut []);
}

/// Discards the free blocks of a filesystem in a range. Returns the number of discarded bytes.
pub fn trim(root: BorrowedFd<'_>, start: u64, length: u64) -> Result<u64> {
    // The last number is the smallest part to discard.
    let mut range = [start, length, 0];
    call(root, FITRIM, &mut range)?;
    Ok(range[1])
}

/// The flags of a subvolume (btrfs), of which `dir` is the root.
pub fn subvolume_flags(dir: &DirFd) -> Result<u64> {
    let mut flags = [0];
    call(dir, BTRFS_IOC_SUBVOL_GETFLAGS, &mut flags)?;
    Ok(flags[0])
}

/// Sets the flags of a subvolume (btrfs), of which `dir` is the root.
pub fn set_subvolume_flags(dir: &DirFd, flags: u64) -> Result<()> {
    call(dir, BTRFS_IOC_SUBVOL_SETFLAGS, &mut [flags])
}

/// Returns the items (btrfs) of this type that belong to a directory, up to 64 KiB. Zeros follow the last.
pub fn items(dir: &DirFd, kind: u32) -> Result<Vec<u8>> {
    const ANY: u64 = u64::MAX;
    const ARGUMENTS: usize = 14;
    const ITEMS: u64 = 64 << 10;
    let (inode, kind) = (dir.id.inode, u64::from(kind));
    let kinds = kind << 32 | kind;
    // The tree of the directory's subvolume; the minimum and the maximum of inode, offset, transaction and type; the
    // number of items.
    let key = [0, inode, inode, 0, ANY, 0, ANY, kinds, ANY];
    let mut search = vec![0; ARGUMENTS + (ITEMS / 8) as usize];
    search[..key.len()].copy_from_slice(&key);
    search[ARGUMENTS - 1] = ITEMS;
    call(dir, BTRFS_IOC_TREE_SEARCH_V2, &mut search)?;
    let items = search[ARGUMENTS..].iter();
    Ok(items.flat_map(|it| it.to_ne_bytes()).collect())
}
