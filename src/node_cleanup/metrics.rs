//! The metrics of `node-cleanup`: those of the Go project's program under their names, and ours.

use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, IntCounter, IntGauge, Opts, Registry};

use crate::cluster::Permissions;
use crate::metrics::Metrics as Shared;

const PREFIX: &str = "local_volume_node_cleanup_";
/// What the client and the events count for the provisioner, too, and under its prefix.
const SHARED_PREFIX: &str = "local_volume_provisioner_";
const SHARED: [&str; 4] = [
    "watch_restarts_total",
    "missing_permission",
    "events_failed_total",
    "build_info",
];

/// All handles.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has its help text where it is made")]
pub struct Metrics {
    registry: Registry,
    shared: Arc<Shared>,
    permissions: Arc<Permissions>,
    pub pv_deleted: CounterVec,
    pub pv_delete_failed: CounterVec,
    pub claim_deleted: IntCounter,
    pub claim_delete_failed: IntCounter,
    pub finalizers_removed: IntCounter,
    pub leader: IntGauge,
    pub synced: IntGauge,
    pub pending_claims: IntGauge,
    pub stale_pvs: IntGauge,
    pub unclear_pvs: IntGauge,
}

impl Metrics {
    /// Makes all metrics, registered and at zero.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new(shared: Arc<Shared>, permissions: Arc<Permissions>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let opts = |name: &str, help: &str| Opts::new(format!("{PREFIX}{name}"), help);
        let counters = |name: &str, help: &str| {
            let made = CounterVec::new(opts(name, help), &["phase"]);
            registered(&registry, made)
        };
        let counter = |name: &str, help: &str| {
            let made = IntCounter::with_opts(opts(name, help));
            registered(&registry, made)
        };
        let gauge = |name: &str, help: &str| {
            let made = IntGauge::with_opts(opts(name, help));
            registered(&registry, made)
        };
        Ok(Self {
            pv_deleted: counters(
                "persistentvolume_delete_total",
                "PersistentVolumes of nodes that are gone that were deleted, by phase.",
            )?,
            pv_delete_failed: counters(
                "persistentvolume_delete_failed_total",
                "Deletions of PersistentVolumes that failed, by phase.",
            )?,
            claim_deleted: counter(
                "persistentvolumeclaim_delete_total",
                "Claims bound to volumes of nodes that are gone that were deleted.",
            )?,
            claim_delete_failed: counter(
                "persistentvolumeclaim_delete_failed_total",
                "Deletions of claims that failed.",
            )?,
            finalizers_removed: counter(
                "persistentvolume_finalizer_removed_total",
                "PersistentVolumes of nodes that are gone that our finalizer was taken off.",
            )?,
            leader: gauge("leader", "1 while this process is the one that acts.")?,
            synced: gauge(
                "synced",
                "1 while this process is the leader and has listed Nodes and PersistentVolumes.",
            )?,
            pending_claims: gauge(
                "pending_persistentvolumeclaims",
                "Claims whose node is gone and that are going to be deleted. 0 without the lease.",
            )?,
            stale_pvs: gauge(
                "stale_persistentvolumes",
                "PersistentVolumes whose node is gone, and which are going to be deleted or released. 0 without the lease.",
            )?,
            unclear_pvs: gauge(
                "unclear_persistentvolumes",
                "PersistentVolumes that are left alone because nobody can say whether their node is gone. 0 without the lease.",
            )?,
            registry,
            shared,
            permissions,
        })
    }

    /// Whether Nodes and PVs were listed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.get() != 0
    }

    /// Everything, for a scrape.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        for ((resource, verb), missing) in self.permissions.seen() {
            let gauge = &self.shared.missing_permission;
            gauge
                .with_label_values(&[resource, verb])
                .set(missing.into());
        }
        let mut families = self.registry.gather();
        for mut family in self.shared.registry.gather() {
            let name = family.name().to_owned();
            match name.strip_prefix(SHARED_PREFIX) {
                Some(rest) if SHARED.contains(&rest) => {
                    family.set_name(format!("{PREFIX}{rest}"));
                }
                None => {}
                Some(_) => continue,
            }
            families.push(family);
        }
        families
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let made = made?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}
