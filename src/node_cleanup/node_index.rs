//! An index of the Nodes that exist.

use std::collections::{HashMap, HashSet};

/// The hostname label of each Node, by the Node's name.
pub type Nodes = HashMap<String, Option<String>>;

/// An index of all names and hostname labels.
#[derive(Debug)]
pub struct NodeIndex<'a> {
    names: HashSet<&'a str>,
    unlabelled: Option<&'a str>,
}

impl<'a> NodeIndex<'a> {
    /// Indexes the Nodes.
    #[must_use]
    pub fn new(nodes: &'a Nodes) -> Self {
        let labels = nodes.values().flatten();
        let without =
            |(name, label): (&'a String, &Option<String>)| label.is_none().then_some(name);
        Self {
            names: nodes.keys().chain(labels).map(String::as_str).collect(),
            unlabelled: nodes.iter().find_map(without).map(String::as_str),
        }
    }

    /// Whether a Node has this name or hostname label.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether no Node exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A Node without the hostname label, whose PVs may name it by any former label.
    #[must_use]
    pub fn unlabelled(&self) -> Option<&'a str> {
        self.unlabelled
    }
}
