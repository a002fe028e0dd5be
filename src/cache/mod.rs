//! What the API server says of the objects that concern us, kept up to date by watches.
//!
//! Each node holds its own PVs only, whatever the size of the cluster. Nothing here is fresh enough
//! to destroy data by: whoever does asks the API server again.

mod classes;
mod jobs;
mod node;
mod pvs;

use std::future::{Ready, ready};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event};

pub use classes::ClassCache;
pub use jobs::JobCache;
pub use node::NodeCache;
pub use pvs::{Learnt, PvCache};

use crate::cluster::{Cluster, why_broken};

/// How often something is read that may not be watched.
const POLL: Duration = Duration::from_secs(30);
/// A watch that was listed for and has not failed for this long stands. Nothing says so.
const STANDS: Duration = Duration::from_secs(2);
/// The longest pause after a watch broke. With the time above it is the latest that a granted right
/// is noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// The pauses after a watch broke. They grow until it works again.
#[derive(Default)]
pub(crate) struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // Chance makes them up to twice as long.
        self.0.next().map(|pause| pause.min(LONGEST_PAUSE))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// What the API server has answered. [`Event::Init`] says only that it is about to be asked for a
/// list, also for one that it denies: that must not shorten the pauses, or look like a right.
pub(crate) fn tells_something<K>(event: &Event<K>) -> Ready<bool> {
    ready(!matches!(event, Event::Init))
}

/// Runs a watch for ever: hands its events on, reports its failures. The stream has no
/// [`Event::Init`].
pub(crate) async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    mut each: impl FnMut(T),
) {
    let mut stream = std::pin::pin!(stream);
    let mut broken = false;
    // For how long nothing must fail until a broken watch is known to work again. While a list has to
    // come first, no silence tells that.
    let mut stands = None;
    loop {
        let next = match stands.filter(|_| broken) {
            Some(silence) => tokio::time::timeout(silence, stream.next()).await,
            None => Ok(stream.next().await),
        };
        match next {
            Err(_) => {
                tracing::info!(resource, "the watch works again");
                cluster.permissions().granted(resource, "watch");
                broken = false;
            }
            Ok(None) => return,
            Ok(Some(Ok(event))) => {
                cluster.permissions().granted(resource, "list");
                stands = Some(STANDS);
                each(event);
            }
            Ok(Some(Err(error))) => {
                cluster.watch_broke(resource, &error);
                // Otherwise it goes on where it stopped, after the pause and without a word.
                stands = (!lists_again(&error)).then_some(LONGEST_PAUSE + STANDS);
                if !std::mem::replace(&mut broken, true) {
                    tracing::warn!(
                        resource,
                        error = why_broken(&error),
                        "the watch broke; it is started again, with pauses that grow"
                    );
                }
            }
        }
    }
}

/// Whether the next that the API server is asked for after this error is a list.
fn lists_again(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => true,
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_the_longest() {
        let longest = Pauses::default().take(50).max();
        assert_eq!(longest, Some(LONGEST_PAUSE));
    }
}
