//! The watches of Nodes and PVs, and their state.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use tokio::sync::Notify;
use tokio::sync::watch::Ref;

use super::driver::CsiDriver;
use super::plan::{self, Labels, NodeIndex, Nodes};
use super::volume::Volume;
use crate::args::NodeCleanup;
use crate::cache::{Known, Watch};
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::view::PersistentVolume;

/// PVs of the configured classes, by name.
pub type Volumes = BTreeMap<String, Volume>;

/// The state of both watches.
#[derive(Debug, Default)]
pub struct View {
    nodes: Known<Labels>,
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
        let mut keys: Vec<_> = drivers.iter().flat_map(CsiDriver::labels).collect();
        let hostname = LABEL_HOSTNAME.to_owned();
        keys.push(&hostname);
        let labels = |node: &PartialObjectMeta<Node>| {
            let mut labels = node.labels().clone();
            labels.retain(|key, _| keys.contains(&key));
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
