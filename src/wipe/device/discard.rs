//! Makes a device drop its contents, and believes only what it then reads.

use std::fs::File;
use std::ops::Range;

use super::markers::{BLOCK, Markers};
use super::{
    DISCARD, DeviceError, DeviceReport, Dropping, Fallback, WipeOutcome, check_reset, check_zeroed,
    ioctl, settle, zero,
};
use crate::wipe::progress::Progress;

/// Lets a device drop everything, and looks whether it then reads as zeros; where it does not, every
/// byte is made zero in the way of [`zero`].
///
/// A discard is a hint: a device may ignore it, or the parts of it that do not fit its own units.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written or read.
pub fn discard(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    discard_by(|step| ioctl::discard(device, step), device, size, progress)
}

/// [`discard`], with another's way to drop a range.
fn discard_by(
    drop_range: impl Fn(Range<u64>) -> nix::Result<()>,
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<DeviceReport, DeviceError> {
    let markers = Markers::write(device, size, progress)?;
    let dropping = Dropping::new(size, progress);
    let discarded = DISCARD.in_steps(0..size, progress, |step| dropping.step(drop_range(step)))?;
    dropping.stops_at(discarded);
    let fallback = if discarded < size {
        Fallback::CannotDiscard
    } else {
        settle(device, size)?;
        match data_left(device, size, &markers, progress)? {
            None => return Ok(WipeOutcome::DiscardedToZeros.into()),
            Some(offset) => Fallback::DataLeft { offset },
        }
    };
    Ok(DeviceReport {
        fallback: Some(fallback),
        ..zero(device, size, progress)?
    })
}

/// The first block that was found not to be zero.
fn data_left(
    device: &File,
    size: u64,
    markers: &Markers,
    progress: &Progress,
) -> Result<Option<u64>, DeviceError> {
    if let Some(offset) = markers.left(device, progress)? {
        return Ok(Some(offset / BLOCK * BLOCK));
    }
    let look = || {
        check_zeroed(device, size, progress)?;
        check_reset(device, size, progress)
    };
    match look() {
        Ok(()) => Ok(None),
        Err(DeviceError::NotZero { offset }) => Ok(Some(offset / BLOCK * BLOCK)),
        Err(DeviceError::SignatureLeft(signature)) => Ok(Some(signature.offset)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::wipe::device::{STEP, punch};

    const SIZE: u64 = 3 * STEP + 512;

    /// Has a file discarded by a device that drops only whole units of its own, which begin at
    /// multiples of their size, and that then says `answer`.
    fn by_units_of(unit: u64, answer: nix::Result<()>) -> DeviceReport {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        let drop_range = |step: Range<u64>| {
            let whole = step.start.div_ceil(unit) * unit..step.end / unit * unit;
            if !whole.is_empty() {
                punch(&file, whole)?;
            }
            answer
        };
        let report = discard_by(drop_range, &file, SIZE, &progress).unwrap();
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        check_zeroed(&file, SIZE, &progress).unwrap();
        report
    }

    #[test]
    fn what_a_device_keeps_is_found_and_made_zero() {
        let kept = |offset| Some(Fallback::DataLeft { offset });
        let (done, zeroed) = (WipeOutcome::DiscardedToZeros, WipeOutcome::Punched);
        for (unit, means, fallback) in [
            (512, done, None),
            // Ignores all of it.
            (1 << 60, zeroed, kept(0)),
            // Keeps the end, which is not a whole unit.
            (4096, zeroed, kept(3 * STEP)),
            (1 << 20, zeroed, kept(3 * STEP)),
            // Keeps what is around the seams.
            (192 << 10, zeroed, kept(STEP - BLOCK)),
        ] {
            let report = by_units_of(unit, Ok(()));
            assert_eq!((report.means, report.fallback), (means, fallback), "{unit}");
        }
    }

    #[test]
    fn what_a_device_cannot_discard_is_made_zero() {
        let report = by_units_of(1 << 60, Err(Errno::EOPNOTSUPP));
        let expected = (WipeOutcome::Punched, Some(Fallback::CannotDiscard));
        assert_eq!((report.means, report.fallback), expected);
    }

    /// A stack of devices may discard here and not there.
    #[test]
    fn a_discard_that_ends_halfway_is_counted_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        let drop_range = |step: Range<u64>| match step.start {
            0 => punch(&file, step),
            _ => Err(Errno::EOPNOTSUPP),
        };
        let report = discard_by(drop_range, &file, SIZE, &progress).unwrap();
        assert_eq!(report.fallback, Some(Fallback::CannotDiscard));
        assert_eq!(progress.bytes_done(), progress.bytes_total());
    }
}
