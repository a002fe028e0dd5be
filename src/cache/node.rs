//! The cache of our own Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::{Denied, Watch};
use crate::cluster::{ApiError, Cluster};
use crate::view::NodeView;

/// A watch of the metadata of one Node. The status, which changes often, is not transferred.
#[derive(Debug)]
pub struct NodeCache {
    view: watch::Receiver<Option<NodeView>>,
    _task: JoinSet<()>,
}

impl NodeCache {
    /// Starts the watch from a known state. Notifies `wake` of changes to the view.
    #[must_use]
    pub fn start(cluster: &Cluster, node: NodeView, wake: Arc<Notify>) -> Self {
        let name = node.name.clone();
        let (known, view) = watch::channel(Some(node));
        let publisher = Publisher {
            name,
            known,
            wake,
            logged: String::new(),
        };
        let mut task = JoinSet::new();
        task.spawn(publisher.follow(cluster.clone()));
        Self { view, _task: task }
    }

    /// The Node; `None` while it does not exist.
    #[must_use]
    pub fn view(&self) -> Option<NodeView> {
        self.view.borrow().clone()
    }
}

struct Publisher {
    name: String,
    known: watch::Sender<Option<NodeView>>,
    wake: Arc<Notify>,
    /// The problem that was logged last.
    logged: String,
}

impl Publisher {
    async fn follow(mut self, cluster: Cluster) {
        let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.client().clone());
        let config = Config::default().fields(&format!("metadata.name={}", self.name));
        let mut watch = Watch::new(&cluster, "nodes", api, config);
        let mut listed = None;
        while let Some(event) = watch.next().await {
            let found = match event {
                Ok(Event::Init) => {
                    listed = None;
                    continue;
                }
                Ok(Event::InitApply(node)) => {
                    listed = Some(node.metadata);
                    continue;
                }
                Ok(Event::InitDone) => Ok(listed.take()),
                Ok(Event::Apply(node)) => Ok(Some(node.metadata)),
                Ok(Event::Delete(_)) => Ok(None),
                // Older roles permit `get` on Nodes, but not `watch`.
                Err(Denied) => match cluster.node(&self.name).await {
                    Err(ApiError::NotFound) => Ok(None),
                    found => found.map(Some),
                },
            };
            self.publish(found);
        }
    }

    /// Publishes the view of the Node, or of none, and logs each problem once.
    fn publish(&mut self, found: Result<Option<ObjectMeta>, ApiError>) {
        let fallback = "the last known state is used";
        let view = match found {
            Ok(None) => Ok(None),
            Ok(Some(metadata)) => NodeView::from_metadata(&metadata)
                .map(Some)
                .map_err(|fault| format!("{fault}; {fallback}")),
            Err(error) => Err(format!("reading our Node failed: {error}; {fallback}")),
        };
        let fault = match &view {
            Ok(Some(_)) => String::new(),
            Ok(None) => {
                "the Node object is gone; no PV is created or cleaned until it is registered again"
                    .into()
            }
            Err(fault) => fault.clone(),
        };
        if !fault.is_empty() && self.logged != fault {
            tracing::warn!(node = self.name, "{fault}");
        }
        self.logged = fault;
        if let Ok(view) = view {
            super::publish(&self.known, view, &self.wake);
        }
    }
}
