//! The cache of our own Node.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::watch_object;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster};
use crate::view::NodeView;

/// A watch of the metadata of one Node. The status, which changes often, is not transferred.
#[derive(Debug)]
pub struct NodeCache {
    view: watch::Receiver<Option<NodeView>>,
    task: JoinHandle<()>,
}

impl NodeCache {
    /// Starts the watch from a known state. Notifies `wake` of changes to the view.
    #[must_use]
    pub fn start(cluster: &Cluster, node: NodeView, wake: Arc<Notify>) -> Self {
        let name = node.name.clone();
        let (send, view) = watch::channel(Some(node));
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            let (name, logged) = (name.as_str(), Mutex::default());
            let publish = |found| publish(name, found, &send, &wake, &logged);
            let denied = Notify::new();
            tokio::select! {
                () = watch_node(&cluster, name, &denied, publish) => {}
                () = read_when_denied(&cluster, name, &denied, publish) => {}
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

/// The metadata of the Node, or `None` if it does not exist.
type Found = Result<Option<ObjectMeta>, ApiError>;

/// Publishes the view, and logs each problem once.
fn publish(
    name: &str,
    found: Found,
    send: &watch::Sender<Option<NodeView>>,
    wake: &Notify,
    logged: &Mutex<String>,
) {
    let fallback = "the last known state is used";
    let (view, fault) = match found {
        Ok(None) => {
            let gone =
                "the Node object is gone; no PV is created or cleaned until it is registered again";
            (Some(None), gone.to_owned())
        }
        Ok(Some(metadata)) => match NodeView::from_metadata(&metadata) {
            Ok(view) => (Some(Some(view)), String::new()),
            Err(fault) => (None, format!("{fault}; {fallback}")),
        },
        Err(error) => (
            None,
            format!("reading our Node failed: {error}; {fallback}"),
        ),
    };
    let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
    if !fault.is_empty() && *logged != fault {
        tracing::warn!(node = name, "{fault}");
    }
    *logged = fault;
    let Some(view) = view else { return };
    let changed = send.send_if_modified(|known| {
        let changed = *known != view;
        *known = view;
        changed
    });
    if changed {
        wake.notify_one();
    }
}

async fn watch_node(cluster: &Cluster, name: &str, denied: &Notify, publish: impl Fn(Found)) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.client().clone());
    let stream = watch_object(api, name);
    let each = |node: Option<PartialObjectMeta<Node>>| publish(Ok(node.map(|node| node.metadata)));
    super::follow_or_notify(cluster.clone(), "nodes", stream, each, denied).await;
}

/// Reads the Node whenever the watch is denied: older roles permit `get` on Nodes, but not `watch`.
async fn read_when_denied(cluster: &Cluster, name: &str, denied: &Notify, publish: impl Fn(Found)) {
    loop {
        denied.notified().await;
        publish(match cluster.node(name).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        });
    }
}
