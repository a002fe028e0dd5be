//! The next step for one PV. Pure: no clock, no client.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::volume::Volume;
use crate::plan::verdict::may_be_wiped;
use crate::view::{Phase, ReclaimPolicy};

/// The Nodes that exist, by name, with the labels by which PVs name them.
pub type Nodes = BTreeMap<String, BTreeMap<String, String>>;

/// An index of the Nodes that exist.
#[derive(Debug)]
pub struct NodeIndex<'a> {
    nodes: &'a Nodes,
    /// All names and values of labels.
    names: HashSet<&'a String>,
}

impl<'a> NodeIndex<'a> {
    /// Indexes the Nodes.
    pub fn new(nodes: &'a Nodes) -> Self {
        let values = nodes.values().flat_map(BTreeMap::values);
        Self { nodes, names: nodes.keys().chain(values).collect() }
    }
}

/// One step. The most urgent comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Delete the bound claim, so that its pods can start elsewhere.
    DeleteClaim,
    /// Publish an event on the bound claim, and start the delay.
    Announce,
    /// Remove our finalizer: the provisioner that would remove it is gone, and so is the data. It precedes the deletion, so
    /// that a Terminating PV with it is one whose provisioner may have begun to wipe.
    RemoveFinalizer,
    /// Delete the PV.
    DeletePv,
}

/// Whether a PV's nodes are gone, by the Nodes that the watch shows. They are not while a Node exists that has, or may
/// have, the data.
///
/// # Errors
/// Why it is unclear.
pub fn is_gone(volume: &Volume, nodes: &NodeIndex<'_>) -> Result<bool, String> {
    if volume.hosts.is_empty() {
        let text = "its node affinity, or a term of it, names no node by kubernetes.io/hostname; of a CSI volume, no reference in --csi-drivers names a node";
        return Err(text.into());
    }
    if nodes.names.is_empty() {
        return Err("the API server lists no Node at all".into());
    }
    if volume.node_names().any(|name| nodes.names.contains(name)) {
        return Ok(false);
    }
    // The PVs of a Node without the label may name it by a former value.
    let label = &volume.label;
    match nodes.nodes.iter().find(|(_, it)| !it.contains_key(label)) {
        Some((node, _)) if volume.maker.is_none() => {
            Err(format!("Node {node:?} has no label {label}, so it may be this PV's"))
        }
        _ => Ok(true),
    }
}

/// Plans the next step for a PV, and the delay before it. `announced_for` is the time since the loss of its nodes was
/// announced. A volume that may be half wiped has at least the `cleanup_timeout`: if its node comes back, its provisioner
/// finishes.
///
/// # Errors
/// Why it is unclear whether the nodes are gone: nothing is done.
pub fn next(
    volume: &Volume,
    nodes: &NodeIndex<'_>,
    announced_for: Option<Duration>,
    delay: Duration,
    cleanup_timeout: Duration,
) -> Result<Option<(Step, Duration)>, String> {
    if !is_gone(volume, nodes)? {
        return Ok(None);
    }
    let step = last_step(volume).filter(|_| !volume.pv.paused);
    Ok(step.map(|step| match announced_for {
        // A volume that was never used has no data to lose. The use of a CSI volume is not recorded.
        _ if volume.pv.never_used() && !volume.is_csi => (step, Duration::ZERO),
        None => (Step::Announce, Duration::ZERO),
        Some(passed) if may_be_wiped(&volume.pv) => {
            (step, delay.max(cleanup_timeout).saturating_sub(passed))
        }
        Some(passed) => (step, delay.saturating_sub(passed)),
    }))
}

/// The final step for a PV whose node is gone, after the delay.
fn last_step(volume: &Volume) -> Option<Step> {
    let pv = &volume.pv;
    match pv.phase {
        Phase::Bound => volume.claim_uid().map(|_| Step::DeleteClaim),
        // For any policy: the PV is Terminating, and only our finalizer keeps it.
        _ if pv.deleting => pv.has_finalizer().then_some(Step::RemoveFinalizer),
        // Retained by policy, or left to an operator.
        Phase::Released if pv.policy != ReclaimPolicy::Delete => None,
        Phase::Pending | Phase::Failed => None,
        Phase::Available | Phase::Released if pv.has_finalizer() => Some(Step::RemoveFinalizer),
        Phase::Available | Phase::Released => Some(Step::DeletePv),
    }
}
