//! Starts and ends the controllers.

use tokio::task::JoinHandle;

use super::{ControllerOptions, Manager};
use crate::{node, status::Status, store::Store};

/// The running controllers; they stop when this is dropped.
#[derive(Debug)]
#[must_use = "the controllers stop when their handle is dropped"]
pub struct Controllers {
    task: JoinHandle<()>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Registers the node and starts the controllers on the current runtime.
///
/// Whatever they knew is in the store, so they can be ended at any moment and started again, as after
/// a crash; a second set of them at the same time is a second kube-controller-manager without leader
/// election.
///
/// ```
/// use control_plane::{ControlPlane, Options, controllers, resource};
/// use serde_json::json;
///
/// # #[tokio::main]
/// # async fn main() -> anyhow::Result<()> {
/// // An API server alone, and the controllers beside it.
/// let control_plane = ControlPlane::start(Options { controllers: false, ..Options::default() })?;
/// let store = control_plane.store();
/// let running = controllers::spawn(store.clone(), Default::default())?;
/// drop(running); // they crash
///
/// let volume = json!({"metadata": {"name": "disk"}, "spec": {
///     "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
///     "hostPath": {"path": "/nowhere"},
/// }});
/// store.create(&resource::PERSISTENT_VOLUMES, "", volume)?;
/// let phase = || store.get(&resource::PERSISTENT_VOLUMES, "", "disk").unwrap()["status"]["phase"].clone();
/// assert_eq!(phase(), "Pending");
///
/// let _running = controllers::spawn(store.clone(), Default::default())?;
/// while phase() != "Available" {
///     tokio::time::sleep(std::time::Duration::from_millis(5)).await;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If it is called outside a tokio runtime.
pub fn spawn(store: Store, options: ControllerOptions) -> Result<Controllers, Status> {
    if let Some(node) = &options.node {
        node::register(&store, node)?;
    }
    let manager = Manager::new(store, options);
    Ok(Controllers { task: tokio::spawn(manager.run()) })
}
