//! A local PV, and the nodes that may have its data.

use std::collections::BTreeSet;

use crate::names::PROVISIONER_PREFIX;
use crate::view::{PersistentVolume, PvSpec, PvView, hosts_of_terms};

/// The lengths of the groups of a UID after a hyphen.
const UID_GROUPS: [usize; 6] = [0, 8, 4, 4, 4, 12];

/// A local PV of a configured class. It is orphaned when all of its nodes are gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// The PV.
    pub pv: PvView,
    /// Hostname labels or names of the Nodes that may have its data, by node affinity and hostname label. Empty if
    /// other Nodes may have it, too.
    pub hosts: Vec<String>,
    /// The name of the Node whose provisioner created the PV, if known. It identifies a Node whose label changed.
    pub maker: Option<String>,
}

impl Volume {
    /// Reads a PV; `None` if it is not local, or of another class.
    pub fn read(pv: &PersistentVolume, classes: &[String]) -> Option<Self> {
        let view = PvView::from_api(pv);
        if !pv.spec.is_local() || !classes.contains(&view.class) {
            return None;
        }
        Some(Self {
            hosts: hosts(&pv.spec, &view),
            maker: view.provisioned_by.as_deref().and_then(maker),
            pv: view,
        })
    }

    /// All names by which one of the Nodes may still exist.
    pub fn node_names(&self) -> impl Iterator<Item = &String> {
        let maker = self.maker.iter();
        let maker = maker.filter(|maker| !self.hosts.contains(maker));
        self.hosts.iter().chain(maker)
    }

    /// The UID of the claim that the PV names.
    pub fn claim_uid(&self) -> Option<&str> {
        self.pv.claim.as_ref()?.uid.as_deref()
    }
}

fn hosts(spec: &PvSpec, view: &PvView) -> Vec<String> {
    // Any node may match a term that names none, even one that joins later.
    if view.hostnames.is_empty() || hosts_of_terms(spec).any(|hosts| hosts.is_empty()) {
        return Vec::new();
    }
    let hosts = view.hostname_label.iter().chain(&view.hostnames);
    let hosts: BTreeSet<_> = hosts.cloned().collect();
    Vec::from_iter(hosts)
}

/// The Node's name in a provisioner's name, which the Node's UID may follow.
fn maker(provisioner: &str) -> Option<String> {
    let rest = provisioner.strip_prefix(PROVISIONER_PREFIX)?;
    let rest = rest.strip_prefix('-')?;
    let uid_at = rest.len().checked_sub(UID_GROUPS.iter().sum::<usize>() + 5);
    let parts = uid_at.and_then(|at| rest.split_at_checked(at));
    let parts = parts.filter(|(_, uid)| uid.split('-').map(str::len).eq(UID_GROUPS));
    Some(parts.map_or(rest, |(name, _)| name).to_owned())
}
