//! The cleaning Jobs of this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster, JOBS, jobs_of};
use crate::view::{JobView, Jobs};

/// How long to wait after the one list has failed.
const RETRY: Duration = Duration::from_secs(2);

/// A watch of the Jobs that our node's label selects, where Jobs clean or an earlier one is left. Elsewhere
/// they are listed once.
#[derive(Debug)]
pub struct JobCache {
    cluster: Cluster,
    namespace: String,
    wake: Arc<Notify>,
    known: watch::Sender<Option<Jobs>>,
    following: Option<Following>,
}

#[derive(Debug)]
struct Following {
    hostname: String,
    /// Whether Jobs are made here.
    made: bool,
    task: JoinHandle<()>,
}

impl JobCache {
    /// Makes no request before [`Self::follow`]. `wake` is notified of each change.
    #[must_use]
    pub fn new(cluster: &Cluster, namespace: &str, wake: Arc<Notify>) -> Self {
        Self {
            cluster: cluster.clone(),
            namespace: namespace.to_owned(),
            wake,
            known: watch::Sender::new(None),
            following: None,
        }
    }

    /// What is known of the Jobs, for a cleanup that waits for one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Option<Jobs>> {
        self.known.subscribe()
    }

    /// The Jobs; none until the API server has answered.
    #[must_use]
    pub fn jobs(&self) -> Option<Jobs> {
        self.known.borrow().clone()
    }

    /// Follows the Jobs of the node with this hostname value; `made` says whether we make any.
    pub fn follow(&mut self, hostname: &str, made: bool) {
        if let Some(following) = &self.following {
            if following.hostname == hostname && (following.made || !made) {
                return;
            }
            following.task.abort();
            if following.hostname != hostname {
                self.known.send_replace(None);
            }
        }
        let (cluster, wake, send) = (
            self.cluster.clone(),
            Arc::clone(&self.wake),
            self.known.clone(),
        );
        let place = (self.namespace.clone(), hostname.to_owned());
        let task = tokio::spawn(async move {
            let (namespace, hostname) = (place.0.as_str(), place.1.as_str());
            let learn = |jobs: Vec<JobView>| learn(jobs, &send, &wake);
            let keep = || keep(&send, &wake);
            if !made && !has_any(&cluster, namespace, hostname, learn, keep).await {
                return;
            }
            let denied = Notify::new();
            let keep_known = async {
                loop {
                    denied.notified().await;
                    keep();
                }
            };
            tokio::select! {
                () = watch_all(&cluster, namespace, hostname, &denied, learn) => {}
                () = keep_known => {}
            }
        });
        self.following = Some(Following {
            hostname: hostname.to_owned(),
            made,
            task,
        });
    }
}

impl Drop for JobCache {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.task.abort();
        }
    }
}

fn learn(jobs: Vec<JobView>, known: &watch::Sender<Option<Jobs>>, wake: &Notify) {
    let jobs = jobs.into_iter().filter(|job| job.pv_uid.is_some());
    let jobs: BTreeMap<_, _> = jobs.map(|job| (job.name.clone(), job)).collect();
    let changed = known.send_if_modified(|known| {
        let changed = known.as_deref() != Some(&jobs);
        *known = Some(Arc::new(jobs));
        changed
    });
    if changed {
        wake.notify_one();
    }
}

/// The API server does not let us list Jobs. Known ones may be at work all the same, and are kept. If none
/// is known, none was made here.
fn keep(known: &watch::Sender<Option<Jobs>>, wake: &Notify) {
    if known.borrow().is_none() {
        learn(Vec::new(), known, wake);
    }
}

/// Lists the Jobs, once, and says whether there are any.
async fn has_any(
    cluster: &Cluster,
    namespace: &str,
    hostname: &str,
    learn: impl Fn(Vec<JobView>),
    keep: impl Fn(),
) -> bool {
    let mut logged = false;
    loop {
        match cluster.list_jobs(namespace, hostname).await {
            Ok(jobs) => {
                let any = jobs.iter().any(|job| job.pv_uid.is_some());
                learn(jobs);
                return any;
            }
            Err(ApiError::Forbidden { .. }) => {
                keep();
                return false;
            }
            Err(error) => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!(%error, "the cleaning Jobs could not be listed; nothing is made or cleaned until they are");
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn watch_all(
    cluster: &Cluster,
    namespace: &str,
    hostname: &str,
    denied: &Notify,
    learn: impl Fn(Vec<JobView>),
) {
    let (store, writer) = reflector::store();
    let ours = watcher::Config::default().labels(&jobs_of(hostname));
    let stream = watcher(cluster.jobs(namespace), ours)
        .modify(|job: &mut Job| {
            job.metadata.managed_fields = None;
            job.spec = None;
        })
        .reflect(writer)
        .try_filter(super::tells_something);
    let each = |event| {
        // A list that is not complete says nothing of those that have not come yet.
        if !matches!(event, watcher::Event::InitApply(_)) {
            let jobs = store.state();
            learn(jobs.iter().map(|job| JobView::from_api(job)).collect());
        }
    };
    super::follow_or_notify(cluster.clone(), JOBS, stream, each, denied).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_jobs_are_kept_when_the_list_is_denied() {
        let (known, wake) = (watch::Sender::new(None), Notify::new());
        keep(&known, &wake);
        assert_eq!(known.borrow().as_deref(), Some(&BTreeMap::new()));
        let job = json!({ "metadata": { "name": "cleanup-a", "labels": { "pvuuid": "a" } } });
        let job = JobView::from_api(&serde_json::from_value(job).unwrap());
        learn(vec![job], &known, &wake);
        keep(&known, &wake);
        assert_eq!(known.borrow().as_deref().map(BTreeMap::len), Some(1));
        learn(Vec::new(), &known, &wake);
        assert_eq!(known.borrow().as_deref(), Some(&BTreeMap::new()));
    }
}
