//! The loop: plan by what the watches show, carry out the most urgent steps, report, and repeat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, sleep, sleep_until};

use super::metrics::Metrics;
use super::plan::{self, NodeIndex, Step};
use super::volume::Volume;
use super::watches::View;
use crate::args::NodeCleanup;
use crate::cluster::{ApiError, Cluster};
use crate::plan::{About, Notice, reasons};
use crate::report::{Notices, Reporter};
use crate::retry;
use crate::view::Phase;

/// The maximum number of steps in a pass, so that a node that comes back does not wait behind thousands of volumes.
const MAX_STEPS: usize = 64;
/// How long changes are collected before the next pass.
const COALESCE: Duration = Duration::from_millis(200);
/// The maximum number of PVs that a log line names.
const MAX_NAMES: usize = 5;
const REMEDY: &str = "apply the ClusterRole in deploy/node-cleanup.yaml, and bind it to the ServiceAccount of this Pod (docs/node-cleanup.md)";

/// The state that this process keeps of a PV whose node is gone.
#[derive(Debug, Default)]
pub struct Memory {
    /// The claim that it names: another one has its own delay.
    claim: Option<String>,
    /// When the loss of its nodes was announced.
    announced_at: Option<Instant>,
    version: String,
    /// The number of failures with this version of the PV, and when the next attempt is due.
    failures: u32,
    next: Option<Instant>,
}

impl Memory {
    /// A new version is due at once.
    fn updated(self, volume: &Volume) -> Self {
        let (claim, version) = (volume.claim_uid(), &volume.pv.resource_version);
        if self.version == *version {
            return self;
        }
        let is_same_claim = self.claim.as_deref() == claim;
        Self {
            claim: claim.map(str::to_owned),
            announced_at: self.announced_at.filter(|_| is_same_claim),
            version: version.clone(),
            ..Self::default()
        }
    }
}

/// Plans and carries out.
#[derive(Debug)]
pub struct Controller {
    /// The API server.
    pub cluster: Cluster,
    /// Publishes events.
    pub reporter: Reporter,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The classes, the delay and the limits.
    pub args: NodeCleanup,
    /// Ticks when the next request may be made. There are no bursts.
    pub requests: Interval,
    /// The time of the last progress.
    pub heartbeat: watch::Sender<Instant>,
    /// By label and name, when the API server last confirmed that no such Node exists.
    pub confirmed: HashMap<(String, String), Instant>,
    /// By the PV's UID.
    pub memories: HashMap<String, Memory>,
    /// The PVs that were kept in the last pass, by reason.
    pub unclear: BTreeMap<String, Vec<String>>,
    /// The missing permissions that were reported.
    pub permissions: Notices,
}

impl Controller {
    /// Runs until it is dropped, which is safe at any time: each step is one write.
    pub async fn run(&mut self, view: &View) {
        loop {
            self.heartbeat.send_replace(Instant::now());
            let missing = self.cluster.permissions.missing().into_iter().map(|missing| Notice {
                about: About::Pod,
                reason: reasons::PERMISSION_MISSING,
                message: format!("{missing}; {REMEDY}"),
            });
            self.permissions.report(missing.collect(), |_| false, &self.reporter);
            let (steps, wake_at) = self.pass(view);
            if steps.is_empty() {
                tokio::select! {
                    () = sleep_until(wake_at) => {}
                    () = view.changed.notified() => sleep(COALESCE).await,
                }
            }
            for (step, volume) in steps {
                let result = self.execute(step, &volume, view).await;
                self.heartbeat.send_replace(Instant::now());
                self.remember(step, &volume, result);
            }
        }
    }

