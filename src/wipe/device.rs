//! Wipes a block device.
//!
//! It uses only the descriptor that the caller opened and checked. The device is never resolved again, by
//! path or by number: another disk may have taken its place.

mod direct;
mod keystream;
mod markers;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::fs::{FallocateFlags, fallocate};

use super::dirfd::errno;
use super::error::WipeError;
use super::ioctl;
use super::progress::Progress;
use super::signature;
use crate::crash::crash_point;
use markers::BLOCK;

/// A request by which a device drops a range.
type DropRange<'a> = &'a dyn Fn(Range<u64>) -> nix::Result<()>;

/// The bytes of the first discard request, and of the largest one. A cancellation takes effect between two requests, so
/// they grow only while the device is fast.
const STEP: u64 = 64 << 20;
const LONGEST_STEP: u64 = 1 << 30;
const FAST: Duration = Duration::from_millis(250);
const SLOW: Duration = Duration::from_secs(1);

/// The bytes of the request that follows one.
fn next_step(step: u64, took: Duration) -> u64 {
    if took < FAST {
        (step * 2).min(LONGEST_STEP)
    } else if took > SLOW {
        (step / 2).max(STEP)
    } else {
        step
    }
}

/// How the data on a device was destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WipeOutcome {
    /// The device punched out its whole range, and guarantees that it reads as zeros.
    Punched,
    /// The device discarded its whole range, without a guarantee.
    Discarded,
    /// The device discarded its whole range, and the samples read back as zeros.
    DiscardedToZeros,
    /// Zeros were written to the whole device.
    Written,
    /// Random bytes were written to the whole device, then zeros.
    Overwritten,
    /// Only signatures were overwritten: the next tenant can read what was there before.
    SignaturesOnly,
}

impl WipeOutcome {
    /// The method and its effect, for the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Punched => "punched: the device reads as zeros",
            Self::Discarded => "discarded: data may still be readable",
            Self::DiscardedToZeros => "discarded: the device reads as zeros at all sampled places",
            Self::Written => "written: the device reads as zeros",
            Self::Overwritten => "overwritten: the device reads as zeros",
            Self::SignaturesOnly => "signatures only: data between them may still be readable",
        }
    }
}

/// A device that is wiped or checked.
#[derive(Clone, Copy, Debug)]
pub struct Disk<'a> {
    device: &'a File,
    pub(super) size: u64,
    progress: &'a Progress,
}

impl<'a> Disk<'a> {
    /// `device` is open, for writing if it is wiped, and `size` (in bytes) was read from it.
    pub fn new(device: &'a File, size: u64, progress: &'a Progress) -> Self {
        Self { device, size, progress }
    }

    /// Resets a device: discards its contents if it can, and overwrites both ends and every place from which
    /// a filesystem, a volume group or a partition table could be recognised or repaired.
    ///
    /// # Errors
    /// When anything cannot be written.
    pub fn quick_reset(self) -> Result<WipeOutcome, WipeError> {
        let (size, progress) = (self.size, self.progress);
        // Before the discard: the superblocks contain the places of their copies.
        let spots = signature::spots(self)?;
        let of_spots: u64 = spots.iter().map(|spot| spot.end - spot.start).sum();
        progress.expect_bytes(of_spots + size);
        let punched = self.in_steps(0..size, &|step| punch(self.device, step))?;
        let discard = |step| ioctl::discard(self.device, step);
        let dropped = self.in_steps(punched..size, &discard)?;
        progress.retract_bytes(size - dropped);
        for spot in spots {
            self.write_zeros(spot)?;
        }
        self.settle()?;
        Ok(if punched == size {
            WipeOutcome::Punched
        } else if dropped == size {
            WipeOutcome::Discarded
        } else {
            WipeOutcome::SignaturesOnly
        })
    }

    /// Zeroes a whole device `passes` times, at least once: by punching if the device guarantees the result,
    /// else by writing.
    ///
    /// # Errors
    /// When anything cannot be written.
    pub fn zero(self, passes: u32) -> Result<WipeOutcome, WipeError> {
        let pass = || self.zero_by(&|step| punch(self.device, step));
        // Announced at once, so that the estimated time covers all passes.
        self.progress.expect_bytes(self.size.saturating_mul(passes.max(1).into()));
        for _ in 1..passes {
            pass()?;
        }
        pass()
    }

    /// One pass, with a replaceable punch function for tests.
    fn zero_by(self, punch: DropRange<'_>) -> Result<WipeOutcome, WipeError> {
        if self.drop_to_zeros("punch", punch)? {
            return Ok(WipeOutcome::Punched);
        }
        self.write_zeros(0..self.size)?;
        self.settle()?;
        Ok(WipeOutcome::Written)
    }

    /// Discards a whole device and checks that it reads as zeros. If it does not, zeroes it.
    ///
    /// A discard is a hint: a device may ignore it, or the parts that do not match its own units.
    ///
    /// # Errors
    /// When anything cannot be written or read.
    pub fn discard(self) -> Result<WipeOutcome, WipeError> {
        self.discard_by(&|step| ioctl::discard(self.device, step))
    }

    /// [`Self::discard`] with a replaceable discard function for tests.
    fn discard_by(self, discard: DropRange<'_>) -> Result<WipeOutcome, WipeError> {
        let device = self.device;
        self.progress.expect_bytes(self.size);
        if self.drop_to_zeros("discard", discard)? {
            // Of the whole device only samples are read.
            if signature::find(self)?.is_none() {
                return Ok(WipeOutcome::DiscardedToZeros);
            }
            self.progress.expect_bytes(self.size);
        }
        tracing::warn!(?device, "the device does not discard to zeros; zeroing it");
        self.zero_by(&|step| punch(device, step))
    }

