//! `--node-isolation`: checks that the chart's admission policy would admit the writes of this provisioner.

use crate::config::Config;
use crate::view::NodeView;

/// Why the policy would refuse the writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The policy compares the name of the provisioner's node with the hostname in a PV's node affinity.
    #[error(
        "node isolation is on, but the hostname label of Node {node:?} is {hostname:?}: the admission policy would refuse every PV of this node; turn node isolation off (nodeIsolation.enabled=false), or make the label equal to the name"
    )]
    Hostname {
        /// The Node's name.
        node: String,
        /// Its label.
        hostname: String,
    },
    /// A selector lets a class's PVs name other nodes.
    #[error(
        "node isolation is on, but class {class:?} has a selector, which lets its PVs name other nodes: the admission policy would refuse them; remove the selector, or turn node isolation off (nodeIsolation.enabled=false)"
    )]
    Selector {
        /// The class's name.
        class: String,
    },
}

/// Checks the Node, if it exists, and a configuration.
///
/// # Errors
/// [`Refused`], with the first conflict found.
pub fn check(node: Option<&NodeView>, config: &Config) -> Result<(), Refused> {
    if let Some(node) = node.filter(|node| node.hostname != node.name) {
        return Err(Refused::Hostname {
            node: node.name.clone(),
            hostname: node.hostname.clone(),
        });
    }
    let mut classes = config.classes.values();
    match classes.find(|class| !class.selector.is_empty()) {
        None => Ok(()),
        Some(class) => Err(Refused::Selector {
            class: class.name.clone(),
        }),
    }
}
