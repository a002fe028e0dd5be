//! `--node-isolation`: whether the chart's admission policy would let us do our work.

use crate::config::Config;
use crate::view::NodeView;

/// Why it would not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The policy knows a provisioner by the name of its node, and a PV by its affinity to that same
    /// word.
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

/// Judges the node, if it is there, and a configuration.
///
/// # Errors
/// [`Refused`], which names the first thing that stands in the way.
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
