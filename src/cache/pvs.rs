//! The cache of the PVs that concern this node.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher::Config;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::expectations::Expectations;
use super::{Known, Watch};
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::retry;
use crate::types::HostPath;
use crate::view::{NodeView, PathOwner, PersistentVolume, PvView};

/// The age at which the list of unlabelled PVs is outdated for an offer or a wipe. Each node draws its own, so that the
/// nodes of a cluster do not list at the same time.
const LIST_MAX_AGE_MINUTES: std::ops::Range<u64> = 45..60;

/// A watch of the PVs with our hostname label, writes that it does not show yet, and the PVs of this node without
/// that label.
#[derive(Debug)]
pub struct PvCache {
    /// The expected PV versions, which writers record.
    pub expectations: Expectations,
    _tasks: JoinSet<()>,
    /// The directories in which PVs without the label are listed, the task that lists them, and when the latest list
    /// becomes outdated. `None`: there is none for these directories.
    dirs: BTreeSet<HostPath>,
    listing: JoinSet<Vec<PathOwner>>,
    outdated_at: Option<Instant>,
    /// The PVs of other provisioners in that list that may own storage of the node.
    pub owners: Arc<Vec<PathOwner>>,
}

impl PvCache {
    /// Starts the watch, which notifies `wake` of each change.
    pub fn start(cluster: &Cluster, node: &NodeView, wake: &Arc<Notify>) -> Self {
        let (known, api) = (Known::default(), Api::all(cluster.client.clone()));
        let config = Config::default().labels(&format!("{LABEL_HOSTNAME}={}", node.hostname));
        let watch = Watch::new(cluster, "persistentvolumes", api, config);
        let expectations = Expectations {
            cluster: cluster.clone(),
            watched: known.subscribe(),
            node: Arc::new(node.clone()),
            wake: Arc::clone(wake),
            urgent: Arc::default(),
            state: Arc::default(),
        };
        let (now, reader) = (expectations.clone(), expectations.clone());
        let view = |pv: &PersistentVolume| Some(PvView::from_api(pv));
        let mut tasks = JoinSet::from_iter([watch.follow(known, view, async move |change| {
            if let Ok(gone) = change {
                for pv in gone {
                    now.left(pv);
                }
                now.wake.notify_one();
            }
            ControlFlow::Continue(())
        })]);
        tasks.spawn(reader.read_due());
        Self {
            expectations,
            _tasks: tasks,
            dirs: BTreeSet::new(),
            listing: JoinSet::new(),
            outdated_at: None,
            owners: Arc::default(),
        }
    }

    /// The offers of the PVs that were deleted unused, with their UIDs, as the watch has shown. Only that is proof: a PV
    /// that is missing from a list may have been used, and one from a backup has the offer of one that was.
    pub fn ended(&self) -> BTreeSet<(String, String)> {
        self.expectations.state.lock().ended.clone()
    }

    /// Lists the PVs without our label, in the background, if these directories of the node are new. They are not
    /// watched, since that would watch the PVs of all other drivers too.
    pub fn find_unlabelled(&mut self, node: &NodeView, dirs: &BTreeSet<HostPath>) {
        if self.dirs != *dirs {
            self.dirs.clone_from(dirs);
            self.outdated_at = None;
            self.list(node);
        }
    }

    /// Lists them again in the background if the latest list is outdated. Returns whether it is.
    pub fn is_outdated(&mut self, node: &NodeView) -> bool {
        let is_outdated = self.outdated_at.is_none_or(|at| at <= Instant::now());
        if is_outdated && self.listing.is_empty() {
            self.list(node);
        }
        is_outdated
    }

    fn list(&mut self, node: &NodeView) {
        let expectations = self.expectations.clone();
        let list = Self::list_unlabelled(expectations, node.clone(), self.dirs.clone());
        self.listing = JoinSet::from_iter([list]);
    }

    /// Lists the PVs without the hostname label, and expects those in these directories of the node. Returns the others
    /// that may own storage of the node.
    async fn list_unlabelled(
        expectations: Expectations,
        node: NodeView,
        dirs: BTreeSet<HostPath>,
    ) -> Vec<PathOwner> {
        let is_inside = |path: &HostPath| dirs.iter().any(|dir| path.is_within(dir));
        let ours = |pv: &PvView| pv.is_local_to(&node) && pv.path().is_some_and(is_inside);
        let may_own = |pv: &PvView| pv.may_be_on(&node) && pv.path_owner().is_some();
        let unlabelled = ListParams::default().labels(&format!("!{LABEL_HOSTNAME}"));
        let mut failures = 0;
        let pvs = loop {
            match expectations.cluster.pvs_in_pages(unlabelled.clone(), may_own).await {
                Ok(pvs) => break pvs,
                Err(error) => {
                    tracing::warn!(%error, "the PVs without a hostname label could not be listed; no PV is created or cleaned until they are");
                    sleep(retry::PV_LIST.pause(failures)).await;
                    failures += 1;
                }
            }
        };
        let (own, others): (Vec<_>, Vec<_>) = pvs.into_iter().partition(ours);
        for pv in own {
            expectations.expect(pv);
        }
        let owners: Vec<_> = others.iter().filter_map(PvView::path_owner).collect();
        if !owners.is_empty() {
            tracing::info!(
                pvs = owners.len(),
                "PVs of other provisioners may own volumes of this node; where their paths are not visible here, they are compared as text"
            );
        }
        expectations.wake.notify_one();
        owners
    }

