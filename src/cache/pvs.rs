//! The cache of the PVs that concern this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{Config, Event};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::expectations::Expectations;
use super::{Watch, is_listed};
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::types::HostPath;
use crate::view::{NodeView, PvView};

/// A watch of the PVs with our hostname label, writes that it does not show yet, and the PVs of this node without
/// that label.
#[derive(Debug)]
pub struct PvCache {
    hostname: String,
    watched: Store<PersistentVolume>,
    expectations: Expectations,
    _tasks: JoinSet<()>,
    /// The directories in which PVs without the label are listed, and whether the list is complete.
    dirs: Option<BTreeSet<HostPath>>,
    listed: Arc<AtomicBool>,
    listing: JoinSet<()>,
}

impl PvCache {
    /// Starts the watch, which notifies `wake` of each change.
    #[must_use]
    pub fn start(cluster: &Cluster, hostname: &str, wake: &Arc<Notify>) -> Self {
        let (watched, writer) = reflector::store();
        let api = Api::all(cluster.client().clone());
        let config = Config::default().labels(&format!("{LABEL_HOSTNAME}={hostname}"));
        let watch = Watch::new(cluster, "persistentvolumes", api, config);
        let expectations = Expectations::new(cluster.clone(), watched.clone(), Arc::clone(wake));
        let (expected, woken) = (expectations.clone(), Arc::clone(wake));
        let changed = move |event: Event<PersistentVolume>| {
            if let Event::Delete(pv) = &event {
                if pv.metadata.deletion_timestamp.is_some() {
                    expected.forget(pv.metadata.uid.as_deref().unwrap_or_default());
                } else {
                    // A PV that loses our label is reported as deleted, too.
                    expected.verify(PvView::from_api(pv));
                }
            }
            woken.notify_one();
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(watch.reflect(writer, changed));
        tasks.spawn(expectations.clone().settle());
        Self {
            hostname: hostname.to_owned(),
            watched,
            expectations,
            _tasks: tasks,
            dirs: None,
            listed: Arc::default(),
            listing: JoinSet::new(),
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

    /// Lists the PVs without our label in these directories of the node, in the background, once for each set of
    /// directories. They are not watched, since that would watch the PVs of all other drivers too.
    pub fn find_unlabelled(&mut self, node: &NodeView, dirs: &BTreeSet<HostPath>) {
        if self.dirs.as_ref() == Some(dirs) {
            return;
        }
        self.dirs = Some(dirs.clone());
        self.listed = Arc::default();
        let (expectations, listed) = (self.expectations.clone(), Arc::clone(&self.listed));
        let listing = expectations.list_unlabelled(node.clone(), dirs.clone(), listed);
        self.listing = JoinSet::new();
        self.listing.spawn(listing);
    }

    /// All PVs; `None` until they are listed, including those without the label.
    #[must_use]
    pub fn views(&self) -> Option<Vec<PvView>> {
        if !is_listed(&self.watched) || !self.listed.load(Ordering::Relaxed) {
            return None;
        }
        let watched = self.watched.state();
        let views = watched.iter().map(|pv| PvView::from_api(pv));
        let mut views: BTreeMap<_, _> = views.map(|view| (view.name.clone(), view)).collect();
        self.expectations.apply_to(&mut views);
        Some(views.into_values().collect())
    }
}
