//! Tells the disk below a filesystem which of its blocks are free, so that it drops what was in them.
//!
//! Deleting a file erases nothing: its blocks stay readable on the device until they are written
//! again. A disk that was told (`FITRIM`, as `fstrim` does) usually reads as zeros there; it promises
//! nothing. The filesystem tells it only of blocks that belong to no file, so this does no harm to
//! whatever else is in the filesystem, also where the volume is a directory of a larger one.
//!
//! That is so only where the filesystem's memory is what is on the disk: one that could not write its
//! journal takes blocks for free that belong to files on the disk. So it comes after
//! [`sync`](super::tree::sync), which finds that out.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::syncfs;

use super::progress::{Cancelled, Progress};

/// Bytes of the filesystem looked at in one call, which nothing interrupts.
const STEP: u64 = 1 << 30;

/// How long to wait for a filesystem that frees blocks in the background (XFS does).
const SETTLING: Duration = Duration::from_secs(5);

mod ioctl {
    //! Number and layout from `linux/fs.h`.
    nix::ioctl_readwrite!(fitrim, b'X', 121, TrimRange);

    #[repr(C)]
    pub struct TrimRange {
        pub start: u64,
        pub length: u64,
        pub shortest: u64,
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// The disk was told of so many free bytes. ext4 leaves out what it has told it before.
    Done {
        /// Free bytes, as the filesystem counts them.
        bytes: u64,
    },
    /// The filesystem or the disk below knows no trim (`EOPNOTSUPP`, `ENOTTY`), or we have not the
    /// right to ask for it (`EPERM`: it takes `CAP_SYS_ADMIN`).
    NotOffered(Errno),
    /// Its time was over before it was done.
    OutOfTime,
    /// It began and failed.
    Failed(Errno),
}

/// Trims the whole filesystem that `root` is in.
///
/// # Errors
/// Only when it was told to stop since the program ends.
pub fn trim(root: BorrowedFd<'_>, progress: &Progress) -> Result<Trim, Cancelled> {
    match trim_all(root, progress) {
        Err(Cancelled) if progress.is_timed_out() => Ok(Trim::OutOfTime),
        result => result,
    }
}

fn trim_all(root: BorrowedFd<'_>, progress: &Progress) -> Result<Trim, Cancelled> {
    // Nothing is below one block, and a filesystem that trims says so. One that does not says that.
    if let Err(errno) = fitrim(root, 0, 0)
        && is_no_offer(errno)
    {
        return Ok(Trim::NotOffered(errno));
    }
    wait_for_freed_blocks(root, progress)?;
    let mut bytes = 0;
    for (start, length) in steps(size(root)) {
        progress.check()?;
        progress.add_step();
        match fitrim(root, start, length) {
            Ok(trimmed) => bytes += trimmed,
            Err(errno) if is_no_offer(errno) => return Ok(Trim::NotOffered(errno)),
            // The end was nearer than the size says: one of XFS's real-time part, say.
            Err(Errno::EINVAL) if start > 0 => break,
            Err(errno) => return Ok(Trim::Failed(errno)),
        }
    }
    Ok(Trim::Done { bytes })
}

fn is_no_offer(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::ENOSYS | Errno::EPERM
    )
}

/// Some filesystems free the blocks of a deleted file after `unlink` has returned (XFS), and none
/// trims what is not free in its log as well.
fn wait_for_freed_blocks(root: BorrowedFd<'_>, progress: &Progress) -> Result<(), Cancelled> {
    let free = || fstatvfs(root).map_or(0, |facts| facts.blocks_free());
    let begin = Instant::now();
    let (mut before, mut now) = (None, free());
    while before != Some(now) && begin.elapsed() < SETTLING {
        progress.check()?;
        sleep(SETTLING / 100);
        (before, now) = (Some(now), free());
    }
    // The one after the trim finds out whether the disk refuses.
    let _ = syncfs(root);
    Ok(())
}

/// The size of the filesystem in bytes, without what it keeps for itself; 0 if it does not tell.
fn size(root: BorrowedFd<'_>) -> u64 {
    fstatvfs(root).map_or(0, |facts| {
        facts.blocks().saturating_mul(facts.fragment_size())
    })
}

/// Starts and lengths that make up the whole filesystem. The last one has no end, since the size is
/// not exact. btrfs, whose addresses go further than its size, is done in the last one too.
fn steps(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let last = size.saturating_sub(1) / STEP;
    (0..=last).map(move |step| {
        let start = step * STEP;
        let length = if step == last { u64::MAX - start } else { STEP };
        (start, length)
    })
}

/// How many bytes were trimmed.
#[expect(unsafe_code, reason = "nix has no wrapper for FITRIM")]
fn fitrim(root: BorrowedFd<'_>, start: u64, length: u64) -> nix::Result<u64> {
    let mut range = ioctl::TrimRange {
        start,
        length,
        shortest: 0,
    };
    // SAFETY: FITRIM reads and writes one `struct fstrim_range`, which `range` has the layout of.
    unsafe { ioctl::fitrim(root.as_raw_fd(), &raw mut range) }?;
    Ok(range.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_leave_nothing_out() {
        for (size, count) in [(0, 1), (1, 1), (STEP, 1), (STEP + 1, 2), (10 * STEP, 10)] {
            let steps: Vec<_> = steps(size).collect();
            assert_eq!(steps.len(), count, "{size}");
            let mut end = 0;
            for (start, length) in steps {
                assert_eq!(start, end);
                end = start + length;
            }
            assert_eq!(end, u64::MAX);
        }
    }
}
