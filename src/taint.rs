//! The startup taint: it keeps Pods off a new node until the node's volumes are offered.
//!
//! The Node is read when it becomes ready, and again when it is registered again or its labels change: what creates
//! nodes may add labels and taints in one request, after the kubelet has registered them. Taints alone are not
//! watched, since a watch of metadata does not show them. A taint of another key is never removed.

use tokio::task::JoinSet;

use crate::cleanup::CleanupContext;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::plan::{About, reasons};
use crate::report::Reporter;
use crate::retry;
use crate::view::NodeView;

/// The failure that is reported, after about two seconds: conflicts are over by then.
const REPORTED_FAILURE: u32 = 7;

/// Removes the startup taint from our Node.
#[derive(Debug, Default)]
pub struct StartupTaint {
    /// The Node and the key of the removal that runs or has ended.
    of: Option<(NodeView, String)>,
    /// That removal; dropping it cancels it.
    task: JoinSet<()>,
}

impl StartupTaint {
    /// Removes the taint in the background, with retries, if the configuration asks for it and the node is ready.
    /// Otherwise cancels that.
    pub fn follow(
        &mut self,
        context: &CleanupContext,
        config: &Config,
        node: Option<&NodeView>,
        ready: bool,
    ) {
        let node = node.filter(|_| ready && config.remove_node_not_ready_taint);
        let key = &config.provisioner_not_ready_node_taint_key;
        let of = node.map(|node| (node.clone(), key.clone()));
        if of == self.of {
            return;
        }
        self.of.clone_from(&of);
        self.task = JoinSet::new();
        if let Some((node, key)) = of {
            let (cluster, reporter) = (context.cluster.clone(), context.reporter.clone());
            let remove = async move { remove(&cluster, &reporter, &node, &key).await };
            self.task.spawn(remove);
        }
    }
}

async fn remove(cluster: &Cluster, reporter: &Reporter, node: &NodeView, key: &str) {
    let name = &node.name;
    for failures in 0.. {
        match cluster.remove_taints(node, key).await {
            Ok(false) => return,
            Ok(true) => {
                let text = format!(
                    "the startup taint {key} is removed from Node {name}: all of its volumes are offered"
                );
                tracing::info!("{text}");
                let reason = reasons::STARTUP_TAINT_REMOVED;
                return reporter.normal(&About::Pod, reason, "RemoveTaint", &text);
            }
            Err(error) if failures == REPORTED_FAILURE => {
                let text = format!(
                    "the startup taint {key} could not be removed from Node {name}: {error}; it is retried; by hand: kubectl taint node {name} {key}-"
                );
                tracing::warn!("{text}");
                let reason = reasons::STARTUP_TAINT_STAYS;
                reporter.warning(&About::Pod, reason, "RemoveTaint", &text);
            }
            Err(_) => {}
        }
        tokio::time::sleep(retry::TAINT.pause(failures)).await;
    }
}