    /// All PVs; `None` until they are listed, including those without the label.
    pub fn views(&mut self) -> Option<Vec<PvView>> {
        if let Some(Ok(owners)) = self.listing.try_join_next() {
            self.owners = Arc::new(owners);
            let age = Duration::from_mins(fastrand::u64(LIST_MAX_AGE_MINUTES));
            self.outdated_at = Some(Instant::now() + age);
        }
        let is_listed = self.outdated_at.is_some() || self.dirs.is_empty();
        let watched = self.expectations.watched.borrow().clone();
        let mut views = watched.filter(|_| is_listed)?;
        self.expectations.apply_to(&mut views);
        Some(views.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kube::Client;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use crate::metrics::Metrics;

    use super::*;

    fn node() -> NodeView {
        let metadata = json!({ "name": "n", "labels": { LABEL_HOSTNAME: "host-1" } });
        NodeView::from_metadata(&serde_json::from_value(metadata).unwrap()).unwrap()
    }

    /// The watch expires, and the next list does not have the PV any more.
    #[tokio::test(start_paused = true)]
    async fn pv_that_lost_its_label_during_an_outage_stays_known() {
        let pv =
            json!({ "metadata": { "name": "pv", "uid": "u", "resourceVersion": "7" }, "spec": {} });
        let lists = Arc::new(Mutex::new(0));
        let server = Router::new().fallback(move |uri: Uri| {
            let query = uri.query().unwrap_or_default();
            let (code, answer): (_, Value) = if uri.path().ends_with("/pv") {
                (StatusCode::OK, pv.clone())
            } else if query.contains("watch=") {
                let expired = json!({ "status": "Failure", "reason": "Expired", "code": 410 });
                (StatusCode::OK, json!({ "type": "ERROR", "object": expired }))
            } else {
                let mut lists = lists.lock();
                *lists += 1;
                let items = if *lists == 1 { vec![pv.clone()] } else { Vec::new() };
                let metadata = json!({ "resourceVersion": "7" });
                let list = json!({ "kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": metadata, "items": items });
                (StatusCode::OK, list)
            };
            std::future::ready((code, answer.to_string()))
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let mut cache = PvCache::start(&cluster, &node(), &Arc::default());
        let watched = cache.expectations.watched.clone();
        let labelled = || watched.borrow().as_ref().map_or(0, BTreeMap::len);
        while labelled() == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        while labelled() == 1 {
            sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..10 {
            assert_eq!(cache.views().unwrap().len(), 1);
            sleep(Duration::from_secs(3)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unlabelled_pvs_are_listed_again_only_for_an_offer_or_a_wipe() {
        let lists = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&lists);
        let server = Router::new().fallback(move |uri: Uri| {
            let query = uri.query().unwrap_or_default().to_owned();
            let is_unlabelled = query.contains("labelSelector=%21");
            *counted.lock() += usize::from(is_unlabelled);
            let pv = json!({ "metadata": { "name": "pv" }, "spec": { "hostPath": { "path": "/a" } } });
            let items = if is_unlabelled { vec![pv] } else { Vec::new() };
            let metadata = json!({ "resourceVersion": "7" });
            let list = json!({ "kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": metadata, "items": items });
            async move {
                if query.contains("watch=") {
                    std::future::pending::<()>().await;
                }
                list.to_string()
            }
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let node = node();
        let mut cache = PvCache::start(&cluster, &node, &Arc::default());
        let dirs = BTreeSet::from(["/mnt/fast".parse().unwrap()]);
        cache.find_unlabelled(&node, &dirs);
        while cache.views().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((cache.owners.len(), cache.is_outdated(&node)), (1, false));
        sleep(Duration::from_hours(1)).await;
        cache.find_unlabelled(&node, &dirs);
        assert!(cache.views().is_some());
        assert_eq!(*lists.lock(), 1, "idle");
        assert!(cache.is_outdated(&node));
        while cache.is_outdated(&node) {
            assert!(cache.views().is_some(), "the latest list counts meanwhile");
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(*lists.lock(), 2);
    }
}
