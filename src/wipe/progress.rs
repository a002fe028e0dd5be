//! The progress counters and the cancellation of a cleaner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use tokio::sync::watch;

use super::error::WipeError;
use super::pace::Pace;

/// How often a suspended cleaner checks whether it may continue.
const SUSPENDED_POLL: Duration = Duration::from_millis(100);

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
    state: watch::Sender<State>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Suspended,
    Cancelled(Cause),
}

/// Why a cleaner was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Shutdown,
    TimedOut,
    Ended(String),
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
        self.enter(State::Cancelled(Cause::Shutdown));
    }

    /// Cancels the cleaner because its time limit is over.
    pub fn time_out(&self) {
        self.enter(State::Cancelled(Cause::TimedOut));
    }

    /// Cancels the cleaner because the reason to clean has ended.
    pub fn end(&self, because: &str) {
        self.enter(State::Cancelled(Cause::Ended(because.to_owned())));
    }

    /// Suspends the cleaner (`true`) until it is resumed (`false`) or cancelled.
    pub fn suspend(&self, is_suspended: bool) {
        self.enter(if is_suspended { State::Suspended } else { State::Running });
    }

    /// The first cause of a cancellation counts.
    fn enter(&self, next: State) {
        self.0.state.send_if_modified(|state| {
            let is_changed = !matches!(state, State::Cancelled(_)) && *state != next;
            if is_changed {
                *state = next;
            }
            is_changed
        });
    }

    /// Whether the cleaner was cancelled, for any cause.
    pub fn is_cancelled(&self) -> bool {
        matches!(*self.0.state.borrow(), State::Cancelled(_))
    }

    /// Whether the cleaner was cancelled because its time limit is over.
    pub fn is_timed_out(&self) -> bool {
        *self.0.state.borrow() == State::Cancelled(Cause::TimedOut)
    }

    /// Why the reason to clean has ended, if the cleaner was cancelled for that.
    pub fn ended(&self) -> Option<String> {
        match &*self.0.state.borrow() {
            State::Cancelled(Cause::Ended(because)) => Some(because.clone()),
            _ => None,
        }
    }

    /// Whether the cleaner is suspended.
    pub fn is_suspended(&self) -> bool {
        *self.0.state.borrow() == State::Suspended
    }

    /// Cleaners call it between two steps. Blocks the thread while the cleaner is suspended.
    ///
    /// # Errors
    /// [`WipeError::Cancelled`] after a cancellation.
    pub fn check(&self) -> Result<(), WipeError> {
        while self.is_suspended() {
            sleep(SUSPENDED_POLL);
        }
        if self.is_cancelled() {
            return Err(WipeError::Cancelled);
        }
        Ok(())
    }

    /// Waits for the cancellation.
    pub async fn cancelled(&self) {
        self.wait_for(|it| matches!(it, State::Cancelled(_))).await;
    }

    /// Waits until the cleaner is suspended.
    pub async fn suspended(&self) {
        self.wait_for(|it| *it == State::Suspended).await;
    }

    /// Waits until the cleaner is not suspended.
    pub async fn resumed(&self) {
        self.wait_for(|it| *it != State::Suspended).await;
    }

    async fn wait_for(&self, is_reached: impl FnMut(&State) -> bool) {
        // The sender lives as long as this handle.
        let _ = self.0.state.subscribe().wait_for(is_reached).await;
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
        assert_eq!((watcher.entries(), watcher.bytes_done(), watcher.bytes_total()), (1, 4, 10));
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

    #[test]
    fn suspended_cleaner_waits_until_it_is_resumed_or_cancelled() {
        let end = |end: fn(&Progress)| {
            let progress = Progress::default();
            progress.suspend(true);
            let cleaner = progress.clone();
            let cleaner = std::thread::spawn(move || cleaner.check());
            sleep(2 * SUSPENDED_POLL);
            assert!(!cleaner.is_finished());
            end(&progress);
            cleaner.join().unwrap()
        };
        assert_eq!(end(|it| it.suspend(false)), Ok(()));
        assert_eq!(end(Progress::cancel), Err(WipeError::Cancelled));
    }

    #[test]
    fn cancelled_cleaner_is_not_resumed() {
        let progress = Progress::default();
        progress.suspend(true);
        progress.end("the PV is Bound again");
        progress.suspend(true);
        progress.suspend(false);
        progress.cancel();
        assert_eq!(progress.check(), Err(WipeError::Cancelled));
        assert_eq!(progress.ended().as_deref(), Some("the PV is Bound again"));
        let stopped = Progress::default();
        stopped.cancel();
        stopped.end("the PV is Bound again");
        assert_eq!(stopped.ended(), None);
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
