//! No more requests in a second than the API server is asked to bear.

use std::num::NonZeroU16;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Gives each request a moment of its own. There are no bursts, so no second sees more than the rate.
#[derive(Debug)]
pub struct Limiter {
    gap: Duration,
    next: Mutex<Instant>,
}

impl Limiter {
    /// So many requests per second.
    #[must_use]
    pub fn new(per_second: NonZeroU16) -> Self {
        Self {
            gap: Duration::from_secs(1) / u32::from(per_second.get()),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until `requests` more may be made.
    pub async fn admit(&self, requests: u32) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.gap * requests;
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_spread_over_the_second() {
        let limiter = Limiter::new(100.try_into().unwrap());
        let begun = Instant::now();
        for _ in 0..10 {
            limiter.admit(2).await;
        }
        // The first may go at once.
        assert!(
            begun.elapsed() >= Duration::from_millis(180),
            "{:?}",
            begun.elapsed()
        );
    }
}
