//! The progress, rate and remaining time of a cleanup.

use std::fmt;
use std::time::Duration;

use crate::config::duration;

/// A snapshot of a cleaner's counters with the elapsed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Directory entries removed.
    pub entries: u64,
    /// Bytes wiped.
    pub bytes_done: u64,
    /// Bytes to wipe, as far as known; 0 for deletions.
    pub bytes_total: u64,
    /// The time since the start.
    pub elapsed: Duration,
}

#[allow(clippy::cast_precision_loss, reason = "estimates with at most three significant digits")]
impl Pace {
    /// The wiped fraction of the bytes, from 0 to 1. `None` if the total is not known.
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes_total > 0).then(|| self.bytes_done as f64 / self.bytes_total as f64)
    }

    /// Average bytes per second since the start. `None` before the first byte.
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (self.bytes_done > 0 && seconds > 0.0).then(|| self.bytes_done as f64 / seconds)
    }

    /// The estimated remaining time. `None` without a rate or a total.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.bytes_total.checked_sub(self.bytes_done)?;
        Duration::try_from_secs_f64(rest as f64 / self.rate()?).ok()
    }

    /// What was done, and how long it took: `1.0 TiB wiped in 2h10m`.
    pub fn summary(&self) -> String {
        let seconds = Duration::from_secs(self.elapsed.as_secs());
        let took = if seconds.is_zero() {
            format!("{} ms", self.elapsed.as_millis())
        } else {
            duration::format(seconds)
        };
        match (self.bytes_done, self.entries) {
            (0, 0) => format!("in {took}"),
            (0, entries) => format!("{entries} entries removed in {took}"),
            (bytes, _) => format!("{} wiped in {took}", amount(bytes)),
        }
    }
}

/// The text for the log and for events: `1.5 GiB of 4.0 GiB wiped (37 %), 300.0 MiB/s, 8s left`.
impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ratio) = self.ratio() {
            let (done, total) = (amount(self.bytes_done), amount(self.bytes_total));
            // Rounded down: 100 % only when all bytes are wiped.
            let percent = (100.0 * ratio).floor();
            write!(f, "{done} of {total} wiped ({percent} %)")?;
            if let Some(rate) = self.rate() {
                write!(f, ", {}/s", bytes(rate))?;
            }
            if let Some(left) = self.left() {
                let whole = Duration::from_secs(left.as_secs());
                write!(f, ", {} left", duration::format(whole))?;
            }
            Ok(())
        } else {
            write!(f, "{} entries removed", self.entries)
        }
    }
}

/// A number of bytes with one decimal: `1.5 GiB`.
#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn amount(count: u64) -> String {
    bytes(count as f64)
}

fn bytes(amount: f64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if amount < 1024.0 {
        return format!("{amount:.0} bytes");
    }
    let mut amount = amount / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn summary_has_what_was_wiped_and_the_time() {
        for (entries, bytes_done, millis, words) in [
            (0, 0, 180_000, "in 3m"),
            (12, 0, 62, "12 entries removed in 62 ms"),
            (0, 3 * MIB, 7_800_999, "3.0 MiB wiped in 2h10m"),
        ] {
            let pace = Pace {
                entries,
                bytes_done,
                bytes_total: bytes_done,
                elapsed: Duration::from_millis(millis),
            };
            assert_eq!(pace.summary(), words);
        }
    }

    #[test]
    fn pace_is_formatted_with_units_and_remaining_time() {
        for (entries, done, total, seconds, words) in [
            (0, 0, 0, 30, "0 entries removed"),
            (1234, 0, 0, 30, "1234 entries removed"),
            (0, 0, 4096 * MIB, 30, "0 bytes of 4.0 GiB wiped (0 %)"),
            (0, 1536 * MIB, 4096 * MIB, 5, "1.5 GiB of 4.0 GiB wiped (37 %), 307.2 MiB/s, 8s left"),
            (
                0,
                MIB,
                4 * MIB * MIB,
                4096,
                "1.0 MiB of 4.0 TiB wiped (0 %), 256 bytes/s, 4772184h44m48s left",
            ),
            (0, 4 * MIB - 1, 4 * MIB, 1, "4.0 MiB of 4.0 MiB wiped (99 %), 4.0 MiB/s, 0s left"),
            (0, MIB, MIB, 1, "1.0 MiB of 1.0 MiB wiped (100 %), 1.0 MiB/s, 0s left"),
            (0, 512, 1024, 0, "512 bytes of 1.0 KiB wiped (50 %)"),
        ] {
            let pace = Pace {
                entries,
                bytes_done: done,
                bytes_total: total,
                elapsed: Duration::from_secs(seconds),
            };
            assert_eq!(pace.to_string(), words);
        }
    }

    #[test]
    fn unknown_values_are_none() {
        let pace = |bytes_done, bytes_total, seconds| Pace {
            entries: 7,
            bytes_done,
            bytes_total,
            elapsed: Duration::from_secs(seconds),
        };
        for (pace, ratio, rate, left) in [
            (pace(0, 0, 9), None, None, None),
            (pace(0, 8, 9), Some(0.0), None, None),
            (pace(2, 8, 0), Some(0.25), None, None),
            (pace(2, 8, 4), Some(0.25), Some(0.5), Some(12)),
            (pace(8, 8, 4), Some(1.0), Some(2.0), Some(0)),
            // More bytes than announced.
            (pace(9, 8, 3), Some(1.125), Some(3.0), None),
        ] {
            let left = left.map(Duration::from_secs);
            assert_eq!((pace.ratio(), pace.rate(), pace.left()), (ratio, rate, left));
        }
    }
}
