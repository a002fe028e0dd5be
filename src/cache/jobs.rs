//! The cache of the cleaning Jobs of this node.

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

/// The pause before a failed list is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// A watch of the Jobs with our hostname label, if Jobs are in use or the first list shows any. Otherwise they are
/// only listed once.
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
    /// Whether this node uses Jobs.
    uses_jobs: bool,
    task: JoinHandle<()>,
}

impl JobCache {
    /// Sends no request before [`Self::follow`]. Notifies `wake` of each change.
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

    /// The Jobs, for a cleanup that waits for one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Option<Jobs>> {
        self.known.subscribe()
    }

    /// The Jobs; `None` until the API server has answered.
    #[must_use]
    pub fn jobs(&self) -> Option<Jobs> {
        self.known.borrow().clone()
    }

    /// Follows the Jobs of the node with this hostname label.
    pub fn follow(&mut self, hostname: &str, uses_jobs: bool) {
        if let Some(following) = &self.following {
            if following.hostname == hostname && (following.uses_jobs || !uses_jobs) {
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
        let selector = (self.namespace.clone(), hostname.to_owned());
        let task = tokio::spawn(async move {
            let (namespace, hostname) = (selector.0.as_str(), selector.1.as_str());
            let publish = |jobs: Vec<JobView>| publish(jobs, &send, &wake);
            let keep = || keep(&send, &wake);
            if !uses_jobs && !has_any(&cluster, namespace, hostname, publish, keep).await {
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
                () = watch_all(&cluster, namespace, hostname, &denied, publish) => {}
                () = keep_known => {}
            }
        });
        self.following = Some(Following {
            hostname: hostname.to_owned(),
            uses_jobs,
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

fn publish(jobs: Vec<JobView>, known: &watch::Sender<Option<Jobs>>, wake: &Notify) {
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

/// Handles a denied list. Known Jobs are kept, since they may still run. If none is known, this node has created
/// none.
fn keep(known: &watch::Sender<Option<Jobs>>, wake: &Notify) {
    if known.borrow().is_none() {
        publish(Vec::new(), known, wake);
    }
}

/// Lists the Jobs once, and returns whether any exists.
async fn has_any(
    cluster: &Cluster,
    namespace: &str,
    hostname: &str,
    publish: impl Fn(Vec<JobView>),
    keep: impl Fn(),
) -> bool {
    let mut logged = false;
    loop {
        match cluster.list_jobs(namespace, hostname).await {
            Ok(jobs) => {
                let any = jobs.iter().any(|job| job.pv_uid.is_some());
                publish(jobs);
                return any;
            }
            Err(ApiError::Forbidden { .. }) => {
                keep();
                return false;
            }
            Err(error) => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!(%error, "the cleaning Jobs could not be listed; no PV is created or cleaned until they are");
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn watch_all(
    cluster: &Cluster,
    namespace: &str,
    hostname: &str,
    denied: &Notify,
    publish: impl Fn(Vec<JobView>),
) {
    let (store, writer) = reflector::store();
    let ours = watcher::Config::default().labels(&jobs_of(hostname));
    let stream = watcher(cluster.jobs(namespace), ours)
        .modify(|job: &mut Job| {
            job.metadata.managed_fields = None;
            job.spec = None;
        })
        .reflect(writer)
        .try_filter(super::is_answer);
    let each = |event| {
        // An incomplete list does not show which Jobs are missing.
        if !matches!(event, watcher::Event::InitApply(_)) {
            let jobs = store.state();
            publish(jobs.iter().map(|job| JobView::from_api(job)).collect());
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
        publish(vec![job], &known, &wake);
        keep(&known, &wake);
        assert_eq!(known.borrow().as_deref().map(BTreeMap::len), Some(1));
        publish(Vec::new(), &known, &wake);
        assert_eq!(known.borrow().as_deref(), Some(&BTreeMap::new()));
    }
}
