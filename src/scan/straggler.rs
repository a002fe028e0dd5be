//! Work that may end after it was given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// What such work and the one who waits for it know of each other.
///
/// When it has both been given up and ended, `wake` is told, once: by the work, or by the one who
/// gave it up in the very moment in which it ended. There is no moment between for it to be lost in.
#[derive(Debug)]
pub(super) struct Straggler {
    state: AtomicU8,
    wake: Arc<Notify>,
}

const ENDED: u8 = 1;
const GIVEN_UP: u8 = 2;
/// Nobody is to be told.
const UNTOLD: u8 = 4;

impl Straggler {
    /// Work that has begun.
    pub(super) fn new(wake: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(0),
            wake: Arc::clone(wake),
        })
    }

    /// For the work, which ends when it drops this, also when it panics.
    pub(super) fn ending(self: &Arc<Self>) -> Ending {
        Ending(Arc::clone(self))
    }

    /// Waits for it no longer.
    pub(super) fn give_up(&self) {
        if self.state.fetch_or(GIVEN_UP, Ordering::AcqRel) == ENDED {
            self.wake.notify_one();
        }
    }

    /// Waits for it no longer, and does not want to know.
    pub(super) fn forget(&self) {
        self.state.fetch_or(GIVEN_UP | UNTOLD, Ordering::AcqRel);
    }

    /// Whether it was given up: the work may as well stop.
    pub(super) fn is_given_up(&self) -> bool {
        self.state.load(Ordering::Acquire) & GIVEN_UP != 0
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whether its end was told.
    pub(super) fn was_told(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED | GIVEN_UP
    }

    fn end(&self) {
        if self.state.fetch_or(ENDED, Ordering::AcqRel) == GIVEN_UP {
            self.wake.notify_one();
        }
    }
}

/// The end of the work.
#[derive(Debug)]
pub(super) struct Ending(Arc<Straggler>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        End,
        GiveUp,
        Forget,
    }
    use Step::{End, Forget, GiveUp};

    /// How often it is told of these steps.
    fn told(steps: &[Step]) -> usize {
        let wake = Arc::new(Notify::new());
        let work = Straggler::new(&wake);
        let mut ending = Some(work.ending());
        let told = |step: &Step| {
            match step {
                End => drop(ending.take()),
                GiveUp => work.give_up(),
                Forget => work.forget(),
            }
            usize::from(wake.notified().now_or_never().is_some())
        };
        steps.iter().map(told).sum()
    }

    #[test]
    fn the_end_is_told_once_if_nobody_waits_for_it() {
        for (steps, times) in [
            (&[End][..], 0),
            (&[GiveUp], 0),
            (&[GiveUp, End], 1),
            (&[End, GiveUp], 1),
            (&[GiveUp, GiveUp, End], 1),
            (&[GiveUp, End, GiveUp], 1),
            (&[End, GiveUp, GiveUp], 1),
            (&[Forget, End], 0),
            (&[End, Forget], 0),
        ] {
            assert_eq!(told(steps), times, "{steps:?}");
        }
    }

    #[test]
    fn a_panic_is_an_end() {
        let wake = Arc::new(Notify::new());
        let work = Straggler::new(&wake);
        work.give_up();
        let ending = work.ending();
        let thread = std::thread::spawn(move || {
            let _ending = ending;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        assert!(work.has_ended() && wake.notified().now_or_never().is_some());
    }

    /// However the two meet.
    #[test]
    fn no_end_is_lost() {
        for _ in 0..2000 {
            let wake = Arc::new(Notify::new());
            let work = Straggler::new(&wake);
            let ending = work.ending();
            let thread = std::thread::spawn(move || drop(ending));
            work.give_up();
            thread.join().unwrap();
            assert!(wake.notified().now_or_never().is_some());
        }
    }
}
