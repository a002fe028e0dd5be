//! A second thread that unlinks files, for filesystems on which that is faster.

use std::sync::Weak;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::batch::Batch;

/// Sends batches to the helper. It stops working on one when the walk drops it.
pub(super) type Helper = SyncSender<Weak<Batch>>;

/// The maximum number of batches that wait for the helper. It has work even if the walk is delayed. Each
/// batch has an open directory.
const QUEUE_LENGTH: usize = 8;

/// The stack size in bytes; the helper needs less.
const STACK_SIZE: usize = 128 << 10;

/// Runs a walk with a helper. Returns after both have ended. If no thread can be started, the walk works alone.
pub(super) fn with_helper<T>(walk: impl FnOnce(Helper) -> T) -> T {
    thread::scope(|scope| {
        let (helper, batches) = sync_channel::<Weak<Batch>>(QUEUE_LENGTH);
        let help = move || {
            for batch in batches {
                while batch.upgrade().is_some_and(|batch| batch.unlink_share()) {}
            }
        };
        let thread = thread::Builder::new().stack_size(STACK_SIZE);
        let _ = thread.spawn_scoped(scope, help);
        walk(helper)
    })
}
