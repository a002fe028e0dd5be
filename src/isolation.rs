//! `--node-isolation`: checks that the chart's admission policy would admit the writes of this provisioner.

use crate::config::Config;
use crate::view::NodeView;

/// Checks the Node, if it exists, and a configuration.
///
/// # Errors
/// The first conflict found, and the remedy.
pub fn check(node: Option<&NodeView>, config: &Config) -> Result<(), String> {
    // The policy compares the name of the provisioner's node with the hostname in a PV's node affinity.
    if let Some(node) = node.filter(|node| node.hostname != node.name) {
        return Err(format!(
            "node isolation is on, but the hostname label of Node {:?} is {:?}: the admission policy would refuse every PV of this node; turn node isolation off (nodeIsolation.enabled=false), or make the label equal to the name",
            node.name, node.hostname
        ));
    }
    let mut classes = config.classes.values();
    match classes.find(|class| !class.selector.is_empty()) {
        None => Ok(()),
        Some(class) => Err(format!(
            "node isolation is on, but class {:?} has a selector, which lets its PVs name other nodes: the admission policy would refuse them; remove the selector, or turn node isolation off (nodeIsolation.enabled=false)",
            class.name
        )),
    }
}
