//! Our own Node.

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

/// A watch of one Node's metadata: its status, which changes all the time, is never sent to us.
#[derive(Debug)]
pub struct NodeCache {
    view: watch::Receiver<Option<NodeView>>,
    task: JoinHandle<()>,
}

impl NodeCache {
    /// Starts watching from a known state. `wake` is notified of changes that matter.
    #[must_use]
    pub fn start(cluster: &Cluster, node: NodeView, wake: Arc<Notify>) -> Self {
        let name = node.name.clone();
        let (send, view) = watch::channel(Some(node));
        let cluster = cluster.clone();
        let task = tokio::spawn(async move {
            let (name, said) = (name.as_str(), Mutex::default());
            let learn = |found| learn(name, found, &send, &wake, &said);
            let denied = Notify::new();
            tokio::select! {
                () = watch_node(&cluster, name, &denied, learn) => {}
                () = read_when_denied(&cluster, name, &denied, learn) => {}
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

/// What was found out about the Node: its metadata, or none if it does not exist.
type Found = Result<Option<ObjectMeta>, ApiError>;

/// Publishes it, and logs each problem once.
fn learn(
    name: &str,
    found: Found,
    send: &watch::Sender<Option<NodeView>>,
    wake: &Notify,
    said: &Mutex<String>,
) {
    let as_before = "going on with what was known before";
    let (view, fault) = match found {
        Ok(None) => {
            let gone = "the Node object is gone; nothing is done until it is registered again";
            (Some(None), gone.to_owned())
        }
        Ok(Some(metadata)) => match NodeView::from_metadata(&metadata) {
            Ok(view) => (Some(Some(view)), String::new()),
            Err(fault) => (None, format!("{fault}; {as_before}")),
        },
        Err(error) => (
            None,
            format!("reading our Node failed: {error}; {as_before}"),
        ),
    };
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    if !fault.is_empty() && *said != fault {
        tracing::warn!(node = name, "{fault}");
    }
    *said = fault;
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

async fn watch_node(cluster: &Cluster, name: &str, denied: &Notify, learn: impl Fn(Found)) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.client().clone());
    let stream = watch_object(api, name);
    let each = |node: Option<PartialObjectMeta<Node>>| learn(Ok(node.map(|node| node.metadata)));
    super::follow_or_notify(cluster.clone(), "nodes", stream, each, denied).await;
}

/// Older roles allow to get a Node, not to watch it.
async fn read_when_denied(cluster: &Cluster, name: &str, denied: &Notify, learn: impl Fn(Found)) {
    loop {
        denied.notified().await;
        learn(match cluster.node(name).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        });
    }
}
