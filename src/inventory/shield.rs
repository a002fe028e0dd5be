//! Threads in system calls that may never return: on a dead disk or network filesystem nothing can
//! interrupt them. Such a thread is left behind until its call returns.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinHandle;

/// How many threads of one class may be left behind at a time.
pub(super) const MAX_STUCK: usize = 64;

/// The threads of a class that were left behind, by the names of what they look at.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    threads: FuturesUnordered<BoxFuture<'static, String>>,
    names: BTreeSet<String>,
}

impl Stuck {
    /// Leaves a thread behind.
    pub(super) fn push<T: Send + 'static>(&mut self, name: &str, thread: JoinHandle<T>) {
        let name = name.to_owned();
        self.names.insert(name.clone());
        self.threads.push(thread.map(|_| name).boxed());
    }

    /// Whether a thread still looks at this.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether no more threads may be left behind.
    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= MAX_STUCK
    }

    /// Waits until a thread has returned. May be dropped while it waits.
    pub(super) async fn returned(&mut self) {
        match self.threads.next().await {
            Some(name) => self.names.remove(&name),
            None => std::future::pending().await,
        };
    }

    /// Forgets the threads that have returned by now.
    pub(super) fn forget_returned(&mut self) {
        while let Some(()) = self.returned().now_or_never() {}
    }
}
