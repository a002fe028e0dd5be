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

    fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(self.last);
        pause
    }
}

/// The tries of which somebody else's writes came in between.
struct Races {
    left: u32,
    pauses: Pauses,
}

impl Races {
    /// So many, in ten seconds, are no chance any more.
    const NONE_LOST: Self = Self {
        left: 50,
        pauses: Pauses::CONFLICT,
    };

    /// The pause after a try that was lost in a race; `None` if it failed otherwise, or is one too many.
    fn lost(&mut self, error: &ApiError) -> Option<Duration> {
        let is_race = matches!(error, ApiError::Conflict) && self.left > 0;
        is_race.then(|| {
            self.left -= 1;
            self.pauses.take()
        })
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
    let (mut races, mut failure) = (Races::NONE_LOST, Pauses::FAILURE);
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
            Err(error) => {
                if let Some(pause) = races.lost(&error) {
                    tokio::time::sleep(pause).await;
                    continue;
                }
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
                tokio::time::sleep(failure.take()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn races_that_never_end_become_a_failure() {
        let mut races = Races::NONE_LOST;
        assert_eq!(races.lost(&ApiError::TimedOut), None);
        let pauses = std::iter::from_fn(|| races.lost(&ApiError::Conflict));
        let pauses: Vec<_> = pauses.take(1000).collect();
        assert_eq!(pauses[0], Duration::from_millis(20));
        assert_eq!(pauses.len(), 50);
        let all: Duration = pauses.iter().sum();
        assert!((9..11).contains(&all.as_secs()), "{all:?}");
    }
}
