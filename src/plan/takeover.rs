//! Takeover: a disk that was moved to this node brings its claim along.
//!
//! The spec of a PV that is bound to its disk names no node, so nothing but metadata changes, in one patch. It permits two
//! things to happen on this node: the label by which the scheduler finds the disk, and the link.
//!
//! [`is_takeable`] compares the PV with the disk, which must be world-unique: a mark alone can be a copy. [`is_fenced`] requires
//! that the node that had the disk does not use it any more. Both judge what was read from the API server for this purpose.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::Binding;
use crate::host::identity::{GlobalIdentity, Match, compare};
use crate::host::mark::{MarkFact, MarkOnDisk, MarkState, Place};
use crate::inventory::{Skip, Volume};
use crate::names::{
    ANNOTATION_CONSENT, ANNOTATION_PATH, ANNOTATION_PROVISIONED_BY, ANNOTATION_STATE_DIRECTORY,
    LABEL_HOSTNAME, TAINT_OUT_OF_SERVICE, nodes_of_provisioner, provisioner_name,
};
use crate::types::{SkipReason, VolumeMode};
use crate::view::{NodeView, Phase, PvView};

use super::consent::{consent, consents_to};
use super::upkeep::{is_labelled, owned_by};
use super::{Action, Agreement, Planner, Settings, agreement};

/// What the API server says of the node that had a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerNode {
    /// The Nodes that have its name or hostname, and whether each has the taint [`TAINT_OUT_OF_SERVICE`].
    pub nodes: Vec<(String, bool)>,
    /// A Pod of the claim on another node than this one that has not ended: its name, and the node.
    pub pod: Option<(String, String)>,
}

/// The identity of a volume of a class with `binding: disk` that no other volume in the world has.
pub fn world_unique(volume: &Volume) -> Option<&GlobalIdentity> {
    let is_bound_to_disk = volume.class.binding == Binding::Disk;
    let identity = volume.candidate.global.as_ref()?;
    (is_bound_to_disk && identity.is_unique).then_some(identity)
}

/// Checks that a PV of another node is that of a volume, and only the node has to change.
///
/// # Errors
/// What an operator has to decide first.
pub fn is_takeable(
    settings: &Settings,
    node: &NodeView,
    pv: &PvView,
    volume: &Volume,
) -> Result<(), String> {
    let (candidate, class) = (&volume.candidate, &volume.class);
    let is_unique = world_unique(volume).is_some() && !candidate.identity.weak;
    let is_recorded = is_unique && is_labelled(pv, candidate);
    let recorded = pv.identity.as_deref();
    let by = pv.provisioned_by.as_deref().unwrap_or("no provisioner");
    if pv.link.is_none() {
        return Err("it names a path, not a disk (binding: path)".into());
    }
    if !pv.is_kept_by(node) {
        match (pv.phase, &pv.claim) {
            _ if pv.deleting => {
                return Err("it is Terminating; if its disk was moved here, save the data".into());
            }
            (Phase::Bound, Some(_)) => {}
            _ if pv.never_used() => {
                return Err("it was never used; if its disk was moved here, delete that PV".into());
            }
            _ => {
                return Err(format!(
                    "its claim is gone; if its disk was moved here, put it back to have it cleaned, or save the data, delete that PV and run local-volume-provisioner clean {}",
                    volume.mount_path
                ));
            }
        }
    }
    if !is_recorded || !recorded.is_some_and(|it| compare(it, &candidate.identity) == Match::Same) {
        return Err("it does not record this disk".into());
    }
    if pv.class != class.name || pv.mode != class.volume_mode {
        let (of_pv, mode) = (&pv.class, pv.mode.as_str());
        return Err(format!(
            "it is of class {of_pv:?} and volumeMode {mode}; mount the disk in the directory of that class"
        ));
    }
    if nodes_of_provisioner(by).is_empty() || pv.installation != settings.installation {
        let of = pv.installation.as_deref().unwrap_or(by);
        return Err(format!("it is of {of}, which is another installation"));
    }
    let Some(cluster) = settings.judges(candidate) else {
        return Err("marks are off".into());
    };
    // Only the marks of the volume count, and none is written.
    match agreement(pv, cluster, candidate, Timestamp::UNIX_EPOCH) {
        Agreement::Agrees | Agreement::Lags(_) => Ok(()),
        Agreement::Mismatch(why) => Err(why),
    }
}

