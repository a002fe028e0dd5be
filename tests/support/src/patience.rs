//! Devices and mounts that are busy for a moment.

use std::time::{Duration, Instant};

/// A busy machine gives whoever it is some time only now and then.
const LIMIT: Duration = Duration::from_secs(15);

/// Tries again for a while what fails because something is busy. So it seems to be while a program
/// looks at it, while another test looks for a free loop device, and while one starts a program: until
/// that runs, a copy of this process has all our descriptors, also those that are closed meanwhile.
///
/// # Errors
/// The first other one, or the last one.
pub fn while_busy<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut act: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + LIMIT;
    loop {
        // Before the try: a thread that stands still past its time tries once more.
        let is_last = Instant::now() >= deadline;
        match act() {
            Err(error) if is_busy(&error) && !is_last => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}
