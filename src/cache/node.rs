//! Our own Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster};
use crate::view::NodeView;

use super::{POLL, Pauses};

/// A watch of one Node's metadata: its status, which changes all the time, is never sent to us.
#[derive(Debug)]
pub struct NodeCache {
    view: watch::Receiver<Option<NodeView>>,
    task: JoinHandle<()>,
}

impl NodeCache {
    /// Starts watching from a known state. `wake` is told when something that matters changed.
    #[must_use]
    pub fn start(cluster: &Cluster, node: NodeView, wake: Arc<Notify>) -> Self {
        let name = node.name.clone();
        let (send, view) = watch::channel(Some(node));
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            let set = |found: Option<NodeView>| {
                let changed = send.send_if_modified(|view| {
                    let changed = *view != found;
                    *view = found;
                    changed
                });
                if changed {
                    wake.notify_one();
                }
            };
            tokio::select! {
                () = watch_node(&cluster, &name, set) => {}
                () = read_when_denied(&cluster, &name, set) => {}
            }
        });
        Self { view, task }
    }

    /// The Node; `None` while it does not exist.
    #[must_use]
    pub fn view(&self) -> Option<NodeView> {
        self.view.borrow().clone()
    }
}

impl Drop for NodeCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_node(cluster: &Cluster, name: &str, set: impl Fn(Option<NodeView>)) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.client().clone());
    let stream = watch_object(api, name).backoff(Pauses::of(cluster, "nodes"));
    super::follow(cluster.clone(), "nodes", stream, |node| match node {
        None => {
            tracing::warn!(
                node = name,
                "the Node object is gone; nothing is done until it is registered again"
            );
            set(None);
        }
        Some(node) => match NodeView::from_metadata(&node.metadata) {
            Ok(view) => set(Some(view)),
            Err(fault) => {
                tracing::error!(node = name, "{fault}; going on with what was known before");
            }
        },
    })
    .await;
}

/// Older roles allow to get a Node, not to watch it.
async fn read_when_denied(cluster: &Cluster, name: &str, set: impl Fn(Option<NodeView>)) {
    loop {
        let rights = [("nodes", "list"), ("nodes", "watch")];
        cluster.permissions().until_missing(&rights).await;
        match cluster.node(name).await {
            Ok(metadata) => {
                if let Ok(view) = NodeView::from_metadata(&metadata) {
                    set(Some(view));
                }
            }
            Err(ApiError::NotFound) => set(None),
            Err(error) => tracing::warn!(node = name, %error, "reading our Node failed"),
        }
        tokio::time::sleep(POLL).await;
    }
}
