//! A work queue of keys: every key waits at most once, is handed out to one worker at a time, and
//! comes back after an exponential back-off when its work failed.
//!
//! Time is an argument, so that the queue has no clock of its own and tests need no sleep.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
    hash::Hash,
    time::{Duration, Instant},
};

/// The wait after the first failure; it doubles with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_millis(5);
/// The longest wait between two attempts, below the resync that would retry the key anyway.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// Keys that need work; see the module's documentation.
#[derive(Debug)]
pub(crate) struct WorkQueue<K: Ord> {
    ready: VecDeque<K>,
    /// Keys that need work, whether they wait in `ready` or for their running work to end.
    dirty: HashSet<K>,
    /// Keys whose work runs now.
    active: HashSet<K>,
    /// Keys that failed, or that were asked for later; the one that is due first is on top.
    delayed: BinaryHeap<Reverse<(Instant, K)>>,
    /// Failures in a row.
    failures: HashMap<K, u32>,
}

impl<K: Ord> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            active: HashSet::new(),
            delayed: BinaryHeap::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    /// Asks for work on `key`. A key that already waits is not queued twice; one whose work runs
    /// is queued again when that work ends, because it may have read the older state.
    pub(crate) fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) && !self.active.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Asks for work on `key` at a later time, whatever else happens to it until then.
    pub(crate) fn add_at(&mut self, key: K, due: Instant) {
        self.delayed.push(Reverse((due, key)));
    }

    /// Hands out the next key; the caller gives it back with [`WorkQueue::done`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(Reverse((_, key))) = self.delayed.pop() {
                self.add(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.active.insert(key.clone());
        Some(key)
    }

    /// Takes a key back. `succeeded` forgets its failures; otherwise it returns after a back-off.
    pub(crate) fn done(&mut self, key: K, succeeded: bool, now: Instant) {
        self.active.remove(&key);
        if self.dirty.contains(&key) {
            self.ready.push_back(key.clone());
        }
        if succeeded {
            self.failures.remove(&key);
        } else {
            let failures = self.failures.entry(key.clone()).or_default();
            let wait = back_off(*failures);
            *failures = failures.saturating_add(1);
            self.delayed.push(Reverse((now + wait, key)));
        }
    }

    /// Makes everything due that waits for a time.
    #[cfg(test)]
    pub(crate) fn hurry(&mut self) {
        for Reverse((_, key)) in std::mem::take(&mut self.delayed) {
            self.add(key);
        }
    }

    /// When the next of the keys that wait for a time is due, if any does.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((due, _))| *due)
    }
}

fn back_off(failures: u32) -> Duration {
    FIRST_BACK_OFF.saturating_mul(1 << failures.min(16)).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_handed_out_twice_at_a_time() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.add("a");
        assert_eq!(queue.take(now), Some("a"));
        queue.add("a");
        assert_eq!(queue.take(now), None, "its work still runs");
        queue.done("a", true, now);
        assert_eq!(queue.take(now), Some("a"), "the change during its work is not lost");
        queue.done("a", true, now);
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn failures_back_off_exponentially_and_success_forgets_them() {
        let (mut queue, mut now) = (WorkQueue::default(), Instant::now());
        queue.add("a");
        for wait in [5, 10, 20, 40] {
            assert_eq!(queue.take(now), Some("a"));
            queue.done("a", false, now);
            assert_eq!(queue.take(now), None);
            assert_eq!(queue.next_due(), Some(now + Duration::from_millis(wait)));
            now += Duration::from_millis(wait);
        }
        assert_eq!(queue.take(now), Some("a"));
        queue.done("a", true, now);
        assert_eq!(queue.next_due(), None);
        queue.add("a");
        queue.take(now);
        queue.done("a", false, now);
        assert_eq!(queue.next_due(), Some(now + FIRST_BACK_OFF));
        assert_eq!(back_off(u32::MAX), LONGEST_BACK_OFF);
    }
}
