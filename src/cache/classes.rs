//! The cache of StorageClasses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::view::StorageClassView;

/// How long the start waits for the first list.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The names of the configured classes.
type Names = BTreeSet<String>;

/// A watch of all StorageClasses, since a cluster has only a few.
#[derive(Debug)]
pub struct ClassCache {
    ours: watch::Sender<Names>,
    watched: reflector::Store<StorageClass>,
    listed: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl ClassCache {
    /// Starts the watch, which notifies `wake` of each change of a configured class.
    #[must_use]
    pub fn start(cluster: &Cluster, ours: Names, wake: Arc<Notify>) -> Self {
        let (watched, writer) = reflector::store();
        let (send, listed) = watch::channel(false);
        let (ours, names) = watch::channel(ours);
        let api: Api<StorageClass> = Api::all(cluster.client().clone());
        let stream = watcher(api, watcher::Config::default())
            .modify(|class| class.metadata.managed_fields = None)
            .reflect(writer)
            .try_filter(super::is_answer);
        let each = move |event: watcher::Event<StorageClass>| {
            let is_relevant = match event {
                // An incomplete list does not show which classes are missing.
                watcher::Event::Init | watcher::Event::InitApply(_) => false,
                watcher::Event::InitDone => {
                    send.send_replace(true);
                    true
                }
                watcher::Event::Apply(class) | watcher::Event::Delete(class) => {
                    names.borrow().contains(&class.name_any())
                }
            };
            if is_relevant {
                wake.notify_one();
            }
        };
        let task = super::follow(cluster.clone(), "storageclasses", stream, each);
        Self {
            watched,
            listed,
            task: tokio::spawn(task),
            ours,
        }
    }

    /// Waits for the first list, up to a limit.
    pub async fn wait_for_first_list(&self) {
        let mut listed = self.listed.clone();
        let listed = listed.wait_for(|listed| *listed);
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, listed).await;
    }

    /// Sets the names of the configured classes.
    pub fn set_names(&self, ours: Names) {
        self.ours.send_replace(ours);
    }

    /// The configured StorageClasses for [`crate::plan::StorageClasses::Known`]: `None` for one that does not
    /// exist. Empty before the first list.
    #[must_use]
    pub fn views(&self) -> BTreeMap<String, Option<StorageClassView>> {
        if !*self.listed.borrow() {
            return BTreeMap::new();
        }
        let view = |name: &String| {
            let found = self.watched.get(&ObjectRef::new(name));
            (
                name.clone(),
                found.map(|class| StorageClassView::from(&*class)),
            )
        };
        self.ours.borrow().iter().map(view).collect()
    }
}

impl Drop for ClassCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}
