//! The Nodes that exist.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::names::LABEL_HOSTNAME;

/// Each Node's name with its hostname label, and nothing else of it.
#[derive(Debug, Default)]
pub struct Roster {
    nodes: HashMap<String, Option<String>>,
    /// How many Nodes have each label.
    labels: HashMap<String, usize>,
    /// When there were Nodes again, if there was none at all before. They come one after the other.
    pub refilled: Option<Timestamp>,
}

impl Roster {
    /// A Node is there, so labelled. Says whether that is news.
    pub fn add(&mut self, node: &ObjectMeta) -> bool {
        let name = node.name.clone().unwrap_or_default();
        let label = node
            .labels
            .as_ref()
            .and_then(|labels| labels.get(LABEL_HOSTNAME));
        if self
            .nodes
            .get(&name)
            .is_some_and(|known| known.as_ref() == label)
        {
            return false;
        }
        self.remove(&name);
        if let Some(label) = label {
            *self.labels.entry(label.clone()).or_default() += 1;
        }
        self.nodes.insert(name, label.cloned());
        true
    }

    /// A Node is gone.
    pub fn remove(&mut self, name: &str) {
        let Some(Some(label)) = self.nodes.remove(name) else {
            return;
        };
        if let Some(count) = self.labels.get_mut(&label) {
            *count -= 1;
            if *count == 0 {
                self.labels.remove(&label);
            }
        }
    }

    /// Whether some Node is, or calls itself, so.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.labels.contains_key(name)
    }

    /// Whether there is no Node at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A Node without the label, if there is one: nobody knows by which name PVs know it.
    #[must_use]
    pub fn unlabelled(&self) -> Option<&str> {
        // Labels are never more than Nodes, and as a rule as many: then there is nothing to look for.
        if self.labels.values().sum::<usize>() == self.nodes.len() {
            return None;
        }
        let mut nodes = self.nodes.iter();
        nodes.find_map(|(name, label)| label.is_none().then_some(name.as_str()))
    }
}
