//! For tests of what goes on while a system call hangs.

use std::sync::mpsc::{Sender, channel};

use tokio::runtime::{Builder, Runtime};

/// With one thread for system calls: while that one hangs, so does all that needs it.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap()
}

/// Keeps that thread busy until the sender is dropped.
pub(crate) fn hang() -> Sender<()> {
    let (release, hung) = channel();
    tokio::task::spawn_blocking(move || hung.recv());
    release
}
