//! The watches of Nodes and PVs, and their state.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use tokio::sync::Notify;
use tokio::sync::watch::Ref;

use super::plan::{self, NodeIndex, Nodes};
use super::volume::Volume;
use crate::args::NodeCleanup;
use crate::cache::{Known, Watch};
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::view::{NodeReference, PersistentVolume};

/// PVs of the configured classes, by name.
pub type Volumes = BTreeMap<String, Volume>;

/// The state of both watches.
#[derive(Debug, Default)]
pub struct View {
    nodes: Known<BTreeMap<String, String>>,
    volumes: Known<Volume>,
    /// Notified when a Node or a PV changes.
    pub changed: Notify,
}

impl View {
    /// Runs both watches until it is dropped.
    pub async fn follow(&self, cluster: &Cluster, args: &NodeCleanup) {
        let client = || cluster.client.clone();
        let nodes: Api<PartialObjectMeta<Node>> = Api::all(client());
        let (classes, drivers) = (&args.storageclass_names, &args.csi_drivers);
        let references = drivers.iter().flat_map(|it| &it.references);
        let keys: Vec<_> = references.filter_map(NodeReference::label).collect();
        let labels = |node: &PartialObjectMeta<Node>| {
            let mut labels = node.labels().clone();
            labels.retain(|key, _| key == LABEL_HOSTNAME || keys.contains(&key.as_str()));
            Some(labels)
        };
        let pvs: Api<PersistentVolume> = Api::all(client());
        let volume = |pv: &PersistentVolume| Volume::read(pv, classes, drivers);
        tokio::join!(
            Watch::new(cluster, "nodes", nodes, Config::default()).follow(
                &self.nodes,
                labels,
                |_| self.changed.notify_one()
            ),
            Watch::new(cluster, "persistentvolumes", pvs, Config::default()).follow(
                &self.volumes,
                volume,
                |_| self.changed.notify_one()
            ),
        );
    }

    /// The Nodes and the PVs, once both are listed.
    pub fn snapshot(&self) -> (Ref<'_, Option<Nodes>>, Ref<'_, Option<Volumes>>) {
        (self.nodes.borrow(), self.volumes.borrow())
    }

    /// Whether the nodes of a PV are still gone, by the latest state of the watch.
    pub fn is_gone(&self, volume: &Volume) -> bool {
        let nodes = self.nodes.borrow();
        let nodes = nodes.as_ref().map(NodeIndex::new);
        nodes.is_some_and(|nodes| plan::is_gone(volume, &nodes) == Ok(true))
    }
}
