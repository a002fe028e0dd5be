//! The wall clock of the control planes of a thread. A simulation sets its own.

use std::{cell::Cell, time::Instant};

use jiff::Timestamp;

thread_local! {
    static CLOCK: Cell<fn() -> Timestamp> = const { Cell::new(Timestamp::now) };
}

/// Replaces the clock on this thread.
pub fn set(clock: fn() -> Timestamp) {
    CLOCK.set(clock);
}

pub(crate) fn now() -> Timestamp {
    CLOCK.get()()
}

/// The clock of the work queues: that of the runtime, which a test may stop.
pub(crate) fn instant() -> Instant {
    tokio::time::Instant::now().into_std()
}
