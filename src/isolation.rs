//! `--node-isolation`: checks that the chart's admission policy would admit the writes of this provisioner.

use crate::config::{Binding, Config};
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
    for class in config.classes.values() {
        let name = &class.name;
        if !class.selector.is_empty() {
            return Err(format!(
                "node isolation is on, but class {name:?} has a selector, which lets its PVs name other nodes: the admission policy would refuse them; remove the selector, or turn node isolation off (nodeIsolation.enabled=false)"
            ));
        }
        if class.binding == Binding::Disk {
            return Err(format!(
                "node isolation is on, but class {name:?} has binding: disk, whose PVs the admission policy refuses; remove the key binding, or set nodeIsolation.enabled=false"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    #[test]
    fn class_whose_pvs_the_policy_refuses_is_named() {
        for (key, remedy) in [
            ("binding: path", None),
            ("binding: disk", Some("remove the key binding")),
            ("selector: [{matchFields: []}]", Some("remove the selector")),
        ] {
            let map = format!("c: {{hostDir: /c, mountDir: /c, {key}}}");
            let files = [("storageClassMap".to_owned(), map)].into();
            let checked = check(None, &from_files(&files).unwrap().config);
            match (checked, remedy) {
                (Ok(()), None) => {}
                (Err(text), Some(remedy)) => {
                    assert!(text.contains("\"c\"") && text.contains(remedy), "{text}");
                }
                (checked, _) => panic!("{key}: {checked:?}"),
            }
        }
    }
}
