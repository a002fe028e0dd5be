//! Makes a device drop its contents, and believes only what it then reads.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;

use super::direct::{ALIGN, Direct, Fill};
use super::{
    DISCARD, DeviceError, DeviceReport, Dropping, Fallback, Means, STEP, check_reset, check_zeroed,
    flush, ioctl, settle, zero,
};
use crate::clean::progress::Progress;

const BLOCK: u64 = ALIGN as u64;
/// Markers between both ends.
const SPREAD: u64 = 64;

/// Lets a device drop everything, and looks whether it then reads as zeros; where it does not, every
/// byte is made zero in the way of [`zero`].
///
/// A discard is a hint: a device may ignore it, or the parts of it that do not fit its own units.
/// That shows only where there was something to drop, so random bytes are written first, at both
/// ends and at places in between.
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
    let markers = markers(size);
    progress.expect_bytes(markers.iter().map(|marker| marker.end - marker.start).sum());
    let direct = Direct::new(device);
    for marker in &markers {
        direct.write(Fill::Random, marker.clone(), progress)?;
    }
    drop(direct);
    flush(device)?;
    let dropping = Dropping::new(size, progress);
    let discarded = DISCARD.in_steps(0..size, progress, |step| dropping.step(drop_range(step)))?;
    dropping.stops_at(discarded);
    let fallback = if discarded < size {
        Fallback::CannotDiscard
    } else {
        settle(device, size)?;
        match data_left(device, size, &markers)? {
            None => return Ok(Means::DiscardedToZeros.into()),
            Some(offset) => Fallback::DataLeft { offset },
        }
    };
    Ok(DeviceReport {
        fallback: Some(fallback),
        ..zero(device, size, progress)?
    })
}

/// Blocks that are not zero before the discard.
///
/// The device is told step by step. If its own units do not fit the steps, what lies around the seams
/// is never dropped, and the first seam shows it.
fn markers(size: u64) -> Vec<Range<u64>> {
    let last = size.saturating_sub(1);
    let spread = (0..SPREAD).map(|number| size / SPREAD * number);
    let starts: BTreeSet<u64> = [STEP - BLOCK, STEP, last]
        .into_iter()
        .chain(spread)
        .map(|place| place / BLOCK * BLOCK)
        .filter(|start| *start < size)
        .collect();
    let block = |start| start..size.min(start + BLOCK);
    starts.into_iter().map(block).collect()
}

/// The first block that was found not to be zero.
fn data_left(device: &File, size: u64, markers: &[Range<u64>]) -> Result<Option<u64>, DeviceError> {
    let look = || {
        let direct = Direct::new(device);
        for marker in markers {
            direct.check_zero(marker.clone(), &Progress::default())?;
        }
        drop(direct);
        check_zeroed(device, size)?;
        check_reset(device, size)
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
    use proptest::prelude::*;

    use super::*;
    use crate::clean::device::punch;

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
        check_zeroed(&file, SIZE).unwrap();
        report
    }

    #[test]
    fn what_a_device_keeps_is_found_and_made_zero() {
        let kept = |offset| Some(Fallback::DataLeft { offset });
        let (done, zeroed) = (Means::DiscardedToZeros, Means::Punched);
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
        let expected = (Means::Punched, Some(Fallback::CannotDiscard));
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

    #[test]
    fn markers_are_on_both_sides_of_the_first_seam() {
        let found = markers(10 * STEP);
        for start in [0, STEP - BLOCK, STEP, 10 * STEP - BLOCK] {
            assert!(found.contains(&(start..start + BLOCK)), "{start}");
        }
        assert_eq!(found.len(), 64 + 3);
    }

    proptest! {
        #[test]
        fn markers_are_aligned_apart_and_at_both_ends(sectors in 1_u64..=1 << 33) {
            let size = sectors * 512;
            let found = markers(size);
            prop_assert_eq!(found[0].start, 0);
            prop_assert_eq!(found[found.len() - 1].end, size);
            for marker in &found {
                prop_assert!(marker.start % BLOCK == 0 && marker.end > marker.start);
                prop_assert!(marker.end == size || marker.end - marker.start == BLOCK);
            }
            for pair in found.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
                // No sixty-fourth of the device is without one.
                prop_assert!(pair[1].start - pair[0].start <= size / SPREAD + 2 * BLOCK + SPREAD);
            }
        }
    }
}
