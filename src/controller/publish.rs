//! Publishes the outcome of a pass: log lines, events, metrics, the startup taint and `/status`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::REMEDY;
use crate::inventory::Finding;
use crate::metrics::series::Series;
use crate::metrics::{BY_JOB, BY_PROCESS};
use crate::plan::{About, ClassReport, NO_JOB_IMAGE, Notice, Plan, Snapshot, VolumeState, reasons};
use crate::status::Pass;
use crate::types::VolumeMode;

use super::{Controller, Memory, unix_time};

/// For how many periods a ready node stays ready while it only waits for new PVs.
const SETTLING_PERIODS: u32 = 3;

impl Controller {
    /// Publishes the outcome of a pass.
    pub(super) fn publish_status(&self, memory: &mut Memory, snapshot: &Snapshot, plan: Plan) {
        let before = Arc::clone(&self.parts.pass.borrow());
        // A cleaned volume has no PV until the next one is created. A ready node stays ready meanwhile.
        let was_ready = before.ended.is_some() && before.not_ready.is_empty();
        let settling = plan.only_waits_for_pvs();
        if !settling {
            memory.settled_at = Instant::now();
        }
        let lenient = was_ready
            && settling
            && memory.settled_at.elapsed() < self.parts.period * SETTLING_PERIODS;
        let Plan {
            made,
            mut notices,
            classes,
            mut not_ready,
            paused,
            ..
        } = plan;
        if lenient {
            not_ready.clear();
        }
        notices.extend(self.parts.cluster.permissions().missing().into_iter().map(
            |(resource, verb, why)| Notice {
                about: About::Pod,
                reason: reasons::PERMISSION_MISSING,
                message: format!(
                    "permission to {verb} {resource} is missing: {why}; {REMEDY}; it is retried"
                ),
            },
        ));
        let mut faults = self.parts.settings.faults.clone();
        if self.parts.settings.config.use_job_for_cleaning && self.parts.job_source.image.is_none()
        {
            faults.push(NO_JOB_IMAGE.to_owned());
        }
        notices.extend(faults.iter().map(|fault| Notice {
            about: About::Pod,
            reason: reasons::CLASS_INVALID,
            message: fault.clone(),
        }));
        Self::log_skips(memory, &classes);
        let in_doubt = in_doubt(snapshot, made);
        for notice in memory
            .notices
            .report(notices, in_doubt, &self.parts.reporter)
        {
            if notice.reason == reasons::VOLUME_FAILED_DELETE {
                self.count_failure(snapshot, &notice.about);
            }
        }
        self.set_gauges(snapshot, &classes, memory);
        let config = &self.parts.settings.config;
        let ready = not_ready.is_empty();
        memory.taint.follow(config, snapshot.node.as_ref(), ready);
        if before.not_ready != not_ready || before.ended.is_none() {
            if not_ready.is_empty() {
                tracing::info!("ready: every eligible volume has a PersistentVolume");
            } else {
                tracing::info!("not ready: {}", not_ready.join("; "));
            }
        }
        let node = snapshot
            .node
            .as_ref()
            .map_or(before.node.clone(), |node| node.name.clone());
        self.parts.metrics.loop_last_success.set(unix_time());
        let ended = Some(Instant::now());
        let mut degraded = self.parts.reloads.degraded();
        degraded.extend(faults);
        self.parts.pass.send_replace(Arc::new(Pass {
            node,
            not_ready,
            degraded,
            paused,
            classes,
            ended,
            number: before.number + 1,
            resource_version: newest(snapshot),
        }));
    }

    /// Counts a failed or refused cleanup.
    fn count_failure(&self, snapshot: &Snapshot, about: &About) {
        let pvs = || snapshot.pvs.iter().flatten();
        let mode = match about {
            About::Pv(_, uid) => pvs().find(|pv| pv.uid == *uid).map(|pv| pv.mode),
            About::Pod => None,
        };
        let by_job =
            mode == Some(VolumeMode::Block) && self.parts.settings.config.use_job_for_cleaning;
        let labels = [
            mode.map_or("unknown", |mode| mode.as_str()),
            if by_job { BY_JOB } else { BY_PROCESS },
        ];
        let counter = &self.parts.metrics.delete_failed_total;
        counter.with_label_values(&labels).inc();
    }

