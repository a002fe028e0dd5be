//! Waiting for what comes in its own time.

use std::time::{Duration, Instant};

/// A busy machine gives whoever it is some time only now and then.
const LIMIT: Duration = Duration::from_secs(15);

/// Looks again and again, with naps between, until there is something to see; `None` if that is not
/// within `limit`. A thread that stands still past its time looks once more: what it waits for may have
/// come long ago.
pub fn until<T>(limit: Duration, nap: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= deadline;
        let seen = look();
        if seen.is_some() || is_last {
            return seen;
        }
        std::thread::sleep(nap);
    }
}

/// Tries again for a while what fails because something is busy. So it seems to be while a program
/// looks at it, while another test looks for a free loop device, and while one starts a program: until
/// that runs, a copy of this process has all our descriptors, also those that are closed meanwhile.
pub fn while_busy<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut act: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let done = until(LIMIT, Duration::from_millis(5), || match act() {
        Err(error) if is_busy(&error) => None,
        done => Some(done),
    });
    done.unwrap_or_else(act)
}
