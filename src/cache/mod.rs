//! What the API server says of the objects that concern us, kept up to date by watches.
//!
//! Each node holds its own PVs only, whatever the size of the cluster. Nothing here is fresh enough
//! to destroy data by: whoever does asks the API server again.

mod classes;
mod node;
mod pvs;

use futures::{Stream, StreamExt};
use kube::runtime::watcher;

pub use classes::ClassCache;
pub use node::NodeCache;
pub use pvs::{Learnt, PvCache};

use crate::cluster::{Cluster, chain};

/// Runs a watch for ever: hands its events on, reports its failures.
async fn follow<T>(
    cluster: Cluster,
    resource: &'static str,
    stream: impl Stream<Item = watcher::Result<T>>,
    mut each: impl FnMut(T),
) {
    let mut stream = std::pin::pin!(stream);
    let mut broken = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                if std::mem::take(&mut broken) {
                    tracing::info!(resource, "the watch works again");
                    cluster.permissions().granted(resource, "watch");
                    cluster.permissions().granted(resource, "list");
                }
                each(event);
            }
            Err(error) => {
                cluster.watch_broke(resource, &error);
                if !std::mem::replace(&mut broken, true) {
                    let error = chain(&error);
                    tracing::warn!(
                        resource,
                        error,
                        "the watch broke; it is started again, with pauses that grow"
                    );
                }
            }
        }
    }
}