    /// Makes a device drop its whole contents. Returns whether it supports that, and reads as zeros afterwards.
    fn drop_to_zeros(self, what: &str, request: DropRange<'_>) -> Result<bool, WipeError> {
        let (device, size, progress) = (self.device, self.size, self.progress);
        for marker in markers::places(size) {
            progress.check()?;
            progress.add_step();
            // Not counted: the wipe counts these bytes.
            Disk::new(device, size, &Progress::default()).write_random(marker)?;
        }
        self.flush()?;
        let dropped = self.in_steps(0..size, request)?;
        if dropped == size {
            self.settle()?;
            match self.check_zeroed() {
                Err(WipeError::NotZero(offset)) => {
                    tracing::warn!(?device, offset, "the device kept data after a {what}");
                }
                checked => return checked.map(|()| true),
            }
        }
        progress.expect_bytes(dropped);
        Ok(false)
    }

    /// Overwrites a device with random bytes `passes` times, then with zeros. It never discards: discarded data
    /// may stay in the cells of a flash device.
    ///
    /// # Errors
    /// When anything cannot be written.
    pub fn overwrite(self, passes: u32) -> Result<WipeOutcome, WipeError> {
        let size = self.size;
        let bytes = size.saturating_mul(u64::from(passes) + 1);
        self.progress.expect_bytes(bytes);
        for _ in 0..passes {
            self.write_random(0..size)?;
            // Without this, the disk's cache may merge two passes into one write.
            self.flush()?;
        }
        self.write_zeros(0..size)?;
        self.settle()?;
        Ok(WipeOutcome::Overwritten)
    }

    /// Checks that a device has no known signature.
    ///
    /// # Errors
    /// When it has one.
    pub fn check_reset(self) -> Result<(), WipeError> {
        ioctl::drop_cache(self.device);
        match signature::find(self)? {
            None => Ok(()),
            Some(signature) => Err(WipeError::Failed(format!(
                "the device was wiped, but shows a signature: {signature}; another process is writing to it, or the device loses writes"
            ))),
        }
    }

    /// Reads both ends of a device, and the places of the markers, from the disk itself.
    ///
    /// This detects a disk that ignored the requests, but rarely one that lost a single write.
    ///
    /// # Errors
    /// [`WipeError::NotZero`] if a byte is not zero.
    pub fn check_zeroed(self) -> Result<(), WipeError> {
        const END: u64 = 1 << 20;
        let size = self.size;
        ioctl::drop_cache(self.device);
        let ends = [0..size.min(END), size.saturating_sub(END) / BLOCK * BLOCK..size];
        let mut ranges = ends.into_iter().chain(markers::places(size));
        ranges.try_for_each(|range| self.check_zero(range))
    }

    /// Makes a request for a range, step by step, until the device refuses it. Returns the end of the last successful step.
    ///
    /// A device may not support the request, or only in some ranges, or reject a command that it advertised. Whatever the
    /// error is, the writes that follow show whether the disk works.
    fn in_steps(self, range: Range<u64>, act: DropRange<'_>) -> Result<u64, WipeError> {
        let (mut done, mut step) = (range.start, STEP);
        while done < range.end {
            self.progress.check()?;
            let end = range.end.min(done + step);
            crash_point("drop-contents");
            let begun = Instant::now();
            match act(done..end) {
                Ok(()) => {
                    step = next_step(step, begun.elapsed());
                    self.progress.add_bytes(end - done);
                    done = end;
                }
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    tracing::debug!(%errno, done, "the device refuses to drop its contents");
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Flushes all writes, drops the kernel's cache of the device, rereads its partitions, and checks that its size has
    /// not changed: the new part of a grown device was not wiped.
    fn settle(self) -> Result<(), WipeError> {
        let (mut device, size) = (self.device, self.size);
        self.flush()?;
        ioctl::drop_cache(device);
        ioctl::reread_partitions(device);
        let now = device.seek(SeekFrom::End(0)).map_err(failed("read", size))?;
        if now == size {
            return Ok(());
        }
        Err(WipeError::Failed(format!(
            "the size of the device changed from {size} to {now} bytes; cleaning starts again from the beginning"
        )))
    }

    /// The kernel does not report which write did not reach the disk.
    fn flush(self) -> Result<(), WipeError> {
        self.device.sync_all().map_err(|error| {
            let cause = "look at the kernel log, the disk may be failing";
            WipeError::Failed(format!("cannot flush writes to the device: {error}; {cause}"))
        })
    }

    /// Reads a range: zeros if it is not within the device. It checks for cancellation first, because a failing disk may
    /// take half a minute for each read.
    pub(super) fn read(self, offset: u64, length: usize) -> Result<Vec<u8>, WipeError> {
        self.progress.check()?;
        self.progress.add_step();
        let mut bytes = vec![0; length];
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= self.size) {
            let read = self.device.read_exact_at(&mut bytes, offset);
            read.map_err(failed("read", offset))?;
        }
        Ok(bytes)
    }
}

/// On a block device, the device zeroes the range by itself or this fails: it never writes zeros.
fn punch(device: &File, step: Range<u64>) -> nix::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(device, mode, step.start, step.end - step.start).map_err(errno)
}

/// The error of a request at this offset.
fn failed(what: &'static str, offset: u64) -> impl FnOnce(io::Error) -> WipeError {
    move |error| {
        WipeError::Failed(format!(
            "cannot {what} the device at byte {offset}: {error}; the kernel log names the sector, the disk may be failing"
        ))
    }
}
