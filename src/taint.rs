//! The startup taint: it keeps Pods off a new node until the node's volumes are offered.
//!
//! The Node is read when it becomes ready, and again when it is registered again or its labels change: what creates
//! nodes may add labels and taints in one request, after the kubelet has registered them. Taints alone are not
//! watched, since a watch of metadata does not show them. A taint of another key is never removed.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::cluster::{ApiError, Cluster};
use crate::config::Config;
use crate::plan::{About, reasons};
use crate::report::Reporter;
use crate::view::NodeView;

/// The pauses between attempts. The first ones are short, as other writers of the Node may have caused a conflict.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(20),
    longest: Duration::from_secs(30),
};
/// An error is reported once the pause after it is as long: conflicts are over by then.
const REPORTED_PAUSE: Duration = Duration::from_secs(1);

/// Removes the startup taint from our Node.
#[derive(Debug)]
pub struct StartupTaint {
    cluster: Cluster,
    reporter: Reporter,
    /// The Node and the key of the removal that runs or has ended.
    of: Option<(NodeView, String)>,
    /// That removal; dropping it cancels it.
    task: JoinSet<()>,
}

impl StartupTaint {
    /// Does nothing yet.
    #[must_use]
    pub fn new(cluster: Cluster, reporter: Reporter) -> Self {
        Self {
            cluster,
            reporter,
            of: None,
            task: JoinSet::new(),
        }
    }

    /// Removes the taint in the background, with retries, if the configuration asks for it and the node is ready.
    /// Otherwise cancels that.
    pub fn follow(&mut self, config: &Config, node: Option<&NodeView>, ready: bool) {
        let node = node.filter(|_| ready && config.remove_node_not_ready_taint);
        let key = &config.provisioner_not_ready_node_taint_key;
        let of = node.map(|node| (node.clone(), key.clone()));
        if of == self.of {
            return;
        }
        self.of.clone_from(&of);
        self.task = JoinSet::new();
        if let Some((node, key)) = of {
            let (cluster, reporter) = (self.cluster.clone(), self.reporter.clone());
            let remove = async move { remove(&cluster, &reporter, &node, &key).await };
            self.task.spawn(remove);
        }
    }
}

async fn remove(cluster: &Cluster, reporter: &Reporter, node: &NodeView, key: &str) {
    let (name, mut failures, mut warned) = (&node.name, 0, String::new());
    let found = loop {
        let error = match cluster.remove_taints(node, key).await {
            Ok(found) => break found,
            Err(error) => error,
        };
        let pause = RETRY.pause(failures);
        failures += 1;
        let text = format!(
            "the startup taint {key} could not be removed from Node {name}: {error}; it is retried; by hand: kubectl taint node {name} {key}-"
        );
        if pause >= REPORTED_PAUSE && warned != text {
            tracing::warn!("{text}");
            // A missing permission has an event of its own.
            if !matches!(error, ApiError::Forbidden { .. }) {
                let reason = reasons::STARTUP_TAINT_STAYS;
                reporter.warning(&About::Pod, reason, "RemoveTaint", &text);
            }
            warned = text;
        }
        tokio::time::sleep(pause).await;
    };
    if found {
        let text = format!(
            "the startup taint {key} is removed from Node {name}: all of its volumes are offered"
        );
        tracing::info!("{text}");
        let reason = reasons::STARTUP_TAINT_REMOVED;
        reporter.normal(&About::Pod, reason, "RemoveTaint", &text);
    }
}
