//! The StorageClasses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster};
use crate::view::StorageClassView;

use super::{POLL, Pauses};

/// The StorageClasses that we use: `None` is one that does not exist; one that is not in here could
/// not be read so far.
type Views = BTreeMap<String, Option<StorageClassView>>;

/// A watch of all StorageClasses, of which a cluster has a handful. Where that is not allowed, those
/// of our classes are read now and then.
#[derive(Debug)]
pub struct ClassCache {
    ours: Vec<String>,
    views: watch::Receiver<Views>,
    task: JoinHandle<()>,
}

/// How long the start waits for the first answer.
const FIRST_LIST: Duration = Duration::from_secs(2);

impl ClassCache {
    /// Starts watching. `ours` are the names of the configured classes; `wake` is told of every
    /// change.
    #[must_use]
    pub fn start(cluster: &Cluster, ours: Vec<String>, wake: Arc<Notify>) -> Self {
        let (send, views) = watch::channel(Views::new());
        let (cluster, names) = (cluster.clone(), ours.clone());
        let task = tokio::spawn(async move {
            let learn = |found: Views| {
                let learn = |views: &mut Views| {
                    let before = views.clone();
                    views.extend(found);
                    *views != before
                };
                if send.send_if_modified(learn) {
                    wake.notify_one();
                }
            };
            tokio::select! {
                () = watch_all(&cluster, &names, learn) => {}
                () = read_when_denied(&cluster, &names, learn) => {}
            }
        });
        Self { ours, views, task }
    }

    /// Waits a moment for the first answers.
    pub async fn settle(&self) {
        let mut views = self.views.clone();
        let known = views.wait_for(|views| views.len() == self.ours.len());
        let _ = tokio::time::timeout(FIRST_LIST, known).await;
    }

    /// The StorageClasses, by name, as [`crate::plan::StorageClasses::Known`] has them.
    #[must_use]
    pub fn views(&self) -> BTreeMap<String, Option<StorageClassView>> {
        self.views.borrow().clone()
    }
}

impl Drop for ClassCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_all(cluster: &Cluster, ours: &[String], learn: impl Fn(Views)) {
    let (store, writer) = reflector::store();
    let api: Api<StorageClass> = Api::all(cluster.client().clone());
    let stream = watcher(api, watcher::Config::default())
        .modify(|class| class.metadata.managed_fields = None)
        .reflect(writer)
        .try_filter(super::tells_something)
        .backoff(Pauses::default());
    super::follow(cluster.clone(), "storageclasses", stream, |event| {
        // A list that is not complete says nothing of those that have not come yet.
        if !matches!(event, watcher::Event::InitApply(_)) {
            // What becomes of others' classes must not wake anybody.
            let mut views: Views = ours.iter().map(|name| (name.clone(), None)).collect();
            for class in store.state() {
                if let Some(view) = views.get_mut(&class.name_any()) {
                    *view = Some(StorageClassView::from(&*class));
                }
            }
            learn(views);
        }
    })
    .await;
}

/// Roles may allow to get a StorageClass, and not to list and watch them all.
async fn read_when_denied(cluster: &Cluster, ours: &[String], learn: impl Fn(Views)) {
    // The last fault told of each class.
    let mut told = BTreeMap::new();
    loop {
        let rights = [("storageclasses", "list"), ("storageclasses", "watch")];
        cluster.permissions().until_missing(&rights).await;
        for name in ours {
            match cluster.storage_class(name).await {
                Ok(class) => learn(Views::from([(name.clone(), Some(class))])),
                Err(ApiError::NotFound) => learn(Views::from([(name.clone(), None)])),
                Err(error) => {
                    let error = error.to_string();
                    if told.get(name) != Some(&error) {
                        tracing::warn!(class = name, %error, "reading the StorageClass failed; going on with what was known before");
                    }
                    told.insert(name, error);
                    continue;
                }
            }
            told.remove(name);
        }
        tokio::time::sleep(POLL).await;
    }
}
