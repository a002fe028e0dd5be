//! How many volumes are cleaned at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::host::mounts::DeviceNumber;

/// Hands out permits: so many altogether, and one for each disk that has to seek.
#[derive(Debug)]
pub struct Permits {
    all: Arc<Places>,
    disks: DashMap<DeviceNumber, Arc<Places>>,
}

/// The right to use the disks, for as long as it lives. The first step of a cleanup: everything that
/// is looked at before it may have changed by the time that it is granted.
#[derive(Debug)]
pub struct Permit(Shares);

type Shares = Arc<Mutex<Vec<Place>>>;

/// Takes a permit away from a cleanup that makes no progress: a dead disk must not keep the others
/// from being cleaned.
#[derive(Debug)]
pub struct Recall(Shares);

impl Permit {
    /// The way to take it away.
    #[must_use]
    pub fn recall(&self) -> Recall {
        Recall(Arc::clone(&self.0))
    }
}

impl Recall {
    /// Gives the permit's places to those who wait for one.
    pub fn now(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Permits {
    /// `limit` is `maxConcurrentCleanups`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            all: Arc::new(Places::new(limit)),
            disks: DashMap::new(),
        }
    }

    /// Changes the limit. With a smaller one, those that have a permit keep it, and nobody gets one
    /// until they are few enough.
    pub fn resize(&self, limit: usize) {
        self.all.resize(limit);
    }

    /// Waits until one more cleanup may use these disks. Disks come first, in order, so that nobody
    /// holds one of the few places while waiting for a disk, and no two wait for each other.
    pub async fn acquire(&self, disks: &BTreeSet<DeviceNumber>) -> Permit {
        let mut shares = Vec::with_capacity(disks.len() + 1);
        let queues = disks
            .iter()
            .map(|disk| {
                let queue = self
                    .disks
                    .entry(*disk)
                    .or_insert_with(|| Arc::new(Places::new(1)));
                Arc::clone(&queue)
            })
            .chain([Arc::clone(&self.all)])
            .collect::<Vec<_>>();
        for queue in queues {
            shares.push(queue.take().await);
        }
        Permit(Arc::new(Mutex::new(shares)))
    }
}

/// A number of places that can be changed while they are taken.
#[derive(Debug)]
struct Places {
    free: Arc<Semaphore>,
    count: Mutex<Count>,
}

#[derive(Debug)]
struct Count {
    limit: usize,
    /// How many more are taken than there are: these do not become free.
    excess: usize,
}

/// One that is taken, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Places {
    fn new(limit: usize) -> Self {
        let excess = 0;
        Self {
            free: Arc::new(Semaphore::new(limit)),
            count: Mutex::new(Count { limit, excess }),
        }
    }

    /// Those who wait get theirs in turn.
    async fn take(self: Arc<Self>) -> Place {
        // The semaphore is never closed; if it were, nobody would be kept out by it.
        let taken = Arc::clone(&self.free).acquire_owned().await.ok();
        Place {
            places: self,
            taken,
        }
    }

    fn resize(&self, limit: usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let (more, fewer) = (
            limit.saturating_sub(count.limit),
            count.limit.saturating_sub(limit),
        );
        let granted = more.min(count.excess);
        self.free.add_permits(more - granted);
        count.excess -= granted;
        count.excess += fewer - self.free.forget_permits(fewer);
        count.limit = limit;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let count = self.places.count.lock();
        let mut count = count.unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = self.taken.take()
            && let Some(rest) = count.excess.checked_sub(1)
        {
            taken.forget();
            count.excess = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(permits: &Permits, disks: &[u32]) -> Option<Permit> {
        let disks = disks
            .iter()
            .map(|minor| DeviceNumber {
                major: 8,
                minor: *minor,
            })
            .collect();
        tokio::time::timeout(Duration::from_millis(20), permits.acquire(&disks))
            .await
            .ok()
    }

    #[tokio::test]
    async fn a_cleanup_that_hangs_gives_its_place_to_others() {
        let permits = Permits::new(1);
        let hung = soon(&permits, &[0]).await.unwrap();
        assert!(soon(&permits, &[1]).await.is_none());
        hung.recall().now();
        assert!(soon(&permits, &[1]).await.is_some());
    }

    #[tokio::test]
    async fn a_disk_that_seeks_is_cleaned_once_at_a_time_and_holds_nobody_else_up() {
        let permits = Permits::new(2);
        let first = soon(&permits, &[0]).await.unwrap();
        assert!(soon(&permits, &[0]).await.is_none(), "the same disk");
        let other = soon(&permits, &[1]).await.unwrap();
        assert!(soon(&permits, &[]).await.is_none(), "two at most");
        drop(other);
        let _ssd = soon(&permits, &[]).await.unwrap();
        drop(first);
        assert!(soon(&permits, &[0]).await.is_some());
    }

    #[tokio::test]
    async fn the_limit_can_be_changed_while_permits_are_out() {
        let permits = Permits::new(3);
        let mut out = Vec::new();
        for _ in 0..3 {
            out.push(soon(&permits, &[]).await.unwrap());
        }
        permits.resize(1);
        for left in [2, 1] {
            out.pop();
            assert_eq!(out.len(), left);
            assert!(soon(&permits, &[]).await.is_none(), "{left} are out still");
        }
        out.pop();
        out.push(soon(&permits, &[]).await.unwrap());
        assert!(soon(&permits, &[]).await.is_none(), "one at most");
        permits.resize(2);
        out.push(soon(&permits, &[]).await.unwrap());
        assert!(soon(&permits, &[]).await.is_none(), "two at most");
        permits.resize(1);
        permits.resize(3);
        out.push(soon(&permits, &[]).await.unwrap());
        assert!(soon(&permits, &[]).await.is_none(), "three at most");
    }

    #[tokio::test]
    async fn who_waits_is_let_in_by_a_larger_limit() {
        let permits = Permits::new(1);
        let first = soon(&permits, &[]).await.unwrap();
        let disks = BTreeSet::new();
        let waiting = permits.acquire(&disks);
        let grow = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            permits.resize(2);
        };
        let both = async { tokio::join!(waiting, grow) };
        let (second, ()) = tokio::time::timeout(Duration::from_secs(2), both)
            .await
            .unwrap();
        drop((first, second));
    }
}
