//! Random blocks that show whether a device really discards.
//!
//! A device may acknowledge a request and ignore it, or ignore the parts that do not match its own units.
//! This is detectable only in blocks that were not zero before.

use std::collections::BTreeSet;
use std::ops::Range;

use super::STEP;
use super::direct::ALIGN;

pub const BLOCK: u64 = ALIGN as u64;
/// The number of markers spread over the device.
const SPREAD: u64 = 256;

/// The ranges of the markers. Some are at the first boundary between two requests: a device whose units do
/// not match the requests never discards the data around the boundaries.
pub fn places(size: u64) -> Vec<Range<u64>> {
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
    fn markers_are_on_both_sides_of_the_first_request_boundary() {
        let found = places(10 * STEP);
        for start in [0, STEP - BLOCK, STEP, 10 * STEP - BLOCK] {
            assert!(found.contains(&(start..start + BLOCK)), "{start}");
        }
        assert_eq!(found.len(), 256 + 3);
    }

    proptest! {
        #[test]
        fn markers_are_aligned_disjoint_and_at_both_ends(sectors in 1_u64..=1 << 33) {
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
                // Each part of the device has a marker.
                prop_assert!(pair[1].start - pair[0].start <= size / SPREAD + 2 * BLOCK + SPREAD);
            }
        }
    }
}
