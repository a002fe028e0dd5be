//! What the API server says of the objects that concern us, kept up to date by watches.
//!
//! Each node holds its own PVs only, whatever the size of the cluster. Nothing here is fresh enough
//! to destroy data by: a cleanup asks the API server again.

mod classes;
mod expectations;
mod jobs;
mod node;
mod pauses;
mod pvs;
mod unlabelled;

use std::future::{Ready, ready};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use tokio::sync::Notify;

pub use classes::ClassCache;
pub use expectations::Expectations;
pub use jobs::JobCache;
pub use node::NodeCache;
pub use pvs::PvCache;

use crate::cluster::{Cluster, is_denied, why_broken};

use pauses::{Pause, Pauses, has_expired};

/// The longest pause after the API server refused a watch, and so the latest that a granted permission is
/// noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// What the API server has answered. [`Event::Init`] says only that it is about to be asked for a
/// list, also for one that it denies: that must not shorten the pauses, or look like a permission.
pub(crate) fn tells_something<K>(event: &Event<K>) -> Ready<bool> {
    ready(!matches!(event, Event::Init))
}

/// Runs a watch for ever: hands its events on, reports its failures, and pauses after each. The stream has
/// no [`Event::Init`], and no back-off.
pub(crate) async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    each: impl FnMut(T),
) {
    // On the heap, or the caller's future would be as large.
    Box::pin(follow_or_notify(
        cluster,
        resource,
        stream,
        each,
        &Notify::new(),
    ))
    .await;
}

/// The same; `denied` is notified whenever the API server does not let us list or watch.
async fn follow_or_notify<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    mut each: impl FnMut(T),
    denied: &Notify,
) {
    let mut stream = std::pin::pin!(stream);
    let mut pauses = Pauses::default();
    let mut broken = false;
    while let Some(next) = stream.next().await {
        let error = match next {
            Ok(event) => {
                cluster.permissions().granted(resource, "list");
                if std::mem::take(&mut broken) {
                    tracing::info!(resource, "the watch works again");
                }
                pauses.reset();
                each(event);
                continue;
            }
            Err(error) => error,
        };
        cluster.watch_broke(resource, &error);
        // That happens to every watch sooner or later.
        if !has_expired(&error) && !std::mem::replace(&mut broken, true) {
            let error = why_broken(&error);
            tracing::warn!(resource, error, "the watch broke; it is started again");
        }
        if is_denied(&error) {
            denied.notify_one();
        }
        match pauses.after(&error) {
            Pause::For(pause) => tokio::time::sleep(pause).await,
            // On the heap, or each watch would be larger by it all the time.
            Pause::Unreachable => {
                Box::pin(cluster.until_reachable()).await;
                pauses.reached();
            }
        }
    }
}
