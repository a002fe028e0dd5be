//! The pauses between attempts at one thing.

use std::time::Duration;

/// Pauses that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// The pause after a failure that followed this number of consecutive failures.
    pub fn pause(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff {
            first: Duration::from_secs(2),
            longest: Duration::from_secs(7),
        };
        let pauses = [0, 1, 2, 3, 40].map(|failures| backoff.pause(failures).as_secs());
        assert_eq!(pauses, [2, 4, 7, 7, 7]);
    }
}
