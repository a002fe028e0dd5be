//! The watches of Nodes and PVs, and their state.

use std::cell::{Ref, RefCell};
use std::collections::HashMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::plan::{self, NodeIndex, Nodes};
use super::volume::Volume;
use crate::cache::Watch;
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::view::PersistentVolume;

/// Local PVs of the configured classes, by name.
pub type Volumes = HashMap<String, Volume>;

/// The cached part of each object of one kind, by name.
#[derive(Debug)]
struct Table<V> {
    /// `None` until the first list is complete.
    listed: Option<HashMap<String, V>>,
    /// The list in progress.
    listing: HashMap<String, V>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            listed: None,
            listing: HashMap::new(),
        }
    }
}

impl<V: Clone + PartialEq> Table<V> {
    /// Applies an event, and returns whether the table changed. A heartbeat of a Node does not change it.
    fn apply<K: ResourceExt>(&mut self, event: Event<K>, keep: impl Fn(&K) -> Option<V>) -> bool {
        let (name, kept) = match event {
            Event::Init => {
                self.listing.clear();
                return false;
            }
            Event::InitApply(object) => {
                let kept = keep(&object).map(|kept| (object.name_any(), kept));
                self.listing.extend(kept);
                return false;
            }
            Event::InitDone => {
                self.listed = Some(std::mem::take(&mut self.listing));
                return true;
            }
            Event::Apply(object) => (object.name_any(), keep(&object)),
            Event::Delete(object) => (object.name_any(), None),
        };
        let Some(listed) = &mut self.listed else {
            return false;
        };
        let before = match kept.clone() {
            Some(kept) => listed.insert(name, kept),
            None => listed.remove(&name),
        };
        before != kept
    }
}

/// The state of both watches.
#[derive(Debug, Default)]
pub struct View {
    nodes: RefCell<Table<Option<String>>>,
    volumes: RefCell<Table<Volume>>,
    /// Notified when a Node or a PV changes.
    pub changed: Notify,
}

impl View {
    /// Runs both watches until it is dropped.
    pub async fn follow(&self, cluster: &Cluster, classes: &[String]) {
        let label =
            |node: &PartialObjectMeta<Node>| Some(node.labels().get(LABEL_HOSTNAME).cloned());
        let volume = |pv: &PersistentVolume| Volume::read(pv, classes);
        tokio::join!(
            self.watch(cluster, "nodes", &self.nodes, label),
            self.watch(cluster, "persistentvolumes", &self.volumes, volume),
        );
    }

    async fn watch<K, V: Clone + PartialEq>(
        &self,
        cluster: &Cluster,
        resource: &'static str,
        table: &RefCell<Table<V>>,
        keep: impl Fn(&K) -> Option<V>,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let api: Api<K> = Api::all(cluster.client().clone());
        let mut watch = Watch::new(cluster, resource, api, Config::default());
        while let Some(event) = watch.next().await {
            if event.is_ok_and(|event| table.borrow_mut().apply(event, &keep)) {
                self.changed.notify_one();
            }
        }
    }

    /// The Nodes and the PVs; `None` until both are listed.
    #[must_use]
    pub fn snapshot(&self) -> Option<(Ref<'_, Nodes>, Ref<'_, Volumes>)> {
        let nodes = Ref::filter_map(self.nodes.borrow(), |table| table.listed.as_ref());
        let volumes = Ref::filter_map(self.volumes.borrow(), |table| table.listed.as_ref());
        Some((nodes.ok()?, volumes.ok()?))
    }

    /// Whether the nodes of a PV are still gone, by the latest state of the watch.
    #[must_use]
    pub fn is_gone(&self, volume: &Volume) -> bool {
        let nodes = self.nodes.borrow();
        let nodes = nodes.listed.as_ref().map(NodeIndex::new);
        nodes.is_some_and(|nodes| plan::is_gone(volume, &nodes) == Ok(true))
    }
}
