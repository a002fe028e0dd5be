//! The loop: plan by what the watches show, carry out the most urgent steps, and repeat.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::executor::Executor;
use super::plan::{self, NodeIndex, Step};
use super::report::{Findings, Report, first_list};
use super::volume::Volume;
use super::watches::View;
use crate::backoff::Backoff;
use crate::cluster::ApiError;
use crate::view::Phase;

/// The maximum number of steps in a pass, so that a node that comes back does not wait behind thousands of volumes.
const MAX_STEPS: usize = 64;
/// How long changes are collected before the next pass.
const COALESCE: Duration = Duration::from_millis(200);
/// The back-off between attempts at one version of a PV. Another version starts again.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(2),
    longest: Duration::from_mins(5),
};

/// The state that this process keeps of a PV whose node is gone.
#[derive(Debug)]
pub struct Memory {
    /// The claim that it names: another one has its own delay.
    claim: Option<String>,
    /// When the loss of its nodes was announced.
    announced_at: Option<Instant>,
    version: String,
    /// The number of failures with this version of the PV, and when the next attempt is due.
    failures: u32,
    next: Instant,
}

impl Memory {
    /// A new version is due at once.
    fn new(volume: &Volume, before: Option<Self>, now: Instant) -> Self {
        let (claim, version) = (volume.claim_uid(), &volume.pv.resource_version);
        let same_claim = before.as_ref().filter(|it| it.claim.as_deref() == claim);
        let announced_at = same_claim.and_then(|it| it.announced_at);
        let same_version = before.filter(|it| it.version == *version);
        let (failures, next) = same_version.map_or((0, now), |it| (it.failures, it.next));
        Self {
            claim: claim.map(str::to_owned),
            announced_at,
            version: version.clone(),
            failures,
            next,
        }
    }
}

/// Plans and carries out.
#[derive(Debug)]
pub struct Controller {
    /// Carries out the steps.
    pub executor: Executor,
    /// The time of the last progress.
    pub heartbeat: watch::Sender<Instant>,
    /// By the PV's UID.
    pub memories: HashMap<String, Memory>,
    /// The findings that were reported last.
    pub report: Report,
}

impl Controller {
    /// Runs until it is dropped, which is safe at any time: each step is one write.
    pub async fn run(mut self, view: &View) {
        loop {
            self.heartbeat.send_replace(Instant::now());
            self.report.missing_permissions(&self.executor);
            let (steps, wake_at) = self.pass(view);
            if !steps.is_empty() {
                for (step, volume) in steps {
                    let result = self.executor.execute(step, &volume, view).await;
                    self.heartbeat.send_replace(Instant::now());
                    self.remember(step, &volume, &result);
                }
                continue;
            }
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = view.changed.notified() => sleep(COALESCE).await,
            }
        }
    }

    /// Plans the steps, none until Nodes and PVs are listed, and when the next pass can decide differently. It drops
    /// the state of a PV whose node is not seen gone, so that the delay then counts from zero.
    fn pass(&mut self, view: &View) -> (Vec<(Step, Volume)>, Instant) {
        let (args, now) = (&self.executor.args, Instant::now());
        let mut wake_at = now + args.stale_pv_discovery_interval;
        let (nodes, volumes) = view.snapshot();
        let (Some(nodes), Some(volumes)) = (&*nodes, &*volumes) else {
            return (Vec::new(), wake_at);
        };
        if !self.executor.metrics.is_synced() {
            first_list(volumes, &args.storageclass_names);
            self.executor.metrics.synced.set(1);
        }
        let nodes = NodeIndex::new(nodes);
        let longest = args.cleanup_timeouts.iter().max();
        let cleanup_timeout = longest.copied().unwrap_or_default();
        let mut before = std::mem::take(&mut self.memories);
        let mut findings = Findings::default();
        let mut steps: Vec<(Step, &Volume)> = Vec::new();
        for volume in volumes.values() {
            let memory = Memory::new(volume, before.remove(&volume.pv.uid), now);
            let announced_for = memory.announced_at.map(|at| now - at);
            let delay = args.pvc_deletion_delay;
            let next = plan::next(volume, &nodes, announced_for, delay, cleanup_timeout);
            let (step, left) = match next {
                Ok(None) => continue,
                Ok(Some(next)) => next,
                Err(unclear) => {
                    let pvs = findings.unclear.entry(unclear).or_default();
                    pvs.push(volume.pv.name.clone());
                    continue;
                }
            };
            match volume.pv.phase {
                Phase::Bound => findings.claims += 1,
                _ => findings.pvs += 1,
            }
            let due = memory.next.max(now + left);
            self.memories.insert(volume.pv.uid.clone(), memory);
            if due > now {
                wake_at = wake_at.min(due);
            } else {
                steps.push((step, volume));
            }
        }
        // Volumes of one node are adjacent, since they share the confirmation that it is gone.
        steps.sort_unstable_by(|a, b| (a.0, &a.1.hosts).cmp(&(b.0, &b.1.hosts)));
        steps.truncate(MAX_STEPS);
        self.report.publish(findings, &self.executor);
        let steps = steps.into_iter().map(|(step, it)| (step, it.clone()));
        (steps.collect(), wake_at)
    }

    /// Records an attempt. After a success, this version of the PV requires no further step but that after the delay.
    fn remember(&mut self, step: Step, volume: &Volume, result: &Result<()>) {
        let pv = &volume.pv.name;
        let Some(memory) = self.memories.get_mut(&volume.pv.uid) else {
            return;
        };
        let now = Instant::now();
        let pause = match result {
            Ok(()) if step == Step::Announce => {
                memory.announced_at = Some(now);
                Duration::ZERO
            }
            Ok(()) => RETRY.longest,
            Err(_) => RETRY.pause(memory.failures),
        };
        memory.failures += u32::from(result.is_err());
        memory.next = now + pause;
        match result {
            Ok(()) => {
                let claim = volume.pv.claim.as_ref().map(ToString::to_string);
                let node = volume.hosts.join(", ");
                tracing::info!(?step, pv, claim, node, "done");
            }
            Err(error) => match error.downcast_ref::<ApiError>() {
                // A missing permission is reported once for all PVs.
                Some(ApiError::Forbidden { .. }) => {}
                Some(failure) if failure.is_change() => {
                    tracing::debug!(?step, pv, %error, "not done; planned again in {pause:?}");
                }
                _ => tracing::warn!(?step, pv, %error, "not done; tried again in {pause:?}"),
            },
        }
    }
}
