//! The wall clock of the control planes of a thread. A simulation sets its own.

use std::cell::Cell;

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
