//! The loop: plan by what the watches show, carry out the most urgent steps, and repeat.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::executor::{Executor, StepError};
use super::plan::{self, Next, NodeIndex, Step};
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

/// The state that this process keeps of a PV.
#[derive(Debug, Default)]
pub struct Memory {
    /// The mark on the PV, and since when this process has seen it while the node was gone.
    marked: Option<(String, Instant)>,
    /// The last attempt.
    attempt: Option<Attempt>,
}

/// The attempts at one version of a PV.
#[derive(Debug)]
struct Attempt {
    version: String,
    failures: u32,
    next: Instant,
}

impl Memory {
    /// How long the present mark has been seen. A new mark counts from `now`.
    fn marked_for(&mut self, volume: &Volume, now: Instant) -> Duration {
        let before = self.marked.take();
        let same = before.filter(|(mark, _)| volume.mark.as_ref() == Some(mark));
        let since = same.map_or(now, |(_, since)| since);
        self.marked = volume.mark.clone().map(|mark| (mark, since));
        now - since
    }

    /// The last attempt, if it was at this version.
    fn attempt_at(&self, version: &str) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|it| it.version == version)
    }
}

/// Plans and carries out.
#[derive(Debug)]
pub struct Controller {
    /// Carries out the steps.
    pub executor: Executor,
    /// The maximum time between two passes.
    pub interval: Duration,
    /// The maximum number of concurrent steps.
    pub concurrency: usize,
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
            let mut wake_at = Instant::now() + self.interval;
            if let Some((steps, due)) = self.pass(view) {
                if !steps.is_empty() {
                    self.execute(steps, view).await;
                    continue;
                }
                wake_at = due;
            }
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = view.changed.notified() => sleep(COALESCE).await,
            }
        }
    }

    /// Plans the steps and when the next pass can decide differently; `None` until Nodes and PVs are listed. It drops
    /// the state of a PV whose node is not seen gone, so that the delay then counts from zero.
    fn pass(&mut self, view: &View) -> Option<(Vec<(Step, Volume)>, Instant)> {
        let (nodes, volumes) = view.snapshot()?;
        if !self.executor.metrics.is_synced() {
            first_list(&volumes, &self.executor.classes);
            self.executor.metrics.synced.set(1);
        }
        let (nodes, now) = (NodeIndex::new(&nodes), Instant::now());
        let mut before = std::mem::take(&mut self.memories);
        let mut findings = Findings::default();
        let mut steps: Vec<(Step, &Volume)> = Vec::new();
        let mut wake_at = now + self.interval;
        for volume in volumes.values() {
            let mut memory = before.remove(&volume.pv.uid).unwrap_or_default();
            let marked_for = memory.marked_for(volume, now);
            let (step, left) = match plan::next(volume, &nodes, marked_for, self.executor.delay) {
                Next::Nothing => continue,
                Next::Unclear(why) => {
                    let unclear = findings.unclear.entry(why).or_default();
                    unclear.push(volume.pv.name.clone());
                    continue;
                }
                Next::Step(step, left) => (step, left),
            };
            match step {
                Step::Unmark => memory.marked = None,
                _ if volume.pv.phase == Phase::Bound => findings.claims += 1,
                _ => findings.pvs += 1,
            }
            let attempt = memory.attempt_at(&volume.pv.resource_version);
            let due = attempt.map_or(now, |it| it.next).max(now + left);
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
        Some((steps.collect(), wake_at))
    }

    async fn execute(&mut self, steps: Vec<(Step, Volume)>, view: &View) {
        let (executor, heartbeat) = (&self.executor, &self.heartbeat);
        let results = futures::stream::iter(steps).map(|(step, volume)| async move {
            let result = executor.execute(step, &volume, view).await;
            heartbeat.send_replace(Instant::now());
            (step, volume, result)
        });
        let results: Vec<_> = results.buffer_unordered(self.concurrency).collect().await;
        for (step, volume, result) in results {
            self.remember(step, &volume, &result);
        }
    }

    /// Records an attempt. After a success this version of the PV requires no further step.
    fn remember(&mut self, step: Step, volume: &Volume, result: &Result<(), StepError>) {
        let (pv, version) = (&volume.pv.name, &volume.pv.resource_version);
        let memory = self.memories.entry(volume.pv.uid.clone()).or_default();
        let failures = memory.attempt_at(version).map_or(0, |it| it.failures);
        let pause = match result {
            Ok(()) => RETRY.longest,
            Err(_) => RETRY.pause(failures),
        };
        let node = volume.hosts.join(", ");
        match result {
            Ok(()) => {
                let claim = volume.pv.claim.as_ref().map(ToString::to_string);
                tracing::info!(?step, pv, claim, node, "done");
            }
            // A missing permission is reported once for all PVs.
            Err(StepError::Api(ApiError::Forbidden { .. })) => {}
            Err(error) if error.is_change() => {
                tracing::debug!(?step, pv, %error, "not done; planned again in {pause:?}");
            }
            Err(error) => tracing::warn!(?step, pv, %error, "not done; tried again in {pause:?}"),
        }
        memory.attempt = Some(Attempt {
            version: version.clone(),
            failures: failures + 1,
            next: Instant::now() + pause,
        });
    }
}
