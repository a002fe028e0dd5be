//! Reports a pass: log lines, metrics, and the event about a missing permission.

use std::collections::{BTreeMap, BTreeSet};

use super::executor::Executor;
use super::watches::Volumes;
use crate::plan::{About, Notice, reasons};
use crate::report::Notices;

/// The maximum number of PVs that a log line names.
const MAX_NAMES: usize = 5;
const REMEDY: &str = "apply the ClusterRole in deploy/node-cleanup.yaml, and bind it to the ServiceAccount of this Pod (docs/node-cleanup.md)";

/// The findings of a pass.
#[derive(Debug, Default)]
pub struct Findings {
    /// Claims that are going to be deleted.
    pub claims: i64,
    /// PVs that are going to be deleted or released.
    pub pvs: i64,
    /// PVs that are kept, by reason.
    pub unclear: BTreeMap<String, Vec<String>>,
}

/// The findings that were reported last.
#[derive(Debug, Default)]
pub struct Report {
    last: Findings,
    permissions: Notices,
}

impl Report {
    /// Reports a pass.
    pub fn publish(&mut self, findings: Findings, executor: &Executor) {
        let metrics = &executor.metrics;
        let Findings { claims, pvs, .. } = findings;
        metrics.pending_claims.set(claims);
        metrics.stale_pvs.set(pvs);
        if (self.last.claims, self.last.pvs) != (claims, pvs) {
            tracing::info!(claims, pvs, "these are left of nodes that are gone");
        }
        let mut unclear = 0;
        for (why, pvs) in &findings.unclear {
            unclear += pvs.len();
            if pvs.len() > self.last.unclear.get(why).map_or(0, Vec::len) {
                let (count, pvs) = (pvs.len(), pvs[..pvs.len().min(MAX_NAMES)].join(", "));
                tracing::warn!(
                    count,
                    pvs,
                    "left alone: {why}; delete those of nodes that are gone by hand"
                );
            }
        }
        metrics
            .unclear_pvs
            .set(i64::try_from(unclear).unwrap_or(i64::MAX));
        self.last = findings;
    }

    /// Reports each missing permission once until it is granted.
    pub fn missing_permissions(&mut self, executor: &Executor) {
        let missing = executor.cluster.permissions.missing().into_iter();
        let notices = missing.map(|missing| Notice {
            about: About::Pod,
            reason: reasons::PERMISSION_MISSING,
            message: format!("{missing}; {REMEDY}"),
        });
        let reporter = &executor.reporter;
        self.permissions
            .report(notices.collect(), |_| false, reporter);
    }
}

/// Logs the first list, and warns of configured classes without any PV, whose name may be misspelt.
pub fn first_list(volumes: &Volumes, classes: &[String]) {
    let pvs = volumes.len();
    tracing::info!(pvs, "Nodes and PersistentVolumes are listed");
    let found: BTreeSet<_> = volumes.values().map(|it| &it.pv.class).collect();
    for class in classes.iter().filter(|class| !found.contains(class)) {
        tracing::warn!(
            class,
            "no local PersistentVolume has this class yet; if that is a mistake, correct --storageclass-names (`kubectl get pv` shows the classes)"
        );
    }
}
