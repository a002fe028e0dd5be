//! The metrics of `node-cleanup`: those of the Go project's program under their names, and ours.

use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, IntCounter, IntGauge, Registry};

use crate::cluster::Permissions;
use crate::metrics::Metrics as Shared;
use crate::metrics::maker::Maker;

pub mod families;

const PREFIX: &str = "local_volume_node_cleanup_";
const SHARED_PREFIX: &str = "local_volume_provisioner_";
/// What the client and the events count for the provisioner, too, and under its prefix.
pub const SHARED: [&str; 4] = [
    "watch_restarts_total",
    "missing_permission",
    "events_failed_total",
    "build_info",
];

/// All handles.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has its help text in `families`")]
pub struct Metrics {
    registry: Registry,
    shared: Arc<Shared>,
    permissions: Arc<Permissions>,
    pub pv_deleted: CounterVec,
    pub pv_delete_failed: CounterVec,
    pub claim_deleted: IntCounter,
    pub claim_delete_failed: IntCounter,
    pub finalizers_removed: IntCounter,
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
        let mut make = Maker::default();
        let mut metrics = Self {
            pv_deleted: make.counters(&families::PV_DELETED)?,
            pv_delete_failed: make.counters(&families::PV_DELETE_FAILED)?,
            claim_deleted: make.int_counter(&families::CLAIM_DELETED)?,
            claim_delete_failed: make.int_counter(&families::CLAIM_DELETE_FAILED)?,
            finalizers_removed: make.int_counter(&families::FINALIZERS_REMOVED)?,
            synced: make.int_gauge(&families::SYNCED)?,
            pending_claims: make.int_gauge(&families::PENDING_CLAIMS)?,
            stale_pvs: make.int_gauge(&families::STALE_PVS)?,
            unclear_pvs: make.int_gauge(&families::UNCLEAR_PVS)?,
            registry: Registry::new(),
            shared,
            permissions,
        };
        (metrics.registry, _) = make.finish();
        Ok(metrics)
    }

    /// Whether Nodes and PVs were listed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.get() != 0
    }

    /// Everything, for a scrape.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.shared.set_missing(self.permissions.seen());
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
