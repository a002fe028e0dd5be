//! A second thread that unlinks files, for filesystems on which that is faster.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use super::batch::Batch;

/// The maximum number of batches that wait for the helper. It has work even if the walk is delayed. Each
/// batch has an open directory.
const QUEUE_LENGTH: usize = 8;

/// The stack size in bytes; the helper needs less.
const STACK_SIZE: usize = 128 << 10;

/// The thread, if there is one. Dropping this waits until the thread has finished its current share.
#[derive(Default)]
pub(super) struct Helper(Option<(SyncSender<Weak<Batch>>, JoinHandle<()>)>);

impl Helper {
    /// Starts the thread. If none can be started, the walk works alone.
    pub(super) fn start() -> Self {
        let (batches, offered) = sync_channel(QUEUE_LENGTH);
        let thread = thread::Builder::new().stack_size(STACK_SIZE);
        let thread = thread.spawn(move || help(&offered)).ok();
        Self(thread.map(|thread| (batches, thread)))
    }

    /// Offers a batch. Returns `false` if the queue is full. The helper stops working on it when the caller drops
    /// the batch.
    pub(super) fn offer(&self, batch: &Arc<Batch>) -> bool {
        let sent = |to: &SyncSender<_>| to.try_send(Arc::downgrade(batch)).is_ok();
        self.0.as_ref().is_some_and(|(batches, _)| sent(batches))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some((batches, thread)) = self.0.take() {
            drop(batches);
            // A panic was already logged.
            let _ = thread.join();
        }
    }
}

fn help(offered: &Receiver<Weak<Batch>>) {
    for batch in offered {
        while batch.upgrade().is_some_and(|batch| batch.unlink_share()) {}
    }
}
