//! A second thread that unlinks files, where the filesystem is faster that way.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use super::batch::Batch;

/// Batches that wait for the helper: enough that it has something to do while the walk removes a
/// directory's files by itself, also when that has to wait for a CPU. Each has an open directory.
const WAITING: usize = 8;

/// More than its few calls need.
const STACK: usize = 128 << 10;

/// The thread. It ends with this value, at the latest when it has unlinked the share it is at.
pub(super) struct Helper {
    batches: Option<SyncSender<Weak<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// `None` where no thread is to be had.
    pub(super) fn start() -> Option<Self> {
        let (batches, offered) = sync_channel(WAITING);
        let thread = thread::Builder::new().stack_size(STACK);
        let thread = thread.spawn(move || help(&offered)).ok()?;
        Some(Self {
            batches: Some(batches),
            thread: Some(thread),
        })
    }

    /// Whether the helper will come to the batch: it may have enough to do. It works at it only as
    /// long as somebody else keeps the batch.
    pub(super) fn offer(&self, batch: &Arc<Batch>) -> bool {
        let sent = |to: &SyncSender<_>| to.try_send(Arc::downgrade(batch)).is_ok();
        self.batches.as_ref().is_some_and(sent)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Should it have panicked, that has been told, and its share is in nobody's books.
            let _ = thread.join();
        }
    }
}

fn help(offered: &Receiver<Weak<Batch>>) {
    for batch in offered {
        while batch.upgrade().is_some_and(|batch| batch.unlink_share()) {}
    }
}
