//! The cache of our own Node.

use std::ops::ControlFlow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::{Denied, Known, Watch};
use crate::cluster::{ApiError, Cluster};
use crate::view::NodeView;

/// A watch of the metadata of one Node. The status, which changes often, is not transferred.
#[derive(Debug)]
pub struct NodeCache {
    view: watch::Receiver<Option<NodeView>>,
    _task: JoinSet<()>,
}

impl NodeCache {
    /// Starts the watch from a known state, which stays after a fault. Notifies `wake` of changes to the view.
    pub fn start(cluster: &Cluster, node: NodeView, wake: Arc<Notify>) -> Self {
        let (cluster, name) = (cluster.clone(), node.name.clone());
        let (known, view) = watch::channel(Some(node));
        let api = Api::all(cluster.client.clone());
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let watch = Watch::new(&cluster, "nodes", api, config);
        let read = |node: &PartialObjectMeta<Node>| Some(NodeView::from_metadata(&node.metadata));
        let table = Known::default();
        let task = watch.follow(table.clone(), read, async move |change| {
            let found = match change {
                Ok(_) => table.borrow().as_ref().and_then(|it| it.get(&name).cloned()),
                // Older roles permit `get` on Nodes, but not `watch`.
                Err(Denied) => match cluster.node(&name).await {
                    Err(ApiError::NotFound) => None,
                    Ok(metadata) => Some(NodeView::from_metadata(&metadata)),
                    Err(error) => Some(Err(error.to_string())),
                },
            };
            match found.transpose() {
                Ok(view) => {
                    if view.is_none() {
                        tracing::warn!("the Node {name:?} is gone; no PV is created or cleaned");
                    }
                    if known.send_replace(view) != *known.borrow() {
                        wake.notify_one();
                    }
                }
                Err(fault) => tracing::warn!(fault, "the last known state of the Node is used"),
            }
            ControlFlow::Continue(())
        });
        Self { view, _task: JoinSet::from_iter([task]) }
    }

    /// The Node; `None` while it does not exist.
    pub fn view(&self) -> Option<NodeView> {
        self.view.borrow().clone()
    }
}
