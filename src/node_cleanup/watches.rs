//! The watches of Nodes and PVs, and their state.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use tokio::sync::Notify;

use super::volume::Volume;
use crate::args::NodeCleanup;
use crate::cache::{Known, Watch};
use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::view::{NodeReference, PersistentVolume};

/// The state of both watches.
#[derive(Debug, Default)]
pub struct View {
    /// The labels of each Node by which PVs name it.
    pub(super) nodes: Known<BTreeMap<String, String>>,
    /// PVs of the configured classes.
    pub(super) volumes: Known<Volume>,
    /// Notified when a Node or a PV changes.
    pub changed: Notify,
}

impl View {
    /// Runs both watches until it is dropped.
    pub async fn follow(&self, cluster: &Cluster, args: &NodeCleanup) {
        let (client, changed) = (&cluster.client, &self.changed);
        let (classes, drivers) = (&args.storageclass_names, &args.csi_drivers);
        let references = drivers.iter().flat_map(|it| &it.references);
        let keys: Vec<_> = references.filter_map(NodeReference::label).collect();
        let labels = |node: &PartialObjectMeta<Node>| {
            let mut labels = node.labels().clone();
            labels.retain(|key, _| key == LABEL_HOSTNAME || keys.contains(&key.as_str()));
            Some(labels)
        };
        let volume = |pv: &PersistentVolume| Volume::read(pv, classes, drivers);
        let (nodes, pvs) = (Api::all(client.clone()), Api::all(client.clone()));
        let nodes = Watch::new(cluster, "nodes", nodes, Config::default());
        let pvs = Watch::new(cluster, "persistentvolumes", pvs, Config::default());
        let notify = |is_change: bool| {
            if is_change {
                changed.notify_one();
            }
            ControlFlow::Continue(())
        };
        tokio::join!(
            nodes.follow(self.nodes.clone(), labels, async |it| notify(it.is_ok())),
            pvs.follow(self.volumes.clone(), volume, async |it| notify(it.is_ok())),
        );
    }
}
