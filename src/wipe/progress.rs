//! How far a cleaner has come, and the way to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::pace::Pace;

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
    steps: AtomicU64,
    stalled_seconds: AtomicU64,
    is_gone: AtomicBool,
    stop: OnceLock<Cause>,
    wake: Notify,
}

/// Why a cleaner is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Shutdown,
    TimeLimit,
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

    /// Takes back some of the announced bytes: they will not be wiped.
    pub fn expect_less(&self, bytes: u64) {
        self.0.bytes_total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes a step that neither removes nor wipes anything: a sign of life.
    pub fn add_step(&self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes whenever a cleaner does something.
    #[must_use]
    pub fn signs_of_life(&self) -> u64 {
        let steps = self.0.steps.load(Ordering::Relaxed);
        [steps, self.entries(), self.bytes_done()]
            .into_iter()
            .fold(0, u64::wrapping_add)
    }

    /// Says for how long there was no sign of life. Who looks at the signs from time to time knows.
    pub fn set_stalled(&self, still: Duration) {
        let seconds = still.as_secs();
        self.0.stalled_seconds.store(seconds, Ordering::Relaxed);
    }

    /// For how long there was no sign of life, as was said last.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        Duration::from_secs(self.0.stalled_seconds.load(Ordering::Relaxed))
    }

    /// The data is proven to be gone; what is still done may be left out.
    pub fn data_is_gone(&self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
    }

    /// Whether [`data_is_gone`](Self::data_is_gone) was said.
    #[must_use]
    pub fn is_data_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// All the counters, and what follows from them if they took so long.
    #[must_use]
    pub fn pace(&self, elapsed: Duration) -> Pace {
        Pace {
            entries: self.entries(),
            bytes_done: self.bytes_done(),
            bytes_total: self.bytes_total(),
            elapsed,
        }
    }

    /// Tells the cleaner to stop, since the program ends. It does within a second; there is no way
    /// back.
    pub fn cancel(&self) {
        self.stop(Cause::Shutdown);
    }

    /// The same, since its time is over.
    pub fn time_out(&self) {
        self.stop(Cause::TimeLimit);
    }

    fn stop(&self, cause: Cause) {
        // The first cause counts.
        let _ = self.0.stop.set(cause);
        self.0.wake.notify_waiters();
    }

    /// Whether the cleaner was told to stop, for whatever cause.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.stop.get().is_some()
    }

    /// Whether the cleaner was told to stop since its time is over.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.0.stop.get() == Some(&Cause::TimeLimit)
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

    /// Waits until the cleaner is told to stop.
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

    #[test]
    fn the_first_cause_to_stop_counts() {
        let (late, ended) = (Progress::default(), Progress::default());
        assert!(!late.is_timed_out());
        late.time_out();
        late.cancel();
        assert!(late.is_cancelled() && late.is_timed_out());
        assert_eq!(late.check(), Err(Cancelled));
        ended.cancel();
        ended.time_out();
        assert!(ended.is_cancelled() && !ended.is_timed_out());
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
