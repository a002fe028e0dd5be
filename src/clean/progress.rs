//! How far a cleaner has come, and the way to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// A handle that a cleaner and its watchers share; cloning it is cheap.
///
/// The counters only ever grow and nothing is decided by them, so relaxed atomics do: the deletion
/// of a million files must not pay for being watched.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: AtomicU64,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
    cancelled: AtomicBool,
    wake: Notify,
}

/// The cleaner was told to stop, and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was told to stop before it was done; cleaning starts again from the beginning")]
pub struct Cancelled;

impl Progress {
    /// Directory entries removed so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Bytes wiped so far.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.0.bytes_done.load(Ordering::Relaxed)
    }

    /// Bytes to wipe altogether, as far as that is known; 0 for deletions, whose end nobody knows.
    #[must_use]
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

    /// Announces bytes that are going to be wiped, in addition to those announced before.
    pub fn expect_bytes(&self, bytes: u64) {
        self.0.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Tells the cleaner to stop. It does within a second; there is no way back.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.wake.notify_waiters();
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// For cleaners: call it between any two steps.
    ///
    /// # Errors
    /// [`Cancelled`] once the cleaner is to stop.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            Err(Cancelled)
        } else {
            Ok(())
        }
    }

    /// Waits until [`cancel`](Self::cancel) is called.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            let mut woken = std::pin::pin!(self.0.wake.notified());
            // Enrolled before the second look, so that a cancel in between is not missed.
            woken.as_mut().enable();
            if !self.is_cancelled() {
                woken.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_counters() {
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
        assert_eq!(progress.check(), Err(Cancelled));
    }

    #[tokio::test]
    async fn a_cancel_wakes_who_waits_for_it_before_and_after() {
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
