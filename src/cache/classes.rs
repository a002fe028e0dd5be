//! The StorageClasses.

use std::collections::{BTreeMap, BTreeSet};
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

/// The StorageClasses that we use: `None` is one that does not exist; one that is not in here could
/// not be read so far.
type Views = BTreeMap<String, Option<StorageClassView>>;

/// The names of the configured classes.
type Names = BTreeSet<String>;

/// A watch of all StorageClasses, of which a cluster has a handful. Where that is denied, those of the
/// configuration are read whenever the watch is retried.
#[derive(Debug)]
pub struct ClassCache {
    ours: watch::Sender<Names>,
    known: watch::Receiver<Known>,
    task: JoinHandle<()>,
}

/// How long the start waits for the first answer.
const FIRST_LIST: Duration = Duration::from_secs(2);

/// All classes, of others too: the next configuration may use them.
#[derive(Debug, Default)]
struct Known {
    views: Views,
    /// Whether what is not among them does not exist.
    all: bool,
}

impl Known {
    fn of(&self, names: &Names) -> Views {
        let view = |name: &String| match self.views.get(name) {
            Some(view) => Some((name.clone(), view.clone())),
            None => self.all.then(|| (name.clone(), None)),
        };
        names.iter().filter_map(view).collect()
    }
}

impl ClassCache {
    /// Starts watching. `ours` are the names of the configured classes; `wake` is notified of each change
    /// of these.
    #[must_use]
    pub fn start(cluster: &Cluster, ours: Names, wake: Arc<Notify>) -> Self {
        let (send, known) = watch::channel(Known::default());
        let (ours, names) = watch::channel(ours);
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            let learn = |change: &dyn Fn(&mut Known)| {
                let learn = |known: &mut Known| {
                    // Changes of others' classes do not wake the loop. Read under this lock: the first pass
                    // with a class that is served from a later moment on waits for it, and finds the change.
                    let ours = names.borrow();
                    let before = known.of(&ours);
                    change(known);
                    known.of(&ours) != before
                };
                if send.send_if_modified(learn) {
                    wake.notify_one();
                }
            };
            let denied = Notify::new();
            tokio::select! {
                () = watch_all(&cluster, &denied, learn) => {}
                () = read_when_denied(&cluster, &names, &denied, learn) => {}
            }
        });
        Self { ours, known, task }
    }

    /// From now on these are the names of the configured classes.
    pub fn serve(&self, ours: Names) {
        self.ours.send_replace(ours);
    }

    /// Waits a moment for the first answers.
    pub async fn settle(&self) {
        let ours = self.ours.borrow().clone();
        let mut known = self.known.clone();
        let all = known.wait_for(|known| known.of(&ours).len() == ours.len());
        let _ = tokio::time::timeout(FIRST_LIST, all).await;
    }

    /// The StorageClasses, by name, as [`crate::plan::StorageClasses::Known`] has them.
    #[must_use]
    pub fn views(&self) -> Views {
        self.known.borrow().of(&self.ours.borrow())
    }
}

impl Drop for ClassCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_all(cluster: &Cluster, denied: &Notify, learn: impl Fn(&dyn Fn(&mut Known))) {
    let (store, writer) = reflector::store();
    let api: Api<StorageClass> = Api::all(cluster.client().clone());
    let stream = watcher(api, watcher::Config::default())
        .modify(|class| class.metadata.managed_fields = None)
        .reflect(writer)
        .try_filter(super::tells_something);
    let each = |event| {
        // A list that is not complete says nothing of those that have not come yet.
        if !matches!(event, watcher::Event::InitApply(_)) {
            learn(&|known| {
                let classes = store.state();
                let view = |class: &StorageClass| (class.name_any(), Some(class.into()));
                known.views = classes.iter().map(|class| view(class)).collect();
                known.all = true;
            });
        }
    };
    super::follow_or_notify(cluster.clone(), "storageclasses", stream, each, denied).await;
}

/// Roles may allow to get a StorageClass, and not to list and watch them all.
async fn read_when_denied(
    cluster: &Cluster,
    names: &watch::Receiver<Names>,
    denied: &Notify,
    learn: impl Fn(&dyn Fn(&mut Known)),
) {
    loop {
        denied.notified().await;
        let ours = names.borrow().clone();
        for name in ours {
            let view = match cluster.storage_class(&name).await {
                Ok(class) => Some(class),
                Err(ApiError::NotFound) => None,
                Err(error) => {
                    tracing::debug!(class = name, %error, "reading the StorageClass failed");
                    continue;
                }
            };
            learn(&|known| {
                known.views.insert(name.clone(), view.clone());
            });
        }
    }
}
