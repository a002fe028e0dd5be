//! The StorageClasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster};
use crate::view::StorageClassView;

use super::{POLL, Pauses};

type Views = BTreeMap<String, StorageClassView>;

/// A watch of all StorageClasses, of which a cluster has a handful. Where that is not allowed, those
/// of our classes are read now and then.
#[derive(Debug)]
pub struct ClassCache {
    /// `None` until they were read.
    views: watch::Receiver<Option<Views>>,
    task: JoinHandle<()>,
}

/// How long the start waits for the first list.
const FIRST_LIST: Duration = Duration::from_secs(2);

impl ClassCache {
    /// Starts watching. `ours` are the names of the configured classes; `wake` is told of every
    /// change.
    #[must_use]
    pub fn start(cluster: &Cluster, ours: Vec<String>, wake: Arc<Notify>) -> Self {
        let (send, views) = watch::channel(None);
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            let set = |found: Views| {
                let changed = send.send_if_modified(|views| {
                    let changed = views.as_ref() != Some(&found);
                    *views = Some(found);
                    changed
                });
                if changed {
                    wake.notify_one();
                }
            };
            tokio::select! {
                () = watch_all(&cluster, &ours, set) => {}
                () = read_when_denied(&cluster, &ours, set) => {}
            }
        });
        Self { views, task }
    }

    /// Waits a moment for the first answer, so that no class is called missing only because it is
    /// still on its way.
    pub async fn settle(&self) {
        let mut views = self.views.clone();
        let known = views.wait_for(Option::is_some);
        let _ = tokio::time::timeout(FIRST_LIST, known).await;
    }

    /// The StorageClasses, by name.
    #[must_use]
    pub fn views(&self) -> Views {
        self.views.borrow().clone().unwrap_or_default()
    }
}

impl Drop for ClassCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_all(cluster: &Cluster, ours: &[String], set: impl Fn(Views)) {
    let (store, writer) = reflector::store();
    let api: Api<StorageClass> = Api::all(cluster.client().clone());
    let stream = watcher(api, watcher::Config::default())
        .backoff(Pauses::of(cluster, "storageclasses"))
        .modify(|class| class.metadata.managed_fields = None)
        .reflect(writer);
    super::follow(cluster.clone(), "storageclasses", stream, |event| {
        // A list that is not complete says nothing of those that have not come yet.
        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            let classes = store.state();
            let views = classes
                .iter()
                .map(|class| (class.name_any(), StorageClassView::from(&**class)));
            // What becomes of others' classes must not wake anybody.
            set(views.filter(|(name, _)| ours.contains(name)).collect());
        }
    })
    .await;
}

/// Roles may allow to get a StorageClass, and not to list and watch them all.
async fn read_when_denied(cluster: &Cluster, ours: &[String], set: impl Fn(Views)) {
    let mut views = Views::new();
    loop {
        let rights = [("storageclasses", "list"), ("storageclasses", "watch")];
        cluster.permissions().until_missing(&rights).await;
        for name in ours {
            match cluster.storage_class(name).await {
                Ok(class) => drop(views.insert(name.clone(), class)),
                Err(ApiError::NotFound) => drop(views.remove(name)),
                Err(error) => {
                    tracing::warn!(class = name, %error, "reading the StorageClass failed; going on with what was known before");
                }
            }
        }
        set(views.clone());
        tokio::time::sleep(POLL).await;
    }
}
