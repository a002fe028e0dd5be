//! The cache of StorageClasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Config;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Watch, is_listed};
use crate::cluster::Cluster;
use crate::view::StorageClassView;

/// How long the start waits for the first list.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// A watch of all StorageClasses, since a cluster has only a few.
#[derive(Debug)]
pub struct ClassCache {
    watched: Store<StorageClass>,
    _task: JoinSet<()>,
}

impl ClassCache {
    /// Starts the watch, which notifies `wake` of each change.
    #[must_use]
    pub fn start(cluster: &Cluster, wake: Arc<Notify>) -> Self {
        let (watched, writer) = reflector::store();
        let api = Api::all(cluster.client().clone());
        let watch = Watch::new(cluster, "storageclasses", api, Config::default());
        let mut task = JoinSet::new();
        task.spawn(watch.reflect(writer, move |_| wake.notify_one()));
        Self {
            watched,
            _task: task,
        }
    }

    /// Waits for the first list, up to a limit.
    pub async fn wait_for_first_list(&self) {
        let listed = self.watched.wait_until_ready();
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, listed).await;
    }

    /// The StorageClasses of these names: `None` for one that does not exist. Empty before the first list.
    #[must_use]
    pub fn views<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, Option<StorageClassView>> {
        let view = |name: &'a String| {
            let found = self.watched.get(&ObjectRef::new(name));
            (name.clone(), found.as_deref().map(StorageClassView::from))
        };
        names
            .filter(|_| is_listed(&self.watched))
            .map(view)
            .collect()
    }
}
