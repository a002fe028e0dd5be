//! The families of `node-cleanup`, in the order in which the page has them.

use crate::metrics::family::{Family, Kind, Label, Origin};

/// All of them; beside these it shows some of the provisioner, under its own prefix.
pub const FAMILIES: [&Family; 10] = [
    &PV_DELETED,
    &PV_DELETE_FAILED,
    &CLAIM_DELETED,
    &CLAIM_DELETE_FAILED,
    &FINALIZERS_REMOVED,
    &LEADER,
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
    advice: "They are tried again. If it goes on, the log has the API server's answer.",
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
    advice: "They are tried again. If it goes on, the log has the API server's answer.",
};
pub(super) const FINALIZERS_REMOVED: Family = Family {
    name: "local_volume_node_cleanup_persistentvolume_finalizer_removed_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes of nodes that are gone that our finalizer was taken off.",
    advice: "Nothing: nobody is left to clean them.",
};
pub(super) const LEADER: Family = Family {
    name: "local_volume_node_cleanup_leader",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "1 while this process is the one that acts.",
    advice: "If no process has 1 for minutes, look at the Lease and the log of the pods.",
};
pub(super) const SYNCED: Family = Family {
    name: "local_volume_node_cleanup_synced",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "1 while this process is the leader and has listed Nodes and PersistentVolumes.",
    advice: "If the leader stays at 0, it lacks a right, or the API server does not answer: see its log.",
};
pub(super) const PENDING_CLAIMS: Family = Family {
    name: "local_volume_node_cleanup_pending_persistentvolumeclaims",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "Claims whose node is gone and that are going to be deleted; 0 without the lease.",
    advice: "If the nodes are to come back, bring them back before `--pvc-deletion-delay` is over.",
};
pub(super) const STALE_PVS: Family = Family {
    name: "local_volume_node_cleanup_stale_persistentvolumes",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes whose node is gone, and which are going to be deleted or released; 0 without the lease.",
    advice: "It falls to 0. If not, see the log.",
};
pub(super) const UNCLEAR_PVS: Family = Family {
    name: "local_volume_node_cleanup_unclear_persistentvolumes",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "PersistentVolumes that are left alone because nobody can say whether their node is gone; 0 without the lease.",
    advice: "The log names them; they are yours to judge.",
};
