//! The progress counters and the cancellation of a cleaner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::error::WipeError;
use super::pace::Pace;

/// A handle that a cleaner shares with its observers. Cloning it is cheap.
///
/// The counters synchronize no other data, so relaxed atomics suffice.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: AtomicU64,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
    steps: AtomicU64,
    stalled_seconds: AtomicU64,
    timed_out: AtomicBool,
    cancelled: watch::Sender<bool>,
}

impl Progress {
    /// Directory entries removed so far.
    pub fn entries(&self) -> u64 {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Bytes wiped so far.
    pub fn bytes_done(&self) -> u64 {
        self.0.bytes_done.load(Ordering::Relaxed)
    }

    /// Total bytes to wipe, as far as known; 0 for deletions.
    pub fn bytes_total(&self) -> u64 {
        self.0.bytes_total.load(Ordering::Relaxed)
    }

    /// Counts one removed directory entry.
    pub fn add_entry(&self) {
        self.0.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts wiped bytes.
    pub fn add_bytes(&self, bytes: u64) {
        self.0.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Announces more bytes to wipe.
    pub fn expect_bytes(&self, bytes: u64) {
        self.0.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Retracts announced bytes that will not be wiped.
    pub fn retract_bytes(&self, bytes: u64) {
        self.0.bytes_total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a step that neither removes nor wipes anything, as activity.
    pub fn add_step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes whenever the cleaner makes progress.
    pub fn activity(&self) -> u64 {
        let steps = self.0.steps.load(Ordering::Relaxed);
        steps + self.entries() + self.bytes_done()
    }

    /// Records how long there was no activity, as measured by the observer.
    pub fn set_stalled(&self, stalled: Duration) {
        let seconds = stalled.as_secs();
        self.0.stalled_seconds.store(seconds, Ordering::Relaxed);
    }

    /// How long there was no activity, as recorded last.
    pub fn stalled(&self) -> Duration {
        Duration::from_secs(self.0.stalled_seconds.load(Ordering::Relaxed))
    }

    /// A snapshot of the counters after `elapsed`.
    pub fn pace(&self, elapsed: Duration) -> Pace {
        Pace {
            entries: self.entries(),
            bytes_done: self.bytes_done(),
            bytes_total: self.bytes_total(),
            elapsed,
        }
    }

    /// Cancels the cleaner, because the process shuts down. It cannot be undone.
    pub fn cancel(&self) {
        self.0.cancelled.send_replace(true);
    }

    /// Cancels the cleaner because its time limit is over.
    pub fn time_out(&self) {
        // The first cause counts.
        if !self.is_cancelled() {
            self.0.timed_out.store(true, Ordering::Relaxed);
        }
        self.cancel();
    }

    /// Whether the cleaner was cancelled, for any cause.
    pub fn is_cancelled(&self) -> bool {
        *self.0.cancelled.borrow()
    }

    /// Whether the cleaner was cancelled because its time limit is over.
    pub fn is_timed_out(&self) -> bool {
        self.0.timed_out.load(Ordering::Relaxed)
    }

    /// Cleaners call it between two steps.
    ///
    /// # Errors
    /// [`WipeError::Cancelled`] after a cancellation.
    pub fn check(&self) -> Result<(), WipeError> {
        if self.is_cancelled() {
            return Err(WipeError::Cancelled);
        }
        Ok(())
    }

    /// Waits for the cancellation.
    pub async fn cancelled(&self) {
        let mut cancelled = self.0.cancelled.subscribe();
        // The sender lives as long as this handle.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_counters_and_cancellation() {
        let progress = Progress::default();
        let watcher = progress.clone();
        progress.add_entry();
        progress.expect_bytes(10);
        progress.add_bytes(4);
        assert_eq!(
            (
                watcher.entries(),
                watcher.bytes_done(),
                watcher.bytes_total()
            ),
            (1, 4, 10)
        );
        assert_eq!(progress.check(), Ok(()));
        watcher.cancel();
        assert_eq!(progress.check(), Err(WipeError::Cancelled));
    }

    #[test]
    fn first_cause_of_a_cancellation_is_kept() {
        let (late, ended) = (Progress::default(), Progress::default());
        assert!(!late.is_timed_out());
        late.time_out();
        late.cancel();
        assert!(late.is_cancelled() && late.is_timed_out());
        assert_eq!(late.check(), Err(WipeError::Cancelled));
        ended.cancel();
        ended.time_out();
        assert!(ended.is_cancelled() && !ended.is_timed_out());
    }

    #[tokio::test]
    async fn cancellation_wakes_waiters_before_and_after_it() {
        let progress = Progress::default();
        let waiting = {
            let progress = progress.clone();
            tokio::spawn(async move { progress.cancelled().await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        progress.cancel();
        waiting.await.unwrap();
        progress.cancelled().await;
    }
}
