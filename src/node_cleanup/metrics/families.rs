//! The families of `node-cleanup`, in the order in which the page has them.

use crate::metrics::family::{Family, Kind, Label, Origin};

/// All of them; beside these it shows some of the provisioner, under its own prefix.
pub const FAMILIES: [&Family; 9] = [
    &PV_DELETED,
    &PV_DELETE_FAILED,
    &CLAIM_DELETED,
    &CLAIM_DELETE_FAILED,
    &FINALIZERS_REMOVED,
    &SYNCED,
    &PENDING_CLAIMS,
    &STALE_PVS,
    &UNCLEAR_PVS,
];

const PHASE: Label = Label {
    name: "phase",
    values: "the PersistentVolume's phase",
};

pub(super) const PV_DELETED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolume_delete_total",
    kind: Kind::Counter,
    labels: &[PHASE],
    origin: Origin::Compat,
    help: "PersistentVolumes of nodes that are gone that were deleted.",
    advice: "Nothing: it grows when nodes go.",
};
pub(super) const PV_DELETE_FAILED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolume_delete_failed_total",
    kind: Kind::Counter,
    labels: &[PHASE],
    origin: Origin::Compat,
    help: "Deletions of PersistentVolumes that failed.",
    advice: "They are retried. If it goes on, the log has the API server's answer.",
};
pub(super) const CLAIM_DELETED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolumeclaim_delete_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Compat,
    help: "Claims bound to volumes of nodes that are gone that were deleted.",
    advice: "Nothing: it grows when nodes go. The event `ReferencedNodeDeleted` announced each.",
};
pub(super) const CLAIM_DELETE_FAILED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolumeclaim_delete_failed_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Compat,
    help: "Deletions of claims that failed.",
    advice: "They are retried. If it goes on, the log has the API server's answer.",
};
pub(super) const FINALIZERS_REMOVED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolume_finalizer_removed_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes of nodes that are gone that our finalizer was removed from.",
    advice: "Nothing: the provisioner that would clean them is gone, and so is the data.",
};
pub(super) const SYNCED: Family = Family {
    name: "local_volume_node_cleanup_synced",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "1 when the process has listed Nodes and PersistentVolumes.",
    advice: "If it stays at 0, a permission is missing, or the API server does not answer: see the log.",
};
pub(super) const PENDING_CLAIMS: Family = Family {
    name: "local_volume_node_cleanup_pending_persistentvolumeclaims",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "Claims whose node is gone and that are going to be deleted.",
    advice: "If the nodes are to come back, bring them back before `--pvc-deletion-delay` is over.",
};
pub(super) const STALE_PVS: Family = Family {
    name: "local_volume_node_cleanup_stale_persistentvolumes",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes whose node is gone, and which are going to be deleted or released.",
    advice: "It falls to 0. If not, see the log.",
};
pub(super) const UNCLEAR_PVS: Family = Family {
    name: "local_volume_node_cleanup_unclear_persistentvolumes",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes that are left alone because it is unclear whether their node is gone.",
    advice: "The log names them; they are yours to judge.",
};
