//! Discards the free blocks of a filesystem (`FITRIM`, as `fstrim` does).
//!
//! Deleting a file erases nothing: its blocks stay readable on the device until they are written again. After
//! a trim, disks usually read as zeros there, without a guarantee. The filesystem discards only blocks that
//! belong to no file, so other data is safe, also if the volume is a directory of a larger filesystem.
//!
//! This requires that the filesystem's state in memory is on the disk: after a failed journal write, blocks
//! that are free in memory may belong to files on the disk. So the trim runs after
//! [`sync`](super::tree::sync), which detects that.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dashmap::{DashMap, Entry};
use nix::errno::Errno;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::syncfs;

use super::error::WipeError;
use super::ioctl;
use super::progress::Progress;
use crate::host::mounts::DeviceNumber;

/// The minimum time between two trims of a filesystem. A tenant may create and delete volumes on it without end, and
/// a trim may load the disk for minutes.
const TRIM_INTERVAL: Duration = Duration::from_mins(10);

/// When this process trimmed each filesystem.
static LAST_TRIMS: LazyLock<DashMap<DeviceNumber, Instant>> = LazyLock::new(DashMap::new);

/// The bytes of the filesystem in one call, which cannot be interrupted.
const STEP: u64 = 1 << 30;

/// The limit for waiting until a filesystem has freed its blocks in the background (XFS).
const FREE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// The free blocks were discarded. ext4 skips those that it has discarded before.
    Done {
        /// The discarded bytes, as counted by the filesystem.
        bytes: u64,
    },
    /// The filesystem or the disk does not support trim (`EOPNOTSUPP`, `ENOTTY`), or the permission is missing
    /// (`EPERM`: trim requires `CAP_SYS_ADMIN`).
    NotOffered(Errno),
    /// It started and failed.
    Failed(Errno),
    /// The filesystem was trimmed a moment ago.
    TooEarly,
}

/// Trims the whole filesystem of `root`, unless this process did so a moment ago. `filesystem` is its number in the
/// mount table, which all subvolumes of btrfs share.
///
/// # Errors
/// Only when it was cancelled. After a time limit the next attempt omits it, so that a slow trim fails one attempt only.
pub fn trim_rarely(
    root: BorrowedFd<'_>,
    filesystem: DeviceNumber,
    progress: &Progress,
) -> Result<Trim, WipeError> {
    LAST_TRIMS.retain(|_, at| at.elapsed() < TRIM_INTERVAL);
    match LAST_TRIMS.entry(filesystem) {
        Entry::Occupied(_) => return Ok(Trim::TooEarly),
        Entry::Vacant(entry) => drop(entry.insert(Instant::now())),
    }
    let trimmed = trim(root, progress);
    // After a failure, the next attempt must not succeed without a trim.
    if !matches!(trimmed, Ok(Trim::Done { .. })) && !progress.is_timed_out() {
        LAST_TRIMS.remove(&filesystem);
    }
    trimmed
}

/// Trims the whole filesystem of `root`.
///
/// # Errors
/// Only when it was cancelled by a shutdown.
pub fn trim(root: BorrowedFd<'_>, progress: &Progress) -> Result<Trim, WipeError> {
    // A trim of zero bytes does nothing, but its errno shows whether trim is supported.
    if let Err(errno) = ioctl::trim(root, 0, 0)
        && is_no_offer(errno)
    {
        return Ok(Trim::NotOffered(errno));
    }
    wait_for_freed_blocks(root, progress);
    let size =
        fstatvfs(root).map_or(0, |facts| facts.blocks().saturating_mul(facts.fragment_size()));
    let mut bytes = 0;
    for (start, length) in steps(size) {
        progress.check()?;
        progress.add_step();
        match ioctl::trim(root, start, length) {
            Ok(trimmed) => bytes += trimmed,
            Err(errno) if is_no_offer(errno) => return Ok(Trim::NotOffered(errno)),
            // The end is before the reported size, for example on XFS with a real-time section.
            Err(Errno::EINVAL) if start > 0 => break,
            Err(errno) => return Ok(Trim::Failed(errno)),
        }
    }
    Ok(Trim::Done { bytes })
}

fn is_no_offer(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::ENOSYS | Errno::EPERM)
}

/// Waits until the number of free blocks is stable, then syncs. XFS frees the blocks of a deleted file after
/// `unlink` has returned, and filesystems trim only blocks that are free in the log as well.
fn wait_for_freed_blocks(root: BorrowedFd<'_>, progress: &Progress) {
    let free = || fstatvfs(root).map_or(0, |facts| facts.blocks_free());
    let end = Instant::now() + FREE_TIMEOUT;
    let (mut before, mut now) = (None, free());
    while before != Some(now) && Instant::now() < end && !progress.is_cancelled() {
        sleep(FREE_TIMEOUT / 100);
        (before, now) = (Some(now), free());
    }
    // Errors are ignored: the sync after the trim reports them.
    let _ = syncfs(root);
}

/// Starts and lengths that cover the whole filesystem. The last length is unlimited, because the size is not
/// exact and the addresses of btrfs exceed its size.
fn steps(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let last = size.saturating_sub(1) / STEP;
    (0..=last).map(move |step| {
        let start = step * STEP;
        let length = if step == last { u64::MAX - start } else { STEP };
        (start, length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_whole_filesystem() {
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
