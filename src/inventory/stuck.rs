//! Threads that are stuck in uninterruptible system calls, as on a dead disk or network filesystem. Nothing waits
//! for such a thread; it ends when its call returns.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinHandle;

/// The maximum number of stuck threads of one class.
pub(super) const MAX_STUCK: usize = 64;

/// The stuck threads of a class, by the names of their entries.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    threads: FuturesUnordered<BoxFuture<'static, String>>,
    names: BTreeSet<String>,
}

impl Stuck {
    /// Adds a thread.
    pub(super) fn push<T: Send + 'static>(&mut self, name: &str, thread: JoinHandle<T>) {
        let name = name.to_owned();
        self.names.insert(name.clone());
        self.threads.push(thread.map(|_| name).boxed());
    }

    /// Whether a thread is stuck on this entry.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the maximum is reached.
    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= MAX_STUCK
    }

    /// Waits until a thread has returned. Cancel-safe.
    pub(super) async fn returned(&mut self) {
        match self.threads.next().await {
            Some(name) => self.names.remove(&name),
            None => std::future::pending().await,
        };
    }

    /// Removes the threads that have returned.
    pub(super) fn forget_returned(&mut self) {
        while let Some(()) = self.returned().now_or_never() {}
    }
}
