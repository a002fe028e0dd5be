//! Block device ioctls that neither nix nor rustix wraps.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

mod request {
    //! Numbers from `linux/fs.h`.
    nix::ioctl_none!(reread_partitions, 0x12, 95);
    nix::ioctl_none!(flush_buffers, 0x12, 97);
    nix::ioctl_write_ptr_bad!(discard, nix::request_code_none!(0x12, 119), [u64; 2]);
}

/// Discards a range. The device decides what the range reads as afterwards.
#[expect(unsafe_code, reason = "nix has no wrapper for BLKDISCARD")]
pub fn discard(device: &File, range: Range<u64>) -> nix::Result<()> {
    let range = [range.start, range.end - range.start];
    // SAFETY: BLKDISCARD reads two u64 from `range`.
    unsafe { request::discard(device.as_raw_fd(), &raw const range) }.map(drop)
}

/// Drops the kernel's cache of the device. Errors (no permission, not a device) are ignored: the cache is
/// coherent with our own writes.
#[expect(unsafe_code, reason = "nix has no wrapper for BLKFLSBUF")]
pub fn drop_cache(device: &File) {
    // SAFETY: BLKFLSBUF takes no argument.
    let _ = unsafe { request::flush_buffers(device.as_raw_fd()) };
}

/// Makes the kernel read the partition table again. Devices without partitions return `EINVAL`, which is
/// ignored.
#[expect(unsafe_code, reason = "nix has no wrapper for BLKRRPART")]
pub fn reread_partitions(device: &File) {
    // SAFETY: BLKRRPART takes no argument.
    let _ = unsafe { request::reread_partitions(device.as_raw_fd()) };
}
