//! Reports a pass: log lines, metrics, and the event about a missing permission.

use std::collections::{BTreeMap, BTreeSet};

use super::executor::Executor;
use super::plan::Step;
use super::volume::Volume;
use super::watches::Volumes;
use crate::plan::About;
use crate::view::Phase;

/// The maximum number of PVs that a log line names.
const MAX_NAMES: usize = 5;
const REMEDY: &str = "apply the ClusterRole in deploy/node-cleanup.yaml, and bind it to the ServiceAccount of this Pod (docs/node-cleanup.md)";

/// The findings of a pass.
#[derive(Debug, Default)]
pub struct Findings {
    /// Claims and PVs that are going to be deleted.
    left: [i64; 2],
    /// PVs that are kept, by reason.
    unclear: BTreeMap<String, Vec<String>>,
}

impl Findings {
    /// Counts a PV of a node that is gone.
    pub fn count(&mut self, step: Step, volume: &Volume) {
        match step {
            Step::Unmark => {}
            _ if volume.pv.phase == Phase::Bound => self.left[0] += 1,
            _ => self.left[1] += 1,
        }
    }

    /// Records a PV that is kept, with the reason.
    pub fn unclear(&mut self, why: String, pv: &str) {
        self.unclear.entry(why).or_default().push(pv.to_owned());
    }
}

/// The findings that were reported last.
#[derive(Debug, Default)]
pub struct Report {
    left: [i64; 2],
    unclear: BTreeMap<String, Vec<String>>,
    denied: BTreeSet<(&'static str, &'static str)>,
}

impl Report {
    /// Reports a pass.
    pub fn publish(&mut self, findings: Findings, executor: &Executor) {
        let metrics = &executor.metrics;
        let [claims, pvs] = findings.left;
        metrics.pending_claims.set(claims);
        metrics.stale_pvs.set(pvs);
        if std::mem::replace(&mut self.left, findings.left) != findings.left {
            tracing::info!(claims, pvs, "these are left of nodes that are gone");
        }

        let count = findings.unclear.values().map(Vec::len).sum::<usize>();
        metrics
            .unclear_pvs
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        for (why, pvs) in &findings.unclear {
            let reported = self.unclear.get(why).map_or(0, Vec::len);
            if pvs.len() > reported {
                let names = pvs[..pvs.len().min(MAX_NAMES)].join(", ");
                tracing::warn!(
                    count = pvs.len(),
                    pvs = names,
                    "left alone: {why}; delete those of nodes that are gone by hand"
                );
            }
        }
        self.unclear = findings.unclear;
    }

    /// Reports each missing permission once until it is granted.
    pub fn missing_permissions(&mut self, executor: &Executor) {
        let missing = executor.cluster.permissions().missing();
        for (resource, verb, why) in &missing {
            if self.denied.insert((resource, verb)) {
                let text =
                    format!("the permission to {verb} {resource} is missing: {why}; {REMEDY}");
                tracing::warn!("{text}");
                let reporter = &executor.reporter;
                reporter.warning(&About::Pod, "PermissionMissing", "NodeCleanup", &text);
            }
        }
        let missing: BTreeSet<_> = missing
            .iter()
            .map(|(resource, verb, _)| (*resource, *verb))
            .collect();
        self.denied.retain(|it| missing.contains(it));
    }
}

/// Logs the first list, and warns of configured classes without any PV, whose name may be misspelt.
pub fn first_list(volumes: &Volumes, classes: &BTreeSet<String>) {
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
