//! Wipes a block device.
//!
//! It uses only the descriptor that the caller opened and checked. The device is never resolved again, by
//! path or by number: another disk may have taken its place.

mod check;
mod direct;
mod discard;
mod error;
mod ioctl;
mod keystream;
mod markers;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::ops::Range;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;

use super::progress::Progress;
use super::signature;
use crate::crash::crash_point;
use direct::{Direct, Fill};
use markers::Markers;

pub use check::{check_reset, check_zeroed};
pub use discard::discard;
pub use error::DeviceError;

/// The bytes of one discard request. A cancellation takes effect between two requests.
const STEP: u64 = 64 << 20;

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
    /// The short name for the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Punched => "punched",
            Self::Discarded => "discarded",
            Self::DiscardedToZeros => "discarded and read back",
            Self::Written => "written",
            Self::Overwritten => "overwritten",
            Self::SignaturesOnly => "signatures only",
        }
    }

    /// The consequence for the next tenant, for the log.
    #[must_use]
    pub fn effect(self) -> &'static str {
        match self {
            Self::Punched | Self::Written | Self::Overwritten => "the device reads as zeros",
            Self::DiscardedToZeros => "the device reads as zeros at all sampled places",
            Self::Discarded | Self::SignaturesOnly => {
                "no filesystem is left on the device; data between its signatures may still be readable"
            }
        }
    }
}

/// Resets a device: discards its contents if it can, and overwrites both ends and every place from which
/// a filesystem, a volume group or a partition table could be recognised or repaired.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written.
pub fn quick_reset(
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    // Before the discard: the superblocks contain the places of their copies.
    let spots = signature::spots(device, size, progress)?;
    progress.expect_bytes(spots.iter().map(|spot| spot.end - spot.start).sum());
    let outcome = drop_contents(device, size, progress)?;
    let direct = Direct::new(device);
    for spot in spots {
        direct.write(Fill::Zeros, spot, progress)?;
    }
    drop(direct);
    settle(device, size)?;
    Ok(outcome)
}

/// Zeroes a whole device `passes` times, at least once: by punching if the device guarantees the result,
/// else by writing.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written.
pub fn zero(
    device: &File,
    size: u64,
    passes: u32,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    let pass = || zero_by(|step| punch(device, step), device, size, progress);
    // Announced at once, so that the estimated time covers all passes.
    progress.expect_bytes(size.saturating_mul(passes.max(1).into()));
    for _ in 1..passes {
        pass()?;
    }
    pass()
}

/// One pass, with a replaceable punch function for tests.
fn zero_by(
    punch: impl Fn(Range<u64>) -> nix::Result<()>,
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    let markers = Markers::write(device, size, progress)?;
    let punched = in_steps("punch", 0..size, progress, punch)?;
    let write = |range| Direct::new(device).write(Fill::Zeros, range, progress);
    write(punched..size)?;
    settle(device, size)?;
    match markers.check(device, progress) {
        Err(DeviceError::NotZero { offset }) if offset < punched => {
            tracing::warn!(
                ?device,
                offset,
                "the device kept data that it reported as zeroed; writing zeros"
            );
            progress.expect_bytes(punched);
            write(0..punched)?;
            settle(device, size)?;
            Ok(WipeOutcome::Written)
        }
        // Written zeros do not read back.
        Err(error) => Err(error),
        Ok(()) if punched == size => Ok(WipeOutcome::Punched),
        Ok(()) => Ok(WipeOutcome::Written),
    }
}

/// Overwrites a device with random bytes `passes` times, then with zeros. It never discards: discarded data
/// may stay in the cells of a flash device.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written.
pub fn overwrite(
    device: &File,
    size: u64,
    passes: u32,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    progress.expect_bytes(size.saturating_mul(u64::from(passes) + 1));
    let direct = Direct::new(device);
    for _ in 0..passes {
        direct.write(Fill::Random, 0..size, progress)?;
        // Without this, the disk's cache may merge two passes into one write.
        flush(device)?;
    }
    direct.write(Fill::Zeros, 0..size, progress)?;
    drop(direct);
    settle(device, size)?;
    Ok(WipeOutcome::Overwritten)
}

/// Punches the device, or discards it where punching is not supported.
fn drop_contents(
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    progress.expect_bytes(size);
    let punched = in_steps("punch", 0..size, progress, |step| punch(device, step))?;
    let discard = |step| ioctl::discard(device, step);
    let dropped = in_steps("discard", punched..size, progress, discard)?;
    progress.retract_bytes(size - dropped);
    Ok(if punched == size {
        WipeOutcome::Punched
    } else if dropped == size {
        WipeOutcome::Discarded
    } else {
        WipeOutcome::SignaturesOnly
    })
}

/// The errors of devices that do not support a request. A stacked device may support it only in some
/// ranges. `EREMOTEIO`: a disk rejects a command that it advertised. `EIO`, `ENODATA`: it fails instead; the
/// writes that follow show whether the disk works.
const UNSUPPORTED: [Errno; 7] = [
    Errno::EOPNOTSUPP,
    Errno::ENOSYS,
    Errno::ENODEV,
    Errno::EINVAL,
    Errno::EREMOTEIO,
    Errno::EIO,
    Errno::ENODATA,
];

/// Makes a request for a range, step by step, until the device does not support it. Returns the end of the
/// last successful step.
fn in_steps(
    what: &'static str,
    range: Range<u64>,
    progress: &Progress,
    act: impl Fn(Range<u64>) -> nix::Result<()>,
) -> Result<u64, DeviceError> {
    let mut done = range.start;
    while done < range.end {
        progress.check()?;
        let end = range.end.min(done + STEP);
        crash_point("drop-contents");
        match act(done..end) {
            Ok(()) => {
                progress.add_bytes(end - done);
                done = end;
            }
            Err(Errno::EINTR) => {}
            Err(errno) if UNSUPPORTED.contains(&errno) => break,
            Err(errno) => return Err(DeviceError::io(what, done)(errno.into())),
        }
    }
    Ok(done)
}

/// On a block device, the device zeroes the range by itself or this fails: it never writes zeros.
fn punch(device: &File, step: Range<u64>) -> nix::Result<()> {
    let offset = |bytes| libc::off_t::try_from(bytes).map_err(|_| Errno::EINVAL);
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(
        device,
        mode,
        offset(step.start)?,
        offset(step.end - step.start)?,
    )
}

/// Flushes all writes, drops the kernel's cache of the device and rereads its partitions.
fn settle(device: &File, size: u64) -> Result<(), DeviceError> {
    flush(device)?;
    ioctl::drop_cache(device);
    ioctl::reread_partitions(device);
    check::same_size(device, size)
}

fn flush(device: &File) -> Result<(), DeviceError> {
    device.sync_all().map_err(DeviceError::Flush)
}
