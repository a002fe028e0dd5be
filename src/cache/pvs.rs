//! The cache of the PVs that concern this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::types::HostPath;
use crate::view::{NodeView, PvView};

use super::expectations::Expectations;
use super::unlabelled::Unlabelled;

/// A watch of the PVs with our hostname label, writes that it does not show yet, and the PVs of this node without
/// that label.
#[derive(Debug)]
pub struct PvCache {
    hostname: String,
    ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
    watched: reflector::Store<PersistentVolume>,
    expectations: Expectations,
    unlabelled: Unlabelled,
}

impl PvCache {
    /// Starts the watch, which notifies `wake` of each change.
    #[must_use]
    pub fn start(cluster: &Cluster, hostname: &str, wake: &Arc<Notify>) -> Self {
        let (watched, writer) = reflector::store();
        let (send, ready) = watch::channel(false);
        let api: Api<PersistentVolume> = Api::all(cluster.client().clone());
        let config = watcher::Config::default().labels(&format!("{LABEL_HOSTNAME}={hostname}"));
        let stream = watcher(api, config)
            .modify(|pv| pv.metadata.managed_fields = None)
            .reflect(writer)
            .try_filter(super::is_answer);
        let expectations = Expectations::new(cluster.clone(), watched.clone(), Arc::clone(wake));
        let (expected, woken) = (expectations.clone(), Arc::clone(wake));
        let each = move |event| {
            match &event {
                watcher::Event::InitDone => {
                    send.send_replace(true);
                }
                watcher::Event::Delete(pv) => expected.deleted(pv),
                _ => {}
            }
            if !matches!(event, watcher::Event::InitApply(_)) {
                woken.notify_one();
            }
        };
        let task = super::follow(cluster.clone(), "persistentvolumes", stream, each);
        Self {
            hostname: hostname.to_owned(),
            ready,
            task: tokio::spawn(task),
            watched,
            unlabelled: Unlabelled::new(cluster.clone(), expectations.clone(), Arc::clone(wake)),
            expectations,
        }
    }

    /// The hostname label that the watch selects.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// The expected PV versions, which writers record.
    #[must_use]
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// Starts to find the PVs without our label in these directories of the node.
    pub fn find_unlabelled(&mut self, node: &NodeView, dirs: &BTreeSet<HostPath>) {
        self.unlabelled.find(node, dirs);
    }

    /// All PVs; `None` until they are listed, including those without the label in `dirs`.
    #[must_use]
    pub fn views(&self, dirs: &BTreeSet<HostPath>) -> Option<Vec<PvView>> {
        if !*self.ready.borrow() || !self.unlabelled.is_known(dirs) {
            return None;
        }
        let watched = self.watched.state();
        let mut views: BTreeMap<String, PvView> = watched
            .iter()
            .map(|pv| PvView::from_api(pv))
            .map(|view| (view.name.clone(), view))
            .collect();
        self.expectations.apply_to(&mut views);
        Some(views.into_values().collect())
    }
}

impl Drop for PvCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}
