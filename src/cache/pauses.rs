//! The back-off of a failed watch.

use std::time::Duration;

use kube::runtime::watcher::{DefaultBackoff, Error};
use tokio::time::{Instant, sleep};

use super::LONGEST_PAUSE;
use crate::cluster::{Cluster, is_unreachable, refused};

/// A request that fails within this time after a successful probe did not fail by an outage. The API server may
/// abort the response, as with a list that is too large for it.
const FAILS_AGAIN: Duration = Duration::from_secs(5);

/// The back-off state of one watch.
#[derive(Default)]
pub(super) struct Pauses {
    /// Reset when the watch works.
    pub(super) growing: DefaultBackoff,
    reachable: Option<Instant>,
}

impl Pauses {
    /// Waits after this error: during an outage until the API server can be reached.
    pub(super) async fn wait_after(&mut self, error: &Error, cluster: &Cluster) {
        if let Some(pause) = self.after(error) {
            sleep(pause).await;
            // Another cluster does not have the version either.
            if refused(error).is_some_and(|(_, status)| status.code == 410) {
                cluster.until_reachable().await;
            }
        } else {
            cluster.until_reachable().await;
            self.reachable = Some(Instant::now());
        }
    }

    /// The pause after this error; `None` for an outage, which does not lengthen later pauses.
    fn after(&mut self, error: &Error) -> Option<Duration> {
        if let Error::InitialListFailed(error)
        | Error::WatchStartFailed(error)
        | Error::WatchFailed(error) = error
            && is_unreachable(error)
            && self.reachable.is_none_or(|at| at.elapsed() >= FAILS_AGAIN)
        {
            return None;
        }
        // The jitter can exceed the longest pause.
        let pause = self.growing.next().unwrap_or(LONGEST_PAUSE);
        Some(pause.min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::core::Status;
    use kube::runtime::utils::Backoff;

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
        let pause = pauses.after(error);
        pause.unwrap_or_else(|| panic!("{error} is an answer"))
    }

    #[test]
    fn outage_grows_no_pause() {
        let mut pauses = Pauses::default();
        for _ in 0..50 {
            for error in unreachable() {
                assert_eq!(pauses.after(&error), None, "{error}");
            }
        }
        // Otherwise an API server without history would receive lists without a pause.
        let expired = Error::WatchError(status(410));
        let (shortest, longest) = (Duration::from_millis(800), Duration::from_millis(1600));
        let pause = grown(&mut pauses, &expired);
        assert!((shortest..=longest).contains(&pause), "{pause:?}");
    }

    #[test]
    fn list_that_fails_although_the_api_server_is_reachable_grows_the_pause() {
        let mut pauses = Pauses::default();
        let [_, _, failed_list] = unreachable();
        assert_eq!(pauses.after(&failed_list), None);
        pauses.reachable = Some(Instant::now());
        let first = grown(&mut pauses, &failed_list);
        assert!(first < Duration::from_secs(2), "{first:?}");
        assert!(grown(&mut pauses, &failed_list) > first);
        pauses.reachable = Instant::now().checked_sub(FAILS_AGAIN);
        assert_eq!(pauses.after(&failed_list), None, "an outage");
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
            pauses.growing.reset();
            let first = grown(&mut pauses, &error);
            assert!(first < Duration::from_secs(2), "{error}: {first:?}");
        }
    }
}
