//! How many volumes are cleaned at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::host::mounts::DeviceNumber;

/// Hands out permits: so many altogether, and one for each disk that has to seek.
#[derive(Debug)]
pub struct Permits {
    all: Arc<Semaphore>,
    disks: DashMap<DeviceNumber, Arc<Semaphore>>,
}

/// The right to use the disks, for as long as it lives. The first step of a cleanup: everything that
/// is looked at before it may have changed by the time that it is granted.
#[derive(Debug)]
pub struct Permit(Shares);

type Shares = Arc<Mutex<Vec<OwnedSemaphorePermit>>>;

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
            all: Arc::new(Semaphore::new(limit)),
            disks: DashMap::new(),
        }
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
                    .or_insert_with(|| Arc::new(Semaphore::new(1)));
                Arc::clone(&queue)
            })
            .chain([Arc::clone(&self.all)])
            .collect::<Vec<_>>();
        for queue in queues {
            // These semaphores are never closed; if one were, nobody would be kept out by it.
            if let Ok(share) = queue.acquire_owned().await {
                shares.push(share);
            }
        }
        Permit(Arc::new(Mutex::new(shares)))
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
}
