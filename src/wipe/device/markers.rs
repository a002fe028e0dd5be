//! Blocks of random bytes that show whether a device really does what it is told.
//!
//! A device may acknowledge a request and ignore it, or the parts of it that do not fit its own units.
//! That shows only where there was something else than zeros before.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;

use super::direct::{ALIGN, Direct, Fill};
use super::{DeviceError, STEP, flush, ioctl};
use crate::wipe::progress::Progress;

pub const BLOCK: u64 = ALIGN as u64;
/// Markers between both ends.
pub const SPREAD: u64 = 64;

/// Blocks on a device that are not zero.
pub struct Markers(Vec<Range<u64>>);

impl Markers {
    /// Writes them to the disk.
    pub fn write(device: &File, size: u64, progress: &Progress) -> Result<Self, DeviceError> {
        let places = places(size);
        let direct = Direct::new(device);
        for place in &places {
            progress.check()?;
            progress.add_step();
            // Not counted: so little, and it will be wiped once more.
            direct.write(Fill::Random, place.clone(), &Progress::default())?;
        }
        drop(direct);
        flush(device)?;
        Ok(Self(places))
    }

    /// The first byte at their places, in bytes from the start of the device, that is not zero.
    pub fn left(&self, device: &File, progress: &Progress) -> Result<Option<u64>, DeviceError> {
        ioctl::drop_cache(device);
        let direct = Direct::new(device);
        for place in &self.0 {
            match direct.check_sample(place.clone(), progress) {
                Ok(()) => {}
                Err(DeviceError::NotZero { offset }) => return Ok(Some(offset)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The device is told step by step. If its own units do not fit the steps, what lies around the seams
/// is never dropped, and the first seam shows it.
fn places(size: u64) -> Vec<Range<u64>> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn they_are_on_both_sides_of_the_first_seam() {
        let found = places(10 * STEP);
        for start in [0, STEP - BLOCK, STEP, 10 * STEP - BLOCK] {
            assert!(found.contains(&(start..start + BLOCK)), "{start}");
        }
        assert_eq!(found.len(), 64 + 3);
    }

    proptest! {
        #[test]
        fn they_are_aligned_apart_and_at_both_ends(sectors in 1_u64..=1 << 33) {
            let size = sectors * 512;
            let found = places(size);
            prop_assert_eq!(found[0].start, 0);
            prop_assert_eq!(found[found.len() - 1].end, size);
            for place in &found {
                prop_assert!(place.start % BLOCK == 0 && place.end > place.start);
                prop_assert!(place.end == size || place.end - place.start == BLOCK);
            }
            for pair in found.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
                // No sixty-fourth of the device is without one.
                prop_assert!(pair[1].start - pair[0].start <= size / SPREAD + 2 * BLOCK + SPREAD);
            }
        }
    }
}
