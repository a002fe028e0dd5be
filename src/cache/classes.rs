//! The StorageClasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::view::StorageClassView;

/// A watch of all StorageClasses; a cluster has a handful.
#[derive(Debug)]
pub struct ClassCache {
    store: reflector::Store<StorageClass>,
    task: JoinHandle<()>,
}

/// How long the start waits for the first list.
const FIRST_LIST: Duration = Duration::from_secs(2);

impl ClassCache {
    /// Starts watching. `wake` is told of every change.
    #[must_use]
    pub fn start(cluster: &Cluster, wake: Arc<Notify>) -> Self {
        let (store, writer) = reflector::store();
        let api: Api<StorageClass> = Api::all(cluster.client().clone());
        let stream = watcher(api, watcher::Config::default())
            .default_backoff()
            .modify(|class| class.metadata.managed_fields = None)
            .reflect(writer);
        let each = move |_| wake.notify_one();
        let task = tokio::spawn(super::follow(
            cluster.clone(),
            "storageclasses",
            stream,
            each,
        ));
        Self { store, task }
    }

    /// Waits a moment for the first list, so that no class is called missing only because the answer
    /// is still on its way.
    pub async fn settle(&self) {
        let _ = tokio::time::timeout(FIRST_LIST, self.store.wait_until_ready()).await;
    }

    /// The StorageClasses, by name.
    #[must_use]
    pub fn views(&self) -> BTreeMap<String, StorageClassView> {
        let classes = self.store.state();
        classes
            .iter()
            .map(|class| (class.name_any(), StorageClassView::from(&**class)))
            .collect()
    }
}

impl Drop for ClassCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}
