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

use std::cell::OnceCell;
use std::fmt;
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

pub use check::{check_reset, check_zeroed, verify_zeroed};
pub use discard::discard;
pub use error::DeviceError;

/// The bytes of one discard request. A cancellation takes effect between two requests.
const STEP: u64 = 64 << 20;

/// How a wipe was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// How the device was wiped.
    pub outcome: WipeOutcome,
    /// Why the requested method was not used.
    pub fallback: Option<Fallback>,
}

impl From<WipeOutcome> for DeviceReport {
    fn from(outcome: WipeOutcome) -> Self {
        Self {
            outcome,
            fallback: None,
        }
    }
}

/// Why zeros were written instead of discarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The device does not support the request, or failed it.
    CannotDiscard,
    /// The device reported success but kept data.
    DataLeft {
        /// The offset in bytes from the start of the device.
        offset: u64,
    },
}

/// The text for the log.
impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotDiscard => f.write_str("the device cannot discard"),
            Self::DataLeft { offset } => {
                write!(f, "discard reported success, but byte {offset} is not zero")
            }
        }
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
) -> Result<DeviceReport, DeviceError> {
    // Before the discard: the superblocks contain the places of their copies.
    let spots = check::reading(device, progress, |device| signature::spots(device, size))?;
    progress.expect_bytes(spots.iter().map(|spot| spot.end - spot.start).sum());
    let dropped = drop_contents(device, size, progress)?;
    let direct = Direct::new(device);
    for spot in spots {
        direct.write(Fill::Zeros, spot, progress)?;
    }
    drop(direct);
    settle(device, size)?;
    Ok(dropped.unwrap_or(WipeOutcome::SignaturesOnly).into())
}

/// Zeroes a whole device: by punching if the device guarantees the result, else by writing.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written.
pub fn zero(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    zero_times(device, size, 1, progress)
}

/// Runs [`zero`] `passes` times, at least once.
///
/// # Errors
/// When anything cannot be written.
pub fn zero_times(
    device: &File,
    size: u64,
    passes: u32,
    progress: &Progress,
) -> Result<DeviceReport, DeviceError> {
    // Announced at once, so that the estimated time covers all passes.
    progress.expect_bytes(size.saturating_mul(u64::from(passes.max(1))));
    for _ in 1..passes {
        zero_once(device, size, progress)?;
    }
    zero_once(device, size, progress)
}

fn zero_once(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    zero_by(|step| punch(device, step), device, size, progress)
}

/// One pass, with a replaceable punch function for tests.
fn zero_by(
    punch: impl Fn(Range<u64>) -> nix::Result<()>,
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<DeviceReport, DeviceError> {
    let markers = Markers::write(device, size, progress)?;
    let punched = PUNCH.in_steps(0..size, progress, punch)?;
    let write = |range| Direct::new(device).write(Fill::Zeros, range, progress);
    write(punched..size)?;
    settle(device, size)?;
    let outcome = if punched == size {
        WipeOutcome::Punched
    } else {
        WipeOutcome::Written
    };
    match markers.left(device, progress)? {
        None => Ok(outcome.into()),
        // Written zeros do not read back.
        Some(offset) if offset >= punched => Err(DeviceError::NotZero { offset }),
        Some(offset) => {
            progress.expect_bytes(punched);
            write(0..punched)?;
            settle(device, size)?;
            Ok(DeviceReport {
                outcome: WipeOutcome::Written,
                fallback: Some(Fallback::DataLeft { offset }),
            })
        }
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
) -> Result<DeviceReport, DeviceError> {
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
    Ok(WipeOutcome::Overwritten.into())
}

/// Punches the device, or discards it where punching is not supported. `None` if neither is supported.
fn drop_contents(
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<Option<WipeOutcome>, DeviceError> {
    let dropped = DropProgress::new(size, progress);
    let punched = PUNCH.in_steps(0..size, progress, |step| {
        dropped.record(punch(device, step))
    })?;
    if punched == size {
        return Ok(Some(WipeOutcome::Punched));
    }
    let discarded = DISCARD.in_steps(punched..size, progress, |step| {
        dropped.record(ioctl::discard(device, step))
    })?;
    dropped.finish(discarded);
    Ok((discarded == size).then_some(WipeOutcome::Discarded))
}

/// The progress of discarding a whole device, which the device may support for a part or not at all.
struct DropProgress<'a> {
    size: u64,
    progress: &'a Progress,
    announced: OnceCell<()>,
}

impl<'a> DropProgress<'a> {
    fn new(size: u64, progress: &'a Progress) -> Self {
        Self {
            size,
            progress,
            announced: OnceCell::new(),
        }
    }

    /// Passes on the result of a step. The first success announces the bytes of the device, so that a device
    /// without support announces none.
    fn record(&self, result: nix::Result<()>) -> nix::Result<()> {
        result.map(|()| {
            self.announced
                .get_or_init(|| self.progress.expect_bytes(self.size));
        })
    }

    /// Ends the discard: retracts the bytes that were announced but not discarded.
    fn finish(&self, done: u64) {
        if self.announced.get().is_some() {
            self.progress.retract_bytes(self.size - done);
        }
    }
}

/// A request that not every device supports.
struct Request {
    what: &'static str,
    /// Whether an I/O error counts as missing support.
    best_effort: bool,
}

const PUNCH: Request = Request {
    what: "punch",
    best_effort: false,
};

/// Best effort: the writes that follow show whether the disk works.
const DISCARD: Request = Request {
    what: "discard",
    best_effort: true,
};

/// The errors of devices that do not support a request. A stacked device may support it only in some
/// ranges. `EREMOTEIO`: a disk rejects a command that it advertised.
const UNSUPPORTED: [Errno; 5] = [
    Errno::EOPNOTSUPP,
    Errno::ENOSYS,
    Errno::ENODEV,
    Errno::EINVAL,
    Errno::EREMOTEIO,
];

impl Request {
    /// Whether the error means that the device does not support the request.
    fn is_unsupported(&self, errno: Errno) -> bool {
        UNSUPPORTED.contains(&errno) || self.best_effort && errno == Errno::EIO
    }

    /// Makes the request for a range, step by step, until the device does not support it. Returns the end of
    /// the last successful step.
    fn in_steps(
        &self,
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
                Err(errno) if self.is_unsupported(errno) => break,
                Err(errno) => return Err(DeviceError::io(self.what, done)(errno.into())),
            }
        }
        Ok(done)
    }
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
