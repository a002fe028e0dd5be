//! Wipes a block device.
//!
//! Everything goes through the one descriptor that the caller opened and checked. The device is
//! never looked up again, by path or by number: by then another disk may be in its place.

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

/// Devices are told to drop their contents in steps of this size, between which we can be stopped.
const STEP: u64 = 64 << 20;

/// How a wipe was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// What the device did, or we had to.
    pub means: WipeOutcome,
    /// Why it was not done as it was asked for.
    pub fallback: Option<Fallback>,
}

impl From<WipeOutcome> for DeviceReport {
    fn from(means: WipeOutcome) -> Self {
        Self {
            means,
            fallback: None,
        }
    }
}

/// Why zeros had to be written after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The device does not know the request, or failed at it.
    CannotDiscard,
    /// It obeyed, and kept something.
    DataLeft {
        /// Where, in bytes from the start of the device.
        offset: u64,
    },
}

/// A sentence for the log.
impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotDiscard => f.write_str("the device cannot discard"),
            Self::DataLeft { offset } => write!(
                f,
                "the device says that it dropped everything, and yet byte {offset} is not zero"
            ),
        }
    }
}

/// The ways to get rid of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WipeOutcome {
    /// The device dropped everything and promises to read as zeros.
    Punched,
    /// The device was told to drop everything, and promises nothing.
    Discarded,
    /// As before, and zeros were read wherever we looked.
    DiscardedToZeros,
    /// Zeros were written over everything.
    Written,
    /// Random bytes were written over everything, and zeros over those.
    Overwritten,
    /// Only signatures were overwritten: the next tenant can read what was there before.
    SignaturesOnly,
}

impl WipeOutcome {
    /// The words for the log.
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

    /// What it means for the next tenant: a sentence for the log.
    #[must_use]
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Punched | Self::Written | Self::Overwritten => "the device reads as zeros",
            Self::DiscardedToZeros => "the device reads as zeros wherever it was looked at",
            Self::Discarded | Self::SignaturesOnly => {
                "no filesystem is left on the device; data between its signatures may still be readable"
            }
        }
    }
}

/// Makes a device look new: lets it drop its contents where it can, and in any case overwrites both
/// ends and every place from which a filesystem, a volume group or a partition table could be
/// recognised or repaired.
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
    // Before anything is dropped: the superblocks tell where their copies are.
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

/// Makes every byte of a device zero: by its own means if it promises the result, else by writing.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written.
pub fn zero(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    zero_times(device, size, 1, progress)
}

/// [`zero`] so many times, at least once.
///
/// # Errors
/// When anything cannot be written.
pub fn zero_times(
    device: &File,
    size: u64,
    passes: u32,
    progress: &Progress,
) -> Result<DeviceReport, DeviceError> {
    // All at once, so that the time left is that of all passes.
    progress.expect_bytes(size.saturating_mul(u64::from(passes.max(1))));
    for _ in 1..passes {
        zero_once(device, size, progress)?;
    }
    zero_once(device, size, progress)
}

fn zero_once(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    zero_by(|step| punch(device, step), device, size, progress)
}

/// Once, with another's way to have a range made zero.
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
    let means = if punched == size {
        WipeOutcome::Punched
    } else {
        WipeOutcome::Written
    };
    match markers.left(device, progress)? {
        None => Ok(means.into()),
        // What was written is not there.
        Some(offset) if offset >= punched => Err(DeviceError::NotZero { offset }),
        Some(offset) => {
            progress.expect_bytes(punched);
            write(0..punched)?;
            settle(device, size)?;
            Ok(DeviceReport {
                means: WipeOutcome::Written,
                fallback: Some(Fallback::DataLeft { offset }),
            })
        }
    }
}

/// Writes random bytes over a device so many times, and then zeros. It always writes: what a device
/// only drops stays in its cells.
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
        // Else the disk's cache may take the next pass for a newer version of this one, and write once.
        flush(device)?;
    }
    direct.write(Fill::Zeros, 0..size, progress)?;
    drop(direct);
    settle(device, size)?;
    Ok(WipeOutcome::Overwritten.into())
}

/// Lets the device drop its contents by the better of two ways, if it knows one.
fn drop_contents(
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<Option<WipeOutcome>, DeviceError> {
    let dropping = Dropping::new(size, progress);
    let punched = PUNCH.in_steps(0..size, progress, |step| dropping.step(punch(device, step)))?;
    if punched == size {
        return Ok(Some(WipeOutcome::Punched));
    }
    let discarded = DISCARD.in_steps(punched..size, progress, |step| {
        dropping.step(ioctl::discard(device, step))
    })?;
    dropping.stops_at(discarded);
    Ok((discarded == size).then_some(WipeOutcome::Discarded))
}

/// The figures of a whole device that is to drop its contents, which it may not be able to, or not
/// to its end.
struct Dropping<'a> {
    size: u64,
    progress: &'a Progress,
    announced: OnceCell<()>,
}

impl<'a> Dropping<'a> {
    fn new(size: u64, progress: &'a Progress) -> Self {
        Self {
            size,
            progress,
            announced: OnceCell::new(),
        }
    }

    /// Takes a step's result. The bytes are announced when the device has shown that it can, so that
    /// the figures mean something for one that cannot.
    fn step(&self, result: nix::Result<()>) -> nix::Result<()> {
        result.map(|()| {
            self.announced
                .get_or_init(|| self.progress.expect_bytes(self.size));
        })
    }

    /// No more is asked for, so what was announced and not done is taken back.
    fn stops_at(&self, done: u64) {
        if self.announced.get().is_some() {
            self.progress.expect_less(self.size - done);
        }
    }
}

/// A request that not every device knows.
struct Request {
    what: &'static str,
    /// Whether a device that fails at it is taken for one that does not know it.
    is_a_favour: bool,
}

const PUNCH: Request = Request {
    what: "punch",
    is_a_favour: false,
};

/// Whether the disk works the writes tell that follow.
const DISCARD: Request = Request {
    what: "discard",
    is_a_favour: true,
};

/// The answers of devices that do not know a request, or not there: a stack of devices may be able to
/// here and not there. `EREMOTEIO` is a disk's own refusal of a command that the kernel believed it
/// to know.
const UNABLE: [Errno; 5] = [
    Errno::EOPNOTSUPP,
    Errno::ENOSYS,
    Errno::ENODEV,
    Errno::EINVAL,
    Errno::EREMOTEIO,
];

impl Request {
    /// Whether the answer says that what is to be done has to be done in another way.
    fn is_beyond(&self, answer: Errno) -> bool {
        UNABLE.contains(&answer) || self.is_a_favour && answer == Errno::EIO
    }

    /// Makes the request for a range, step by step, until the device says that it is not able to;
    /// returns how far it came.
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
                Err(errno) if self.is_beyond(errno) => break,
                Err(errno) => return Err(DeviceError::io(self.what, done)(errno.into())),
            }
        }
        Ok(done)
    }
}

/// On a block device this either gives zeros by the device's own means or fails: it never writes.
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

/// Gets everything to the disk, and makes the kernel forget what it knew of the device.
fn settle(device: &File, size: u64) -> Result<(), DeviceError> {
    flush(device)?;
    ioctl::drop_cache(device);
    ioctl::reread_partitions(device);
    check::same_size(device, size)
}

fn flush(device: &File) -> Result<(), DeviceError> {
    device.sync_all().map_err(DeviceError::Flush)
}