/// Checks that the node that had the disk of a PV does not use it any more.
///
/// # Errors
/// What is missing, and what to do.
pub fn is_fenced(
    node: &NodeView,
    pv: &PvView,
    volume: &Volume,
    former: &FormerNode,
) -> Result<(), String> {
    if let Some((pod, on)) = &former.pod {
        return Err(format!(
            "its Pod {pod} on node {on} has not ended; if the disk was not moved here, remove {}; otherwise delete the Pod, and if the node is down, first see that it is off",
            volume.mount_path
        ));
    }
    let others: Vec<_> = former.nodes.iter().filter(|(name, _)| *name != node.name).collect();
    let is_off = others.iter().all(|(_, is_off)| *is_off);
    let is_shared = volume.candidate.global.as_ref().is_none_or(|it| it.is_shared);
    let (is_ours, is_gone) = (pv.is_kept_by(node), others.is_empty());
    let is_out = if is_gone { is_ours || !is_shared } else { is_off };
    // The state directory of the other node may have the mark of a device for a later tenant than that of a restored PV,
    // and ours may have an old one.
    let MarkFact { on_disk, place, .. } = &volume.candidate.mark;
    let moves_along = *place == Some(Place::Attribute) || is_ours;
    let is_marked = on_disk.valid().is_some() && moves_along;
    if (is_out && is_marked) || consents_to("move", pv, &volume.candidate) {
        return Ok(());
    }
    let nodes: Vec<_> = others.iter().map(|it| it.0.as_str()).collect();
    let nodes = nodes.join(" ");
    let state = match (is_marked, is_gone) {
        (false, _) => "its mark is in the state directory of the other node".to_owned(),
        (true, true) => "several machines can reach the disk, and its Node is gone".to_owned(),
        (true, false) => format!(
            "if the disk was not moved here, remove the entry; if the node is off: kubectl taint node {nodes} {TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute"
        ),
    };
    let (name, consent) = (&pv.name, consent("move", Some(pv), &volume.candidate));
    // One annotation has both.
    let given = accepted(pv, volume).into_iter().chain([consent]);
    let consent = given.collect::<Vec<_>>().join(",");
    Err(format!(
        "{state}; if the disk has the data of its claim, and is detached from the other node: kubectl annotate --overwrite pv {name} {ANNOTATION_CONSENT}={consent}"
    ))
}

/// An operator's consent that the volume is that of the PV, whatever the mark says.
fn accepted(pv: &PvView, volume: &Volume) -> Option<String> {
    let is_given = consents_to("accept", pv, &volume.candidate);
    is_given.then(|| consent("accept", Some(pv), &volume.candidate))
}

/// The metadata that makes a PV one of this node.
pub fn taken_over(settings: &Settings, node: &NodeView, pv: &PvView, volume: &Volume) -> Value {
    let config = &settings.config;
    let by = provisioner_name(&node.name, &node.uid, config.use_node_name_only);
    let mut metadata = json!({
        "labels": { LABEL_HOSTNAME: node.hostname },
        "annotations": {
            ANNOTATION_PROVISIONED_BY: by,
            ANNOTATION_PATH: volume.path.as_str(),
            ANNOTATION_CONSENT: accepted(pv, volume),
            // That of the other node.
            ANNOTATION_STATE_DIRECTORY: null,
        },
    });
    let of_node = config.node_labels_for_pv.iter();
    for key in of_node.filter(|key| !config.labels_for_pv.contains_key(*key)) {
        metadata["labels"][key] = json!(node.labels.get(key));
    }
    if let Some(owners) = owned_by(node, pv) {
        metadata["ownerReferences"] = json!(owners);
    }
    metadata
}

/// Why a volume waits whose PV is of another node.
pub fn waits(pv: &PvView, volume: &Volume, why: &str) -> Skip {
    let (path, name, node) = (&volume.path, &pv.name, pv.hostname_label.as_deref());
    let detail =
        format!("{path} is the disk of PV {name} of node {}: {why}", node.unwrap_or("unknown"));
    Skip::new(SkipReason::IdentityOnOtherPV, detail)
}

impl Planner<'_> {
    /// Looks for the PV of another node that a volume belongs to that cannot be offered otherwise, so that it is taken over.
    ///
    /// # Errors
    /// Why it waits. `Ok`: there is no such PV.
    pub(super) fn is_of_no_other_node(&mut self, volume: &Arc<Volume>) -> Result<(), Skip> {
        let candidate = &volume.candidate;
        // As in a command, which takes nothing over.
        let Some(cluster) = self.settings.judges(candidate) else {
            return Ok(());
        };
        let may_have_tenant = match &candidate.mark.on_disk {
            // That of a device does not move with it.
            _ if candidate.kind == VolumeMode::Block => true,
            MarkOnDisk::Valid(mark) => {
                mark.cluster == cluster
                    && matches!(mark.state, MarkState::Offered | MarkState::Used)
            }
            MarkOnDisk::Absent => true,
            MarkOnDisk::Unreadable { .. } => false,
        };
        if world_unique(volume).is_none() || !may_have_tenant {
            return Ok(());
        }
        let ledger = &self.snapshot.ledger;
        let found = ledger.moved.of(volume);
        let is_due = found.is_none_or(|it| it.retry_at <= self.snapshot.now);
        if is_due && !ledger.writing.contains(volume.path.as_str()) {
            self.plan.actions.push(Action::TakeOver(Arc::clone(volume)));
        }
        match found {
            Some(it) if it.skip.reason == SkipReason::IdentityOnOtherPV => Err(it.skip.clone()),
            Some(_) => Ok(()),
            None => {
                let detail = format!("{}: the PV of its mark is looked for", volume.path);
                Err(Skip::new(SkipReason::IdentityOnOtherPV, detail))
            }
        }
    }
}
