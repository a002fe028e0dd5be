//! The back-off of a failed watch.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{DefaultBackoff, Error};
use tokio::time::Instant;

use super::LONGEST_PAUSE;
use crate::cluster::is_unreachable;

/// A version that expires within this time after the last one is a fault of the API server.
const EXPIRES_AGAIN: Duration = Duration::from_secs(10);

/// A request that fails within this time after a successful probe did not fail by an outage. The API server may
/// abort the response, as with a list that is too large for it.
const FAILS_AGAIN: Duration = Duration::from_secs(5);

/// The condition that a watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// A duration.
    For(Duration),
    /// Until the API server can be reached.
    Unreachable,
}

/// The back-off state of one watch.
#[derive(Default)]
pub(super) struct Pauses {
    growing: DefaultBackoff,
    expired: Option<Instant>,
    reachable: Option<Instant>,
}

impl Pauses {
    /// The pause after this error. An outage or an expired version does not lengthen later pauses.
    pub(super) fn after(&mut self, error: &Error) -> Pause {
        match error {
            Error::InitialListFailed(error)
            | Error::WatchStartFailed(error)
            | Error::WatchFailed(error)
                if is_unreachable(error) && !self.fails_again() =>
            {
                Pause::Unreachable
            }
            error if has_expired(error) && !self.expires_again() => Pause::For(Duration::ZERO),
            _ => Pause::For(self.grow()),
        }
    }

    /// Records that a probe was answered.
    pub(super) fn reached(&mut self) {
        self.reachable = Some(Instant::now());
    }

    /// Resets the back-off, since the watch works.
    pub(super) fn reset(&mut self) {
        self.growing.reset();
    }

    fn fails_again(&self) -> bool {
        self.reachable.is_some_and(|at| at.elapsed() < FAILS_AGAIN)
    }

    fn expires_again(&mut self) -> bool {
        let before = self.expired.replace(Instant::now());
        before.is_some_and(|before| before.elapsed() < EXPIRES_AGAIN)
    }

    fn grow(&mut self) -> Duration {
        // The jitter can exceed the longest pause.
        let pause = self.growing.next().unwrap_or(LONGEST_PAUSE);
        pause.min(LONGEST_PAUSE)
    }
}

/// Whether the resourceVersion of a watch or of a list page has expired. The next request is a new list.
pub(super) fn has_expired(error: &Error) -> bool {
    match error {
        Error::WatchError(status) | Error::InitialListFailed(kube::Error::Api(status)) => {
            status.code == 410
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::core::Status;

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Status::failure("no", "Reason").with_code(code).boxed()
    }

    fn api(code: u16) -> kube::Error {
        kube::Error::Api(status(code))
    }

    fn reset() -> io::Error {
        io::Error::from(io::ErrorKind::ConnectionReset)
    }

    fn unreachable() -> [Error; 3] {
        [
            Error::WatchFailed(kube::Error::ReadEvents(reset())),
            Error::WatchStartFailed(kube::Error::Service(reset().into())),
            Error::InitialListFailed(kube::Error::Service(reset().into())),
        ]
    }

    fn grown(pauses: &mut Pauses, error: &Error) -> Duration {
        match pauses.after(error) {
            Pause::For(pause) => pause,
            Pause::Unreachable => panic!("{error} is an answer"),
        }
    }

    #[test]
    fn outage_and_expired_version_grow_no_pause() {
        let mut pauses = Pauses::default();
        for _ in 0..50 {
            for error in unreachable() {
                assert_eq!(pauses.after(&error), Pause::Unreachable, "{error}");
            }
        }
        let expired = Error::WatchError(status(410));
        assert_eq!(pauses.after(&expired), Pause::For(Duration::ZERO));
        // Otherwise an API server without history would receive lists without a pause.
        let again = Error::InitialListFailed(api(410));
        let (shortest, longest) = (Duration::from_millis(800), Duration::from_millis(1600));
        let pause = grown(&mut pauses, &again);
        assert!((shortest..=longest).contains(&pause), "{pause:?}");
    }

    #[test]
    fn list_that_fails_although_the_api_server_is_reachable_grows_the_pause() {
        let mut pauses = Pauses::default();
        let [_, _, failed_list] = unreachable();
        assert_eq!(pauses.after(&failed_list), Pause::Unreachable);
        pauses.reached();
        let first = grown(&mut pauses, &failed_list);
        assert!(first < Duration::from_secs(2), "{first:?}");
        assert!(grown(&mut pauses, &failed_list) > first);
        pauses.reachable = Instant::now().checked_sub(FAILS_AGAIN);
        assert_eq!(pauses.after(&failed_list), Pause::Unreachable, "an outage");
    }

    #[test]
    fn refused_watch_backs_off() {
        for error in [
            Error::InitialListFailed(api(403)),
            Error::WatchStartFailed(api(403)),
            Error::WatchStartFailed(api(429)),
            Error::WatchStartFailed(api(503)),
            Error::WatchError(status(500)),
            Error::NoResourceVersion,
        ] {
            let mut pauses = Pauses::default();
            let first = grown(&mut pauses, &error);
            assert!(first < Duration::from_secs(2), "{error}: {first:?}");
            let longest = (0..10).map(|_| grown(&mut pauses, &error)).max();
            assert_eq!(longest, Some(LONGEST_PAUSE), "{error}");
            pauses.reset();
            let first = grown(&mut pauses, &error);
            assert!(first < Duration::from_secs(2), "{error}: {first:?}");
        }
    }
}
