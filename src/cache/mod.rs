//! What the API server says of the objects that concern us, kept up to date by watches.
//!
//! Each node holds its own PVs only, whatever the size of the cluster. Nothing here is fresh enough
//! to destroy data by: whoever does asks the API server again.

mod classes;
mod node;
mod pvs;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff};

pub use classes::ClassCache;
pub use node::NodeCache;
pub use pvs::{Learnt, PvCache};

use crate::cluster::{Cluster, Permissions, why_broken};

/// How often something is read that may not be watched.
const POLL: Duration = Duration::from_secs(30);
/// A watch that was listed for and has not failed for this long stands. Nothing says so.
const STANDS: Duration = Duration::from_secs(2);
/// The longest pause after a watch broke, and so the latest that a granted right is noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pauses after a watch broke. They grow until it works again.
struct Pauses {
    growing: DefaultBackoff,
    permissions: Arc<Permissions>,
    resource: &'static str,
}

impl Pauses {
    fn of(cluster: &Cluster, resource: &'static str) -> Self {
        Self {
            growing: DefaultBackoff::default(),
            permissions: Arc::clone(cluster.permissions()),
            resource,
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // Chance makes them up to twice as long.
        self.growing.next().map(|pause| pause.min(LONGEST_PAUSE))
    }
}

impl Backoff for Pauses {
    /// Called with each event. Where listing is allowed and watching is not, the list's events come
    /// each time, and prove nothing.
    fn reset(&mut self) {
        if !self.permissions.is_missing(self.resource, "watch") {
            self.growing.reset();
        }
    }
}

/// Runs a watch for ever: hands its events on, reports its failures.
async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    mut each: impl FnMut(T),
) {
    let mut stream = std::pin::pin!(stream);
    let mut broken = false;
    // Whether the list, which comes first, has come since it broke.
    let mut listed = false;
    loop {
        let next = if broken && listed {
            tokio::time::timeout(STANDS, stream.next()).await
        } else {
            Ok(stream.next().await)
        };
        match next {
            Err(_) => {
                tracing::info!(resource, "the watch works again");
                cluster.permissions().granted(resource, "watch");
                broken = false;
            }
            Ok(None) => return,
            Ok(Some(Ok(event))) => {
                if broken && !std::mem::replace(&mut listed, true) {
                    cluster.permissions().granted(resource, "list");
                }
                each(event);
            }
            Ok(Some(Err(error))) => {
                cluster.watch_broke(resource, &error);
                listed = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(permissions: &Arc<Permissions>) -> Duration {
        let mut pauses = Pauses {
            growing: DefaultBackoff::default(),
            permissions: Arc::clone(permissions),
            resource: "nodes",
        };
        let after_a_list = |_| {
            pauses.reset();
            pauses.next()
        };
        (0..50).filter_map(after_a_list).max().unwrap_or_default()
    }

    #[test]
    fn lists_that_work_do_not_shorten_the_pauses_of_a_watch_that_is_denied() {
        let permissions = Arc::default();
        assert!(longest(&permissions) < Duration::from_secs(2));
        permissions.denied("nodes", "watch", "no".into());
        assert_eq!(longest(&permissions), LONGEST_PAUSE);
    }
}
