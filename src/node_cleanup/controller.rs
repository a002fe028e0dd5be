//! The loop: look at what the watches show, plan, carry out the most urgent steps, and look again.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::executor::{Executor, StepError};
use super::node_index::NodeIndex;
use super::plan::{self, Next, Step};
use super::report::{Findings, Report, first_list};
use super::volume::Volume;
use super::watches::View;
use crate::backoff::Backoff;
use crate::cluster::ApiError;

/// The most steps of one pass: a node that comes back does not wait behind thousands of volumes.
const MAX_STEPS: usize = 64;
/// How long changes are collected before the next pass.
const COALESCE: Duration = Duration::from_millis(200);
/// The pauses between attempts at one version of a PV. Its next version is a changed basis.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), LONGEST_RETRY);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// What this process remembers of a PV.
#[derive(Debug, Default)]
struct Memory {
    /// The mark on the PV, and since when this process has seen it while the node was gone.
    marked: Option<(String, Instant)>,
    /// The last attempt at a step.
    attempt: Option<Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// The version of the PV.
    version: String,
    backoff: Backoff,
    /// When the next attempt is due.
    next: Instant,
}

impl Memory {
    /// How long the present mark has been seen, from now on if it is a new one.
    fn marked_for(&mut self, volume: &Volume, now: Instant) -> Duration {
        match &self.marked {
            Some((mark, since)) if volume.mark.as_ref() == Some(mark) => now - *since,
            _ => {
                self.marked = volume.mark.clone().map(|mark| (mark, now));
                Duration::ZERO
            }
        }
    }

    /// When the next attempt at this version is due; `None` if there was none.
    fn next_attempt(&self, volume: &Volume) -> Option<Instant> {
        let attempt = self.attempt.as_ref()?;
        (attempt.version == volume.pv.resource_version).then_some(attempt.next)
    }
}

/// What a pass has planned.
#[derive(Debug)]
struct Plan {
    steps: Vec<(Step, Volume)>,
    /// The earliest moment at which another pass would decide differently.
    wake_at: Instant,
    findings: Findings,
}

/// Plans and carries out.
#[derive(Debug)]
pub struct Controller {
    executor: Executor,
    interval: Duration,
    concurrency: usize,
    heartbeat: watch::Sender<Instant>,
    /// By the PV's UID.
    memories: HashMap<String, Memory>,
    report: Report,
}

impl Controller {
    /// A controller that makes a pass at least once an `interval`, and carries out up to `concurrency` steps at once.
    #[must_use]
    pub fn new(
        executor: Executor,
        interval: Duration,
        concurrency: usize,
        heartbeat: watch::Sender<Instant>,
    ) -> Self {
        Self {
            executor,
            interval,
            concurrency,
            heartbeat,
            memories: HashMap::new(),
            report: Report::default(),
        }
    }

    /// Runs for ever. It may be dropped at any moment: each step is one write.
    pub async fn run(mut self, view: &View) {
        loop {
            self.heartbeat.send_replace(Instant::now());
            self.report.missing_permissions(&self.executor);
            let wake_at = match self.pass(view) {
                Some(plan) => {
                    self.report.publish(plan.findings, &self.executor);
                    if !plan.steps.is_empty() {
                        self.execute(plan.steps, view).await;
                        continue;
                    }
                    plan.wake_at
                }
                None => Instant::now() + self.interval,
            };
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = view.changed.notified() => sleep(COALESCE).await,
            }
        }
    }

    /// Plans; `None` until all is listed. Forgets what no PV of a node that is gone needs, so that a delay counts from
    /// zero after any pass that does not see the node gone.
    fn pass(&mut self, view: &View) -> Option<Plan> {
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
            let (step, due) = match plan::next(volume, &nodes, marked_for, self.executor.delay) {
                Next::Nothing => continue,
                Next::Unclear(why) => {
                    findings.unclear(why, &volume.pv.name);
                    continue;
                }
                Next::Wait(step, left) => (step, Some(now + left)),
                Next::Now(step) => (step, memory.next_attempt(volume)),
            };
            findings.count(step, volume);
            if step == Step::Unmark {
                memory.marked = None;
            }
            self.memories.insert(volume.pv.uid.clone(), memory);
            match due {
                Some(due) if due > now => wake_at = wake_at.min(due),
                _ => steps.push((step, volume)),
            }
        }
        // Volumes of one node follow each other, as they share the answer that it is gone.
        steps.sort_unstable_by(|a, b| (a.0, a.1.hosts()).cmp(&(b.0, b.1.hosts())));
        steps.truncate(MAX_STEPS);
        Some(Plan {
            steps: steps
                .into_iter()
                .map(|(step, it)| (step, it.clone()))
                .collect(),
            wake_at,
            findings,
        })
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

    /// Remembers an attempt. After a success there is nothing to do for this version of the PV.
    fn remember(&mut self, step: Step, volume: &Volume, result: &Result<(), StepError>) {
        let memory = self.memories.entry(volume.pv.uid.clone()).or_default();
        let before = memory.attempt.take();
        let before = before.filter(|it| it.version == volume.pv.resource_version);
        let mut backoff = before.map_or(RETRY, |before| before.backoff);
        let pause = match result {
            Ok(()) => LONGEST_RETRY,
            Err(_) => backoff.pause(),
        };
        let pv = &volume.pv.name;
        match result {
            // A missing permission is reported once for all PVs.
            Ok(()) | Err(StepError::Api(ApiError::Forbidden { .. })) => {}
            Err(
                error @ (StepError::Changed(_)
                | StepError::Api(ApiError::Conflict | ApiError::NotFound)),
            ) => {
                tracing::debug!(pv, ?step, %error, "not done; looked at again in {pause:?}");
            }
            Err(error) => tracing::warn!(pv, ?step, %error, "not done; tried again in {pause:?}"),
        }
        memory.attempt = Some(Attempt {
            version: volume.pv.resource_version.clone(),
            backoff,
            next: Instant::now() + pause,
        });
    }
}
