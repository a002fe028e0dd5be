//! Caches of the objects that concern this node, kept up to date by watches.
//!
//! Each node caches only its own PVs, so memory does not grow with the cluster. A cache may be stale: a cleanup
//! reads its objects again before it wipes.

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

use crate::cluster::{Cluster, is_denied, watch_error};

use pauses::{Pause, Pauses, has_expired};

/// The longest pause after the API server refused a watch. A permission that is granted takes effect within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// Filters out [`Event::Init`], which precedes each list request, even a denied one. It must not reset the
/// back-off or count as a granted permission.
pub(crate) fn is_answer<K>(event: &Event<K>) -> Ready<bool> {
    ready(!matches!(event, Event::Init))
}

/// Runs a watch until it is dropped: passes on its events, reports its failures and backs off after each. The
/// stream must be without [`Event::Init`] and without a back-off of its own.
pub(crate) async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    each: impl FnMut(T),
) {
    // Boxed to keep the caller's future small.
    Box::pin(follow_or_notify(
        cluster,
        resource,
        stream,
        each,
        &Notify::new(),
    ))
    .await;
}

/// As [`follow`]; also notifies `denied` whenever the API server denies the list or the watch.
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
        cluster.watch_failed(resource, &error);
        // An expired version is normal for a long watch, so it is not logged.
        if !has_expired(&error) && !std::mem::replace(&mut broken, true) {
            let error = watch_error(&error);
            tracing::warn!(resource, error, "the watch failed; it is restarted");
        }
        if is_denied(&error) {
            denied.notify_one();
        }
        match pauses.after(&error) {
            Pause::For(pause) => tokio::time::sleep(pause).await,
            // Boxed to keep the future of each watch small.
            Pause::Unreachable => {
                Box::pin(cluster.until_reachable()).await;
                pauses.reached();
            }
        }
    }
}
