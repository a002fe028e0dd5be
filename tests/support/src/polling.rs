//! Polling with a deadline.

use std::time::{Duration, Instant};

/// A busy machine runs a process only now and then.
const LIMIT: Duration = Duration::from_secs(15);
/// Tests that look more often while they wait for long leave no processor for what they wait for.
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// The result of a look: `true` or `Some` once the awaited state is there.
pub trait Seen {
    type Found;

    fn seen(self) -> Option<Self::Found>;
}

impl Seen for bool {
    type Found = ();

    fn seen(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Seen for Option<T> {
    type Found = T;

    fn seen(self) -> Self {
        self
    }
}

/// Calls `look` after each `nap`, which becomes longer, until it sees something; `None` if it does not within `limit`. A thread
/// that was suspended past the deadline calls it once more: the event may be long past.
pub fn until<S: Seen>(
    limit: Duration,
    mut nap: Duration,
    mut look: impl FnMut() -> S,
) -> Option<S::Found> {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= deadline;
        let found = look().seen();
        if found.is_some() || is_last {
            return found;
        }
        std::thread::sleep(nap);
        nap = nap.mul_f32(1.2).min(LONGEST_NAP.max(nap));
    }
}

/// Retries for a while what fails because something is busy: while a program reads it, while another
/// test looks for a free loop device, or between fork and exec, when a copy of this process has all our
/// descriptors, also those that are closed meanwhile.
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