    /// Logs each skipped entry and faulty class once.
    fn log_skips(memory: &mut Memory, classes: &[ClassReport]) {
        let mut now = BTreeSet::new();
        for class in classes {
            now.extend(
                class
                    .faults
                    .iter()
                    .map(|fault| format!("class {:?}: {fault}", class.name)),
            );
            now.extend(class.volumes.iter().filter_map(|volume| {
                let (detail, reason) = (volume.detail.as_ref()?, volume.reason?);
                let quiet = reason == crate::types::SkipReason::NamePatternMismatch;
                (!quiet && volume.pv.is_none()).then(|| detail.clone())
            }));
        }
        for line in now.difference(&memory.skips) {
            tracing::warn!("{line}");
        }
        memory.skips = now;
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes in a gauge")]
    fn set_gauges(&self, snapshot: &Snapshot, classes: &[ClassReport], memory: &Memory) {
        let metrics = &self.parts.metrics;
        let mut capacity = Series::default();
        for (name, class) in &self.parts.settings.config.classes {
            let volumes = snapshot
                .observed
                .get(name)
                .into_iter()
                .flat_map(|seen| &seen.entries);
            let bytes = volumes.map(|entry| match &entry.finding {
                Finding::Volume(candidate) => candidate.capacity as f64,
                Finding::Skipped(_) => 0.0,
            });
            capacity.add([class.volume_mode.as_str()], bytes.sum());
        }
        capacity.show(&metrics.capacity_bytes);
        let (mut with_state, mut skipped) = (Series::default(), Series::default());
        let mut paths = BTreeMap::new();
        for class in classes {
            // Prometheus sees an increase only if the series exists before it counts.
            let data_left = &metrics.cleanup_data_left_total;
            data_left.with_label_values(&[class.name.as_str()]);
            for volume in &class.volumes {
                if let Some(pv) = &volume.pv {
                    paths.insert(pv.as_str(), volume.path.as_str());
                }
                match volume.reason {
                    Some(reason) if volume.state == VolumeState::Skipped => {
                        skipped.add([&class.name, &reason.to_string()], 1);
                    }
                    _ => {
                        with_state.add([&class.name, &format!("{:?}", volume.state)], 1);
                    }
                }
            }
        }
        with_state.show(&metrics.volumes);
        skipped.show(&metrics.skipped_entries);
        let mut unhealthy = Series::default();
        let notices = memory.notices.about_pvs();
        for (pv, reason) in notices.filter(|it| it.1 != reasons::VOLUME_IN_USE) {
            let path = paths.get(pv).copied().unwrap_or_default();
            unhealthy.set([pv, path, reason], 1);
        }
        unhealthy.show(&metrics.unhealthy);
    }
}

/// Selects notices that may still be true although the plan has not repeated them: it could not judge them.
fn in_doubt(snapshot: &Snapshot, made: bool) -> impl Fn(&Notice) -> bool {
    let hidden = |class: &str| {
        snapshot
            .observed
            .get(class)
            .is_some_and(|seen| !seen.complete)
    };
    let some_hidden = snapshot.observed.values().any(|seen| !seen.complete);
    let pvs = snapshot.pvs.iter().flatten();
    let is_hidden: BTreeMap<_, _> = pvs.map(|pv| (pv.uid.clone(), hidden(&pv.class))).collect();
    move |notice| match (&notice.about, notice.reason) {
        // Missing permissions are known without a plan.
        (_, reasons::PERMISSION_MISSING) => false,
        _ if !made => true,
        // These notices do not depend on the scan of a class.
        (About::Pod, _) | (_, reasons::CLEANING_PAUSED | reasons::VOLUME_HOSTNAME_MISMATCH) => {
            false
        }
        // The other volume on the same storage may be of any class.
        (About::Pv(_, uid), reasons::VOLUME_DUPLICATE) => {
            some_hidden && is_hidden.contains_key(uid)
        }
        (About::Pv(_, uid), _) => is_hidden.get(uid) == Some(&true),
    }
}

/// The largest resourceVersion of the PVs in a snapshot; 0 without any. The versions of one resource compare
/// as numbers.
fn newest(snapshot: &Snapshot) -> u64 {
    let pvs = snapshot.pvs.iter().flatten();
    let versions = pvs.filter_map(|pv| pv.resource_version.parse().ok());
    versions.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use crate::inventory::Observation;
    use crate::plan::StorageClasses;
    use crate::view::PvView;

    use super::*;

    fn pv(name: &str, class: &str) -> PvView {
        let pv = json!({
            "metadata": { "name": name, "uid": name },
            "spec": { "storageClassName": class },
        });
        PvView::from_api(&serde_json::from_value(pv).unwrap())
    }

    fn snapshot(pvs: Option<Vec<PvView>>, classes: &[(&str, bool)]) -> Snapshot {
        let observed = classes.iter().map(|&(class, complete)| {
            let seen = Observation {
                entries: Vec::new(),
                complete,
                fault: None,
            };
            (class.to_owned(), seen)
        });
        let storage_classes = StorageClasses::Known(BTreeMap::new());
        Snapshot {
            pvs,
            ..Snapshot::new(storage_classes, observed.collect())
        }
    }

    fn notice(pv: &str, reason: &'static str) -> Notice {
        Notice {
            about: About::Pv(pv.into(), pv.into()),
            reason,
            message: String::new(),
        }
    }

    #[test]
    fn unreadable_class_leaves_only_its_own_pvs_in_doubt() {
        let pvs = || Some(vec![pv("a", "seen"), pv("b", "hidden")]);
        let partial = snapshot(pvs(), &[("seen", true), ("hidden", false)]);
        for (pv, reason, wanted) in [
            ("a", reasons::VOLUME_MISSING, false),
            ("b", reasons::VOLUME_MISSING, true),
            ("b", reasons::CLEANING_PAUSED, false),
            ("a", reasons::VOLUME_DUPLICATE, true),
            ("gone", reasons::VOLUME_MISSING, false),
            ("gone", reasons::VOLUME_DUPLICATE, false),
        ] {
            let found = in_doubt(&partial, true)(&notice(pv, reason));
            assert_eq!(found, wanted, "{pv} {reason}");
        }
        let whole = snapshot(pvs(), &[("seen", true), ("hidden", true)]);
        for reason in [reasons::VOLUME_MISSING, reasons::VOLUME_DUPLICATE] {
            assert!(!in_doubt(&whole, true)(&notice("b", reason)), "{reason}");
        }
    }

    #[test]
    fn all_notices_are_in_doubt_without_a_plan() {
        let unlisted = snapshot(None, &[("seen", true)]);
        let of_pod = |reason| Notice {
            about: About::Pod,
            ..notice("", reason)
        };
        for (notice, wanted) in [
            (notice("a", reasons::VOLUME_MISSING), true),
            (of_pod(reasons::CLASS_INVALID), true),
            (of_pod(reasons::PERMISSION_MISSING), false),
        ] {
            assert_eq!(in_doubt(&unlisted, false)(&notice), wanted, "{notice:?}");
        }
    }
}
