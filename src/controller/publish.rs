//! Publishes the outcome of a pass: log lines, events, metrics, the startup taint and `/status`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::REMEDY;
use crate::inventory::Observation;
use crate::metrics::{BY_JOB, BY_PROCESS};
use crate::plan::{
    About, ClassReport, NO_JOB_IMAGE, NO_MARKS, Notice, Plan, Snapshot, VolumeReport, VolumeState,
    reasons,
};
use crate::status::Pass;
use crate::types::{HostPath, SkipReason, VolumeMode};
use crate::view::PvView;

use super::{Controller, unix_time};

/// For how many periods a ready node stays ready while it only waits for new PVs.
const CREATION_GRACE_PERIODS: u32 = 3;

impl Controller {
    /// Publishes the outcome of a pass that has begun at a time.
    pub(super) fn publish(&mut self, snapshot: &Snapshot, mut plan: Plan, begun: Instant) {
        let before = Arc::clone(&self.pass.borrow());
        // A cleaned volume has no PV until the next one is created. A ready node stays ready meanwhile.
        let was_ready = before.ended.is_some() && before.not_ready.is_empty();
        if !plan.is_creating {
            self.all_created_at = Instant::now();
        } else if was_ready
            && self.all_created_at.elapsed() < self.periods.discovery * CREATION_GRACE_PERIODS
        {
            plan.not_ready.clear();
        }
        let mut faults = self.settings.faults.clone();
        if self.settings.config.use_job_for_cleaning && self.context.jobs.image.is_none() {
            faults.push(NO_JOB_IMAGE.to_owned());
        }
        if self.periods.has_marks && self.settings.cluster.is_none() {
            faults.push(NO_MARKS.to_owned());
        }
        let missing = self.context.cluster.permissions.missing().into_iter().map(|missing| {
            let text = format!("{missing}; {REMEDY}; it is retried");
            (reasons::PERMISSION_MISSING, text)
        });
        let invalid = faults.iter().cloned().map(|fault| (reasons::CLASS_INVALID, fault));
        let unprotected =
            before.unprotected.iter().cloned().map(|text| (reasons::PROTECTION_MISSING, text));
        let of_pod = missing.chain(invalid).chain(unprotected).map(|(reason, message)| Notice {
            about: About::Pod,
            reason,
            message,
        });
        plan.notices.extend(of_pod);
        self.log_skips(&plan.classes);
        let in_doubt = |notice: &Notice| in_doubt(snapshot, plan.made, notice);
        for notice in self.notices.new_in(&plan.notices) {
            if notice.reason == reasons::VOLUME_FAILED_DELETE {
                self.count_failure(snapshot, &notice.about);
            }
        }
        let reporter = &self.context.reporter;
        self.notices.report(plan.notices, in_doubt, reporter);
        self.set_gauges(snapshot, &plan.classes);
        let ready = plan.not_ready.is_empty();
        let config = &self.settings.config;
        let node = snapshot.node.as_ref();
        self.taint.follow(&self.context, config, node, ready);
        let readiness = if ready {
            "ready: every eligible volume has a PersistentVolume".to_owned()
        } else {
            format!("not ready: {}", plan.not_ready.join("; "))
        };
        if self.logged_not_ready.as_ref() != Some(&plan.not_ready)
            && self.damper.permits(&readiness)
        {
            tracing::info!("{readiness}");
            self.logged_not_ready = Some(plan.not_ready.clone());
        }
        let node = node.map(|node| node.name.clone());
        self.pass.send_replace(Arc::new(Pass {
            node: node.unwrap_or_else(|| before.node.clone()),
            not_ready: plan.not_ready,
            degraded: [self.reloads.degraded(), faults].concat(),
            unprotected: before.unprotected.clone(),
            paused: plan.paused,
            classes: plan.classes,
            ended: Some(Instant::now()),
            number: before.number + 1,
            resource_version: newest(snapshot),
        }));
        let metrics = &self.context.metrics;
        let duration = metrics.loop_duration.with_label_values(&[""; 0]);
        duration.observe(begun.elapsed().as_secs_f64());
        metrics.loop_last_success.set(unix_time());
    }

    /// Counts a failed or refused cleanup.
    fn count_failure(&self, snapshot: &Snapshot, about: &About) {
        let mut pvs = snapshot.pvs.iter().flatten();
        let pv = pvs.find(|pv| matches!(about, About::Pv(_, uid) if pv.uid == *uid));
        let mode = pv.map(|pv| pv.mode);
        let by_job = mode == Some(VolumeMode::Block) && self.settings.config.use_job_for_cleaning;
        let mode = mode.map_or("unknown", VolumeMode::as_str);
        let by = if by_job { BY_JOB } else { BY_PROCESS };
        let counter = &self.context.metrics.delete_failed_total;
        counter.with_label_values(&[mode, by]).inc();
    }

