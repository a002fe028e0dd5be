//! Whether something goes on that has to.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything that has to go on may be silent.
const SILENCE: Duration = Duration::from_mins(3);

/// The last sign of life of something.
#[derive(Debug)]
pub struct Pulse(Mutex<Instant>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Pulse {
    /// It lives.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether it has lived not long ago.
    #[must_use]
    pub fn is_felt(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.elapsed() < SILENCE
    }
}
