//! The cache of the cleaning Jobs of this node.

use std::ops::ControlFlow;
use std::sync::Arc;

use kube::runtime::watcher::Config;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::{Known, Watch};
use crate::cluster::{Cluster, JOBS, jobs_of};
use crate::view::{Job, JobView, Jobs};

/// A watch of the Jobs with our hostname label, as long as this node uses Jobs or has any.
#[derive(Debug, Default)]
pub struct JobCache {
    known: Known<JobView>,
    /// The hostname label of the watched Jobs, and whether this node uses Jobs.
    followed: (String, bool),
    task: JoinSet<()>,
}

impl JobCache {
    /// The Jobs, for a cleanup that waits for one.
    pub fn subscribe(&self) -> watch::Receiver<Option<Jobs>> {
        self.known.subscribe()
    }

    /// The Jobs; `None` until the API server has answered.
    pub fn jobs(&self) -> Option<Jobs> {
        self.known.borrow().clone()
    }

    /// Follows the Jobs of the node with this hostname label, and notifies `wake` of changes. Ends when there is none
    /// and this node uses none.
    pub fn follow(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        hostname: &str,
        uses_jobs: bool,
        wake: &Arc<Notify>,
    ) {
        let (followed, used) = (&self.followed.0, self.followed.1);
        if followed != hostname {
            self.known.send_replace(None);
        } else if used || !uses_jobs {
            return;
        }
        self.followed = (hostname.to_owned(), uses_jobs);
        let ours = Config::default().labels(&jobs_of(hostname));
        let watch = Watch::new(cluster, JOBS, cluster.jobs(namespace), ours);
        let (known, wake) = (self.known.clone(), Arc::clone(wake));
        let keep = |job: &Job| Some(JobView::from_api(job)).filter(|job| job.pv_uid.is_some());
        let task = watch.follow(self.known.clone(), keep, async move |change| {
            if change.is_err() {
                // Known Jobs are kept when the list is denied, since they may still run. If none is known, this node has
                // created none.
                known.send_if_modified(|it| it.is_none() && it.insert(Jobs::new()).is_empty());
            }
            wake.notify_one();
            match &*known.borrow() {
                Some(jobs) if jobs.is_empty() && !uses_jobs => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        self.task = JoinSet::from_iter([task]);
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kube::Client;
    use serde_json::json;

    use crate::metrics::Metrics;

    use super::*;

    #[tokio::test]
    async fn known_jobs_are_kept_when_the_watch_is_denied() {
        let (send, refuses) = watch::channel(true);
        let server = Router::new().fallback(move |uri: Uri| {
            let is_denied =
                *refuses.borrow() || uri.query().is_some_and(|it| it.contains("watch="));
            let denied = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "Forbidden", "code": 403,
            });
            let job = json!({ "metadata": { "name": "cleanup-a", "labels": { "pvuuid": "a" } } });
            let jobs = json!({
                "kind": "JobList", "apiVersion": "batch/v1",
                "metadata": { "resourceVersion": "1" }, "items": [job],
            });
            std::future::ready(if is_denied {
                (StatusCode::FORBIDDEN, denied.to_string())
            } else {
                (StatusCode::OK, jobs.to_string())
            })
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let mut cache = JobCache::default();
        let mut known = cache.subscribe();
        cache.follow(&cluster, "default", "host-1", true, &Arc::default());
        let none = known.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(none, Some(Jobs::default()));
        send.send_replace(false);
        let is_known = |jobs: &Option<Jobs>| jobs.as_ref().is_some_and(|it| it.len() == 1);
        known.wait_for(is_known).await.unwrap();
        while cluster.permissions.missing().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(is_known(&cache.jobs()));
    }
}