    /// Logs each skipped entry and faulty class once, and one that comes and goes at most once a minute.
    fn log_skips(&mut self, classes: &[ClassReport]) {
        let mut now = BTreeSet::new();
        for class in classes {
            let faults = class.faults.iter();
            now.extend(faults.map(|fault| format!("class {:?}: {fault}", class.name)));
            let is_logged = |it: &&VolumeReport| {
                it.pv.is_none() && it.reason != Some(SkipReason::NamePatternMismatch)
            };
            let skipped = class.volumes.iter().filter(is_logged);
            now.extend(skipped.filter_map(|it| it.detail.clone()));
        }
        now.retain(|line| {
            let is_new = !self.skips.contains(line) && self.damper.permits(line);
            if is_new {
                tracing::warn!("{line}");
            }
            is_new || self.skips.contains(line)
        });
        self.skips = now;
    }

    #[allow(clippy::cast_precision_loss, reason = "bytes in a gauge")]
    fn set_gauges(&self, snapshot: &Snapshot, classes: &[ClassReport]) {
        let metrics = &self.context.metrics;
        let _alone = metrics.scrape.lock();
        metrics.capacity_bytes.reset();
        for (name, class) in &self.settings.config.classes {
            let seen = snapshot.observed.get(name);
            let volumes = seen.into_iter().flat_map(Observation::volumes);
            let bytes = volumes.map(|volume| volume.candidate.capacity as f64);
            let of_mode = [class.volume_mode.as_str()];
            let capacity = metrics.capacity_bytes.with_label_values(&of_mode);
            capacity.add(bytes.sum());
        }
        metrics.volumes.reset();
        metrics.skipped_entries.reset();
        metrics.disks_to_approve.reset();
        for class in classes {
            let name = class.name.as_str();
            if let Some(count) = class.disks_to_approve() {
                metrics.disks_to_approve.with_label_values(&[name]).set(count);
            }
            // Prometheus sees an increase only if the series exists before it counts.
            metrics.cleanup_data_left_total.with_label_values(&[name]);
            for volume in &class.volumes {
                let (gauges, value) = match volume.reason {
                    Some(reason) if volume.state == VolumeState::Skipped => {
                        (&metrics.skipped_entries, format!("{reason:?}"))
                    }
                    _ => (&metrics.volumes, format!("{:?}", volume.state)),
                };
                gauges.with_label_values(&[name, &value]).inc();
            }
        }
        metrics.unhealthy.reset();
        let notices = self.notices.about_pvs();
        for (pv, reason) in notices.filter(|it| it.1 != reasons::VOLUME_IN_USE) {
            let mut pvs = snapshot.pvs.iter().flatten();
            let path = pvs.find(|it| it.name == pv).and_then(PvView::path);
            let labels = [pv, path.map_or("", HostPath::as_str), reason];
            metrics.unhealthy.with_label_values(&labels).set(1);
        }
    }
}

/// Whether a notice may still be true although the plan has not repeated it: the plan could not judge it.
fn in_doubt(snapshot: &Snapshot, made: bool, notice: &Notice) -> bool {
    let is_hidden = |seen: &Observation| !seen.complete;
    match (&notice.about, notice.reason) {
        // Missing permissions are known without a plan.
        (_, reasons::PERMISSION_MISSING) => false,
        _ if !made => true,
        // These notices do not depend on the scan of a class.
        (About::Pod | About::Node(_) | About::Claim(_), _)
        | (_, reasons::CLEANING_PAUSED | reasons::VOLUME_HOSTNAME_MISMATCH) => false,
        (About::Pv(_, uid), reason) => {
            let mut pvs = snapshot.pvs.iter().flatten();
            pvs.find(|pv| pv.uid == *uid).is_some_and(|pv| {
                // The other volume on the same storage may be of any class.
                (reason == reasons::VOLUME_DUPLICATE && snapshot.observed.values().any(is_hidden))
                    || snapshot.observed.get(&pv.class).is_some_and(is_hidden)
            })
        }
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
                entries: Arc::default(),
                pod_mounts: std::collections::BTreeMap::default(),
                complete,
                fault: None,
                disks: Arc::default(),
                disks_fault: None,
            };
            (class.to_owned(), seen)
        });
        Snapshot { pvs, observed: observed.collect(), ..Snapshot::default() }
    }

    fn notice(pv: &str, reason: &'static str) -> Notice {
        Notice { about: About::Pv(pv.into(), pv.into()), reason, message: String::new() }
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
            let found = in_doubt(&partial, true, &notice(pv, reason));
            assert_eq!(found, wanted, "{pv} {reason}");
        }
        let whole = snapshot(pvs(), &[("seen", true), ("hidden", true)]);
        for reason in [reasons::VOLUME_MISSING, reasons::VOLUME_DUPLICATE] {
            assert!(!in_doubt(&whole, true, &notice("b", reason)), "{reason}");
        }
    }

    #[test]
    fn all_notices_are_in_doubt_without_a_plan() {
        let unlisted = snapshot(None, &[("seen", true)]);
        let of_pod = |reason| Notice { about: About::Pod, ..notice("", reason) };
        for (notice, wanted) in [
            (notice("a", reasons::VOLUME_MISSING), true),
            (of_pod(reasons::CLASS_INVALID), true),
            (of_pod(reasons::PERMISSION_MISSING), false),
        ] {
            assert_eq!(in_doubt(&unlisted, false, &notice), wanted, "{notice:?}");
        }
    }
}
