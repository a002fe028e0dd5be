//! Whose a PersistentVolume is, and where its volume is.

use super::{Affinity, NodeView, PvView};
use crate::names::{PROVISIONER_PREFIX, nodes_of_provisioner, provisioner_name, pv_names};

/// The owner of a PV, by its annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Created by this provisioner, or one with the same name.
    Ours,
    /// Created on this node before the Node object was deleted and registered again.
    FormerNode,
    /// Created on this node, and managed by another installation.
    OtherInstallation,
    /// Created by another provisioner.
    Foreign,
}

impl PvView {
    /// Whether its data is on this node, by the node affinity that Kubernetes enforces. That of a PV that is bound to its
    /// disk names no node: the provisioner and the hostname label do.
    pub fn is_on(&self, node: &NodeView) -> bool {
        match (&self.link, &self.hostname_label) {
            (None, _) => self.hostnames.contains(&node.hostname),
            (Some(_), Some(label)) => *label == node.hostname && self.names_provisioner_of(node),
            // Its name can be that of the node that had the disk before.
            (Some(_), None) => self.is_kept_by(node),
        }
    }

    /// The names that the provisioner of this Node would give to a PV with this path, class and offer.
    pub fn names_on(&self, node: &NodeView) -> Option<Vec<String>> {
        let (_, entry) = self.path()?.as_str().rsplit_once('/')?;
        let token = self.offer.as_deref();
        Some(pv_names(entry, &node.name, &self.class, token))
    }

    /// Whether the provisioner of this Node created it, by annotation and name. Its affinity may name an earlier
    /// hostname of the Node.
    pub fn was_made_on(&self, node: &NodeView) -> bool {
        let names = || self.names_on(node);
        self.names_provisioner_of(node) && names().is_some_and(|it| it.contains(&self.name))
    }

    fn names_provisioner_of(&self, node: &NodeView) -> bool {
        let bare = provisioner_name(&node.name, "", true);
        let by = self.provisioned_by.as_deref();
        by.and_then(|by| by.strip_prefix(&bare))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Whether the annotation names the provisioner of this Node, by its name and any UID.
    pub fn is_kept_by(&self, node: &NodeView) -> bool {
        let by = self.provisioned_by.as_deref().unwrap_or_default();
        by == provisioner_name(&node.name, &node.uid, false)
            || nodes_of_provisioner(by).contains(&&*node.name)
    }

    /// Whether its path is on this node, by affinity or by its provisioner.
    pub fn is_local_to(&self, node: &NodeView) -> bool {
        self.is_on(node) || self.was_made_on(node)
    }

    /// Whether its path may be on this node: its affinity does not exclude the node, and no provisioner of another node
    /// created it.
    pub fn may_be_on(&self, node: &NodeView) -> bool {
        let by = self.provisioned_by.as_deref();
        let is_of_another = by.is_some_and(|by| by.starts_with(PROVISIONER_PREFIX));
        let is_allowed = |it: &Affinity| !is_of_another && it.allows(node);
        self.is_local_to(node) || self.affinity.as_ref().is_some_and(is_allowed)
    }

    /// The owner, for a provisioner of this node and installation. An annotation can be forged: ownership alone never
    /// permits a wipe.
    pub fn ownership(
        &self,
        node: &NodeView,
        node_name_only: bool,
        installation: Option<&str>,
    ) -> Ownership {
        let Some(by) = self.provisioned_by.as_deref() else {
            return Ownership::Foreign;
        };
        let name = provisioner_name(&node.name, &node.uid, node_name_only);
        let is_labelled = self.hostname_label.as_ref() == Some(&node.hostname);
        let on_node = is_labelled || self.is_local_to(node);
        let extends_bare = self.names_provisioner_of(node);
        let is_this_node = by == name || (node_name_only && extends_bare && is_labelled);
        let is_other = self.installation.is_some() && self.installation.as_deref() != installation;
        match (is_this_node, extends_bare && on_node) {
            (false, false) => Ownership::Foreign,
            _ if is_other => Ownership::OtherInstallation,
            (true, _) => Ownership::Ours,
            (false, true) => Ownership::FormerNode,
        }
    }
}
