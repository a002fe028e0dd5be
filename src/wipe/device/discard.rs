//! Discards the contents of a device and verifies the result by reading.

use std::fs::File;
use std::ops::Range;

use super::markers::{BLOCK, Markers};
use super::{
    DISCARD, DeviceError, DeviceReport, DropProgress, Fallback, WipeOutcome, check_reset,
    check_zeroed, ioctl, settle, zero,
};
use crate::wipe::progress::Progress;

/// Discards a whole device and checks that it reads as zeros. If it does not, falls back to [`zero`].
///
/// A discard is a hint: a device may ignore it, or the parts that do not match its own units.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written or read.
pub fn discard(device: &File, size: u64, progress: &Progress) -> Result<DeviceReport, DeviceError> {
    discard_by(|step| ioctl::discard(device, step), device, size, progress)
}

/// [`discard`] with a replaceable discard function for tests.
fn discard_by(
    drop_range: impl Fn(Range<u64>) -> nix::Result<()>,
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<DeviceReport, DeviceError> {
    let markers = Markers::write(device, size, progress)?;
    let dropped = DropProgress::new(size, progress);
    let discarded = DISCARD.in_steps(0..size, progress, |step| dropped.record(drop_range(step)))?;
    dropped.finish(discarded);
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

/// The first block that was found to contain data.
fn data_left(
    device: &File,
    size: u64,
    markers: &Markers,
    progress: &Progress,
) -> Result<Option<u64>, DeviceError> {
    if let Some(offset) = markers.left(device, progress)? {
        return Ok(Some(offset / BLOCK * BLOCK));
    }
    let check = || {
        check_zeroed(device, size, progress)?;
        check_reset(device, size, progress)
    };
    match check() {
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

    /// Discards a file like a device that drops only whole, aligned units and then returns `result`.
    fn discard_in_units(unit: u64, result: nix::Result<()>) -> DeviceReport {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        let drop_range = |step: Range<u64>| {
            let whole = step.start.div_ceil(unit) * unit..step.end / unit * unit;
            if !whole.is_empty() {
                punch(&file, whole)?;
            }
            result
        };
        let report = discard_by(drop_range, &file, SIZE, &progress).unwrap();
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        check_zeroed(&file, SIZE, &progress).unwrap();
        report
    }

    #[test]
    fn data_that_a_discard_leaves_is_found_and_zeroed() {
        let kept = |offset| Some(Fallback::DataLeft { offset });
        let (done, zeroed) = (WipeOutcome::DiscardedToZeros, WipeOutcome::Punched);
        for (unit, outcome, fallback) in [
            (512, done, None),
            // Ignores the discard.
            (1 << 60, zeroed, kept(0)),
            // Keeps the last, partial unit.
            (4096, zeroed, kept(3 * STEP)),
            (1 << 20, zeroed, kept(3 * STEP)),
            // Keeps the units that span two requests.
            (192 << 10, zeroed, kept(STEP - BLOCK)),
        ] {
            let report = discard_in_units(unit, Ok(()));
            let found = (report.outcome, report.fallback);
            assert_eq!(found, (outcome, fallback), "{unit}");
        }
    }

    #[test]
    fn device_without_discard_is_zeroed() {
        let report = discard_in_units(1 << 60, Err(Errno::EOPNOTSUPP));
        let expected = (WipeOutcome::Punched, Some(Fallback::CannotDiscard));
        assert_eq!((report.outcome, report.fallback), expected);
    }

    /// A stacked device may support discard only in some ranges.
    #[test]
    fn progress_is_complete_after_a_partial_discard() {
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
