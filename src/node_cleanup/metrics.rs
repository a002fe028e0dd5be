//! The metrics of `node-cleanup`: those of the Go project's program under their names, and ours.

use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, IntCounter, IntGauge, Registry,
    register_counter_vec_with_registry as CounterVec, register_counter_with_registry as Counter,
    register_int_counter_with_registry as IntCounter, register_int_gauge_with_registry as IntGauge,
};

use crate::cluster::Permissions;
use crate::metrics::{Metrics as Shared, metrics};

const PREFIX: &str = "local_volume_node_cleanup_";
const SHARED_PREFIX: &str = "local_volume_provisioner_";
/// The metrics that the provisioner shares, shown here under our prefix.
const SHARED: [&str; 4] =
    ["watch_restarts_total", "missing_permission", "events_failed_total", "build_info"];

metrics! {
    pv_deleted: CounterVec(&["phase"]) = "local_volume_node_cleanup_persistentvolume_delete_total",
        "PersistentVolumes of nodes that are gone that were deleted.";
    pv_delete_failed: CounterVec(&["phase"]) = "local_volume_node_cleanup_persistentvolume_delete_failed_total",
        "Deletions of PersistentVolumes that failed.";
    claim_deleted: Counter() = "local_volume_node_cleanup_persistentvolumeclaim_delete_total",
        "Claims bound to volumes of nodes that are gone that were deleted.";
    claim_delete_failed: Counter() = "local_volume_node_cleanup_persistentvolumeclaim_delete_failed_total",
        "Deletions of claims that failed.";
    finalizers_removed: IntCounter() = "local_volume_node_cleanup_persistentvolume_finalizer_removed_total",
        "PersistentVolumes of lost nodes whose finalizer was removed.";
    synced: IntGauge() = "local_volume_node_cleanup_synced",
        "1 when the process has listed Nodes and PersistentVolumes.";
    pending_claims: IntGauge() = "local_volume_node_cleanup_pending_persistentvolumeclaims",
        "Claims whose node is gone and that are going to be deleted.";
    stale_pvs: IntGauge() = "local_volume_node_cleanup_stale_persistentvolumes",
        "PersistentVolumes whose node is gone, and which are going to be deleted or released.";
    unclear_pvs: IntGauge() = "local_volume_node_cleanup_unclear_persistentvolumes",
        "PersistentVolumes that are kept because it is unknown whether their node is gone.";
}

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn new() -> prometheus::Result<Self> {
        Self::register(Registry::new())
    }

    /// All metrics, for a scrape.
    pub fn gather(&self, shared: &Shared, permissions: &Permissions) -> Vec<MetricFamily> {
        shared.set_missing(permissions.seen());
        let shown = shared.registry.gather().into_iter().filter_map(|mut family| {
            if let Some(rest) = family.name().strip_prefix(SHARED_PREFIX) {
                if !SHARED.contains(&rest) {
                    return None;
                }
                let name = format!("{PREFIX}{rest}");
                family.set_name(name);
            }
            Some(family)
        });
        self.registry.gather().into_iter().chain(shown).collect()
    }
}
