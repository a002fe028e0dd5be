//! Discards the contents of a device and verifies the result by reading.

use std::fs::File;
use std::ops::Range;

use super::markers::Markers;
use super::{DeviceError, WipeOutcome, check_reset, check_zeroed, in_steps, ioctl, settle, zero};
use crate::wipe::progress::Progress;

/// Discards a whole device and checks that it reads as zeros. If it does not, falls back to [`zero`].
///
/// A discard is a hint: a device may ignore it, or the parts that do not match its own units.
///
/// `device` is open for writing and `size` (in bytes) was read from it.
///
/// # Errors
/// When anything cannot be written or read.
pub fn discard(device: &File, size: u64, progress: &Progress) -> Result<WipeOutcome, DeviceError> {
    discard_by(|step| ioctl::discard(device, step), device, size, progress)
}

/// [`discard`] with a replaceable discard function for tests.
fn discard_by(
    drop_range: impl Fn(Range<u64>) -> nix::Result<()>,
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<WipeOutcome, DeviceError> {
    let markers = Markers::write(device, size, progress)?;
    progress.expect_bytes(size);
    let discarded = in_steps("discard", 0..size, progress, drop_range)?;
    progress.retract_bytes(size - discarded);
    if discarded < size {
        tracing::warn!(?device, "the device cannot discard; zeroing it");
        return zero(device, size, 1, progress);
    }
    settle(device, size)?;
    let checked = markers
        .check(device, progress)
        .and_then(|()| check_zeroed(device, size, progress))
        .and_then(|()| check_reset(device, size, progress));
    match checked {
        Ok(()) => Ok(WipeOutcome::DiscardedToZeros),
        Err(left @ (DeviceError::NotZero { .. } | DeviceError::SignatureLeft(_))) => {
            tracing::warn!(
                ?device,
                "discard reported success, but {left}; zeroing the device"
            );
            zero(device, size, 1, progress)
        }
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
    fn discard_in_units(unit: u64, result: nix::Result<()>) -> WipeOutcome {
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
        let outcome = discard_by(drop_range, &file, SIZE, &progress).unwrap();
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        check_zeroed(&file, SIZE, &progress).unwrap();
        outcome
    }

    #[test]
    fn data_that_a_discard_leaves_is_found_and_zeroed() {
        let (done, zeroed) = (WipeOutcome::DiscardedToZeros, WipeOutcome::Punched);
        for (unit, outcome) in [
            (512, done),
            // Ignores the discard.
            (1 << 60, zeroed),
            // Keeps the last, partial unit.
            (4096, zeroed),
            (1 << 20, zeroed),
            // Keeps the units that span two requests.
            (192 << 10, zeroed),
        ] {
            assert_eq!(discard_in_units(unit, Ok(())), outcome, "{unit}");
        }
    }

    #[test]
    fn device_without_discard_is_zeroed() {
        let outcome = discard_in_units(1 << 60, Err(Errno::EOPNOTSUPP));
        assert_eq!(outcome, WipeOutcome::Punched);
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
        let outcome = discard_by(drop_range, &file, SIZE, &progress).unwrap();
        assert_eq!(outcome, WipeOutcome::Punched);
        assert_eq!(progress.bytes_done(), progress.bytes_total());
    }
}
