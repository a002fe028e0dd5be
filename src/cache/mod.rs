//! What the API server says of the objects that concern us, kept up to date by watches.
//!
//! Each node holds its own PVs only, whatever the size of the cluster. Nothing here is fresh enough
//! to destroy data by: whoever does asks the API server again.

mod classes;
mod jobs;
mod node;
mod pauses;
mod pvs;

use std::future::{Ready, ready};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};

pub use classes::ClassCache;
pub use jobs::JobCache;
pub use node::NodeCache;
pub use pvs::{Learnt, PvCache};

use crate::cluster::{Cluster, why_broken};

use pauses::{Pause, Pauses, has_expired};

/// How often something is read that may not be watched.
const POLL: Duration = Duration::from_secs(30);
/// A watch that was listed for and has not failed for this long stands. Nothing says so.
const STANDS: Duration = Duration::from_secs(2);
/// The longest pause after the API server refused a watch. With the time above it is the latest that a
/// granted right is noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// What the API server has answered. [`Event::Init`] says only that it is about to be asked for a
/// list, also for one that it denies: that must not shorten the pauses, or look like a right.
pub(crate) fn tells_something<K>(event: &Event<K>) -> Ready<bool> {
    ready(!matches!(event, Event::Init))
}

/// Runs a watch for ever: hands its events on, reports its failures, and pauses after each. The stream
/// has no [`Event::Init`], and no back-off.
pub(crate) async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    mut each: impl FnMut(T),
) {
    let mut stream = std::pin::pin!(stream);
    let mut pauses = Pauses::default();
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
                pauses.reset();
                each(event);
            }
            Ok(Some(Err(error))) => {
                cluster.watch_broke(resource, &error);
                // That happens to every watch sooner or later.
                if !has_expired(&error) && !std::mem::replace(&mut broken, true) {
                    tracing::warn!(
                        resource,
                        error = why_broken(&error),
                        "the watch broke; it is started again"
                    );
                }
                match pauses.after(&error) {
                    Pause::For(pause) => tokio::time::sleep(pause).await,
                    // On the heap, or each watch would be larger by it all the time.
                    Pause::Unreachable => {
                        Box::pin(cluster.until_reachable()).await;
                        pauses.reached();
                    }
                }
                // Otherwise it goes on where it stopped, without a word.
                stands = (!lists_again(&error)).then_some(STANDS);
            }
        }
    }
}

/// Whether the next that the API server is asked for after this error is a list.
fn lists_again(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => true,
        error => has_expired(error),
    }
}
