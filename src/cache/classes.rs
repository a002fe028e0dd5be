//! The cache of StorageClasses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
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
    /// The names that the latest pass asked for.
    used: watch::Sender<BTreeSet<String>>,
    _task: JoinSet<()>,
}

impl ClassCache {
    /// Starts the watch, which notifies `wake` of each change to a class in use.
    #[must_use]
    pub fn start(cluster: &Cluster, wake: Arc<Notify>) -> Self {
        let (watched, writer) = reflector::store();
        let api = Api::all(cluster.client().clone());
        let watch = Watch::new(cluster, "storageclasses", api, Config::default());
        let (used, known) = watch::channel(BTreeSet::new());
        let changed = move |event: Event<StorageClass>| {
            let is_used = match event {
                Event::Apply(class) | Event::Delete(class) => {
                    known.borrow().contains(&class.name_any())
                }
                Event::Init | Event::InitApply(_) | Event::InitDone => true,
            };
            if is_used {
                wake.notify_one();
            }
        };
        let mut task = JoinSet::new();
        task.spawn(watch.reflect(writer, changed));
        Self {
            watched,
            used,
            _task: task,
        }
    }

    /// Waits for the first list, up to a limit.
    pub async fn wait_for_first_list(&self) {
        let listed = self.watched.wait_until_ready();
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, listed).await;
    }

    /// The StorageClasses of these names for [`crate::plan::StorageClasses::Known`]: `None` for one that does not
    /// exist. Empty before the first list.
    #[must_use]
    pub fn views<'a>(
        &self,
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> BTreeMap<String, Option<StorageClassView>> {
        // Before the store is read, so that no change is missed.
        self.used.send_replace(names.clone().cloned().collect());
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
