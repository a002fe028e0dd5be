//! The pauses between attempts at one thing.

use std::time::Duration;

/// Pauses that double from the first to the longest. What is tried on a changed basis starts with a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// A back-off before its first pause.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            longest,
        }
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(7));
        let pauses = [(); 4].map(|()| backoff.pause().as_secs());
        assert_eq!(pauses, [2, 4, 7, 7]);
    }
}
