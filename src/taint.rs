//! The startup taint: it keeps Pods off a new node until the node's volumes are offered.
//!
//! Its key is looked for when the node becomes ready, and again when the Node is another one, or has
//! other labels: whoever makes nodes may put labels and taints on them after the kubelet has registered
//! them, in one request. Taints by themselves are not watched: what is watched of a Node, its metadata,
//! does not show them.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::cluster::{ApiError, Cluster};
use crate::config::Config;
use crate::plan::{About, reasons};
use crate::report::Reporter;
use crate::view::NodeView;

/// Pauses before the next try. They double from the first to the last.
struct Pauses {
    next: Duration,
    last: Duration,
}

impl Pauses {
    /// Somebody else wrote at the same time.
    const CONFLICT: Self = Self {
        next: Duration::from_millis(20),
        last: Duration::from_millis(200),
    };
    /// The API server cannot, or will not.
    const FAILURE: Self = Self {
        next: Duration::from_secs(1),
        last: Duration::from_secs(30),
    };

    async fn pause(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (2 * self.next).min(self.last);
    }
}

/// Takes the startup taint off our Node.
#[derive(Debug)]
pub struct StartupTaint {
    cluster: Cluster,
    reporter: Reporter,
    /// The Node and the key that it is at, or done with.
    of: Option<(NodeView, String)>,
    task: Option<JoinHandle<()>>,
}

impl StartupTaint {
    /// Does nothing yet.
    #[must_use]
    pub fn new(cluster: Cluster, reporter: Reporter) -> Self {
        Self {
            cluster,
            reporter,
            of: None,
            task: None,
        }
    }

    /// Takes the taint off, in the background and until it is done, if the configuration says so and
    /// the node is ready. Otherwise stops doing that.
    pub fn follow(&mut self, config: &Config, node: Option<&NodeView>, ready: bool) {
        let node = node.filter(|_| ready && config.remove_node_not_ready_taint);
        let key = &config.provisioner_not_ready_node_taint_key;
        let of = node.map(|node| (node.clone(), key.clone()));
        if of == self.of {
            return;
        }
        self.stop();
        self.of.clone_from(&of);
        self.task = of.map(|(node, key)| {
            let (cluster, reporter) = (self.cluster.clone(), self.reporter.clone());
            tokio::spawn(async move { take_off(&cluster, &reporter, &node, &key).await })
        });
    }

    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for StartupTaint {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn take_off(cluster: &Cluster, reporter: &Reporter, node: &NodeView, key: &str) {
    let (mut conflict, mut failure) = (Pauses::CONFLICT, Pauses::FAILURE);
    let mut told = String::new();
    let name = &node.name;
    loop {
        match cluster.take_taint_off(node, key).await {
            Ok(false) => {
                tracing::debug!(node = name, key, "the Node has no startup taint");
                return;
            }
            Ok(true) => {
                let text = format!(
                    "the startup taint {key} was taken off Node {name}: all of its volumes are offered"
                );
                tracing::info!("{text}");
                reporter.normal(
                    &About::Pod,
                    reasons::STARTUP_TAINT_REMOVED,
                    "RemoveTaint",
                    &text,
                );
                return;
            }
            Err(ApiError::Conflict) => conflict.pause().await,
            Err(error) => {
                let text = format!(
                    "the startup taint {key} could not be taken off Node {name}: {error}; it is tried again, at least every {:?}; by hand: kubectl taint node {name} {key}-",
                    failure.last
                );
                // A missing right has an event of its own.
                if told != text {
                    tracing::warn!("{text}");
                    if !matches!(error, ApiError::Forbidden { .. }) {
                        reporter.warning(
                            &About::Pod,
                            reasons::STARTUP_TAINT_STAYS,
                            "RemoveTaint",
                            &text,
                        );
                    }
                    told = text;
                }
                failure.pause().await;
            }
        }
    }
}