    /// Plans the steps, none until Nodes and PVs are listed, and when the next pass can decide differently. It drops
    /// the state of a PV whose node is not seen gone, so that the delay then counts from zero.
    fn pass(&mut self, view: &View) -> (Vec<(Step, Volume)>, Instant) {
        let (args, metrics, now) = (&self.args, &self.metrics, Instant::now());
        let mut wake_at = now + args.stale_pv_discovery_interval;
        let (nodes, volumes) = (view.nodes.borrow(), view.volumes.borrow());
        let (Some(nodes), Some(volumes)) = (&*nodes, &*volumes) else {
            return (Vec::new(), wake_at);
        };
        if metrics.synced.get() == 0 {
            first_list(volumes, &args.storageclass_names);
            metrics.synced.set(1);
        }
        let nodes = NodeIndex::new(nodes);
        let longest = args.cleanup_timeouts.iter().max();
        let cleanup_timeout = longest.copied().unwrap_or_default();
        let mut before = std::mem::take(&mut self.memories);
        let (mut claims, mut pvs, mut unclear) = (0, 0, BTreeMap::<_, Vec<_>>::new());
        let mut steps = Vec::new();
        metrics.unclear_pvs.set(0);
        for volume in volumes.values() {
            let memory = before.remove(&volume.pv.uid).unwrap_or_default().updated(volume);
            let announced_for = memory.announced_at.map(|at| now - at);
            let delay = args.pvc_deletion_delay;
            let next = plan::next(volume, &nodes, announced_for, delay, cleanup_timeout);
            let (step, left) = match next {
                Ok(None) => continue,
                Ok(Some(next)) => next,
                Err(why) => {
                    metrics.unclear_pvs.inc();
                    unclear.entry(why).or_default().push(volume.pv.name.clone());
                    continue;
                }
            };
            match volume.pv.phase {
                Phase::Bound => claims += 1,
                _ => pvs += 1,
            }
            let due = memory.next.unwrap_or(now).max(now + left);
            self.memories.insert(volume.pv.uid.clone(), memory);
            if due > now {
                wake_at = wake_at.min(due);
            } else {
                steps.push((step, volume));
            }
        }
        // Volumes of one node are adjacent, since they share the confirmation that it is gone.
        steps.sort_unstable_by_key(|&(step, volume)| (step, &volume.hosts));
        steps.truncate(MAX_STEPS);
        if (metrics.pending_claims.get(), metrics.stale_pvs.get()) != (claims, pvs) {
            tracing::info!(claims, pvs, "remaining objects of lost nodes");
        }
        metrics.pending_claims.set(claims);
        metrics.stale_pvs.set(pvs);
        for (why, pvs) in &unclear {
            let count = pvs.len();
            if count > self.unclear.get(why).map_or(0, Vec::len) {
                let pvs = pvs[..count.min(MAX_NAMES)].join(", ");
                tracing::warn!(
                    count,
                    pvs,
                    "left alone: {why}; delete those of nodes that are gone by hand"
                );
            }
        }
        self.unclear = unclear;
        let steps = steps.into_iter().map(|(step, it)| (step, it.clone()));
        (steps.collect(), wake_at)
    }

    /// Records an attempt. After a success, this version of the PV requires no further step but that after the delay.
    fn remember(&mut self, step: Step, volume: &Volume, result: Result<()>) {
        let (pv, now) = (&volume.pv.name, Instant::now());
        let memory = self.memories.entry(volume.pv.uid.clone()).or_default();
        let Err(error) = result else {
            match step {
                Step::Announce => memory.announced_at = Some(now),
                _ => memory.next = Some(now + retry::NODE_CLEANUP.longest),
            }
            let claim = volume.pv.claim.as_ref().map(ToString::to_string);
            let node = volume.hosts.join(", ");
            tracing::info!(?step, pv, claim, node, "step completed");
            return;
        };
        let pause = retry::NODE_CLEANUP.pause(memory.failures);
        memory.failures += 1;
        memory.next = Some(now + pause);
        match error.downcast_ref::<ApiError>() {
            // A missing permission is reported once for all PVs.
            Some(ApiError::Forbidden { .. }) => {}
            Some(failure) if failure.is_change() => {
                tracing::debug!(?step, pv, %error, "the object has changed; the step is planned again in {pause:?}");
            }
            _ => tracing::warn!(?step, pv, %error, "step failed; retried in {pause:?}"),
        }
    }
}

/// Logs the first list, and warns of configured classes without any PV, whose name may be misspelt.
fn first_list(volumes: &BTreeMap<String, Volume>, classes: &[String]) {
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
