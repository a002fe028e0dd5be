//! The work of the leader: looks what there is to do, does the most urgent of it, and looks again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::act::{Hitch, Worker};
use super::plan::{self, Next, Step};
use super::pulse::Pulse;
use super::view::{View, Volumes};
use super::volume::Volume;
use crate::cluster::ApiError;
use crate::plan::About;
use crate::view::Phase;

/// Steps between two looks: what happens meanwhile, a node that comes back above all, is not left
/// waiting behind thousands of others.
const BATCH: usize = 64;
/// How long to let changes come together before the next look.
const COALESCE: Duration = Duration::from_millis(200);
/// How often it is said how much is left.
const TELL: Duration = Duration::from_secs(10);
/// How many PVs are named in a sentence.
const SHOWN: usize = 5;
/// The pause after a step that met something unexpected, and after failures, which doubles.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);
const REMEDY: &str = "grant the rights in deploy/node-cleanup.yaml to the ServiceAccount of this Pod (docs/node-cleanup.md)";

/// A PV with which there is nothing to be done for a while.
#[derive(Debug)]
struct Rest {
    /// As long as it has this version.
    version: String,
    until: Instant,
    failures: u32,
}

/// What there is to do.
#[derive(Debug, Default)]
struct Agenda {
    /// The most urgent steps, those of one node beside each other.
    steps: Vec<(Step, Volume)>,
    /// When the next timer runs out.
    next: Option<Timestamp>,
    /// When the next of the steps that were put off is to be looked at again.
    rested: Option<Instant>,
    /// Claims and PVs of nodes that are gone.
    claims: i64,
    pvs: i64,
    /// PVs that are left alone, by reason.
    unclear: BTreeMap<String, Vec<String>>,
}

/// The leader's work.
#[derive(Debug)]
pub struct Controller {
    worker: Arc<Worker>,
    interval: Duration,
    concurrency: usize,
    pulse: Arc<Pulse>,
    rests: HashMap<String, Rest>,
    said: BTreeMap<String, usize>,
    denied: BTreeSet<(&'static str, &'static str)>,
    told: Option<(Instant, [i64; 2])>,
}

impl Controller {
    /// Work that has not begun.
    #[must_use]
    pub fn new(
        worker: Arc<Worker>,
        interval: Duration,
        concurrency: usize,
        pulse: Arc<Pulse>,
    ) -> Self {
        Self {
            worker,
            interval,
            concurrency,
            pulse,
            rests: HashMap::new(),
            said: BTreeMap::new(),
            denied: BTreeSet::new(),
            told: None,
        }
    }

    /// Works for ever. It may be dropped at any moment, as every step is a write of its own.
    pub async fn run(mut self) {
        let wake = Arc::new(Notify::new());
        let view = View::start(&self.worker.cluster, &self.worker.classes, &wake);
        let mut listed = false;
        loop {
            self.pulse.beat();
            self.tell_denied();
            let now = Timestamp::now();
            let Some(agenda) = view.look(|roster, volumes| {
                if !std::mem::replace(&mut listed, true) {
                    self.tell_listed(volumes);
                }
                self.agenda(volumes, now, |volume| {
                    plan::next(volume, roster, now, self.worker.delay)
                })
            }) else {
                let _ = tokio::time::timeout(self.interval, wake.notified()).await;
                continue;
            };
            self.show(&agenda);
            if agenda.steps.is_empty() {
                let until_due = agenda.next.map_or(self.interval, |due| {
                    Duration::try_from(due.duration_since(now)).unwrap_or_default()
                });
                let until_rested = agenda.rested.map_or(self.interval, |rested| {
                    rested.saturating_duration_since(Instant::now())
                });
                let pause = until_due.min(until_rested);
                tokio::select! {
                    () = sleep(pause.clamp(Duration::from_millis(1), self.interval)) => {}
                    () = wake.notified() => sleep(COALESCE).await,
                }
            } else {
                self.work(agenda.steps, &view).await;
            }
        }
    }

    fn agenda(&self, volumes: &Volumes, now: Timestamp, next: impl Fn(&Volume) -> Next) -> Agenda {
        let mut agenda = Agenda::default();
        let mut steps: Vec<(Step, &Volume)> = Vec::new();
        for volume in volumes.values() {
            let step = match next(volume) {
                Next::Nothing => continue,
                Next::Unclear(why) => {
                    let pvs = agenda.unclear.entry(why).or_default();
                    pvs.push(volume.pv.name.clone());
                    continue;
                }
                Next::Wait(step, due) => {
                    agenda.next = Some(agenda.next.map_or(due, |next| next.min(due)));
                    agenda.count(step, volume);
                    continue;
                }
                Next::Now(step) => step,
            };
            agenda.count(step, volume);
            match self.rests_until(volume) {
                Some(until) => {
                    agenda.rested = Some(agenda.rested.map_or(until, |first| first.min(until)));
                }
                None => steps.push((step, volume)),
            }
        }
        let key = |(step, volume): &(Step, &Volume)| (*step, volume.hosts().to_vec());
        if steps.len() > BATCH {
            steps.select_nth_unstable_by(BATCH, |a, b| (a.0, a.1.hosts()).cmp(&(b.0, b.1.hosts())));
            steps.truncate(BATCH);
        }
        steps.sort_by_cached_key(key);
        agenda.steps = steps
            .into_iter()
            .map(|(step, volume)| (step, volume.clone()))
            .collect();
        // Whatever is due in the past is being worked on, or rests.
        agenda.next = agenda.next.filter(|next| *next > now);
        agenda
    }

    fn rests_until(&self, volume: &Volume) -> Option<Instant> {
        let rest = self.rests.get(&volume.pv.uid)?;
        let is_over = rest.version != volume.pv.resource_version || rest.until <= Instant::now();
        (!is_over).then_some(rest.until)
    }

    async fn work(&mut self, steps: Vec<(Step, Volume)>, view: &View) {
        let worker = Arc::clone(&self.worker);
        let pulse = Arc::clone(&self.pulse);
        let results = futures::stream::iter(steps)
            .map(|(step, volume)| {
                let (worker, pulse) = (&worker, &pulse);
                async move {
                    let result = worker.carry_out(step, &volume, view).await;
                    pulse.beat();
                    (step, volume, result)
                }
            })
            .buffer_unordered(self.concurrency);
        let mut results = std::pin::pin!(results);
        while let Some((step, volume, result)) = results.next().await {
            self.rest(step, &volume, result);
        }
    }

    fn rest(&mut self, step: Step, volume: &Volume, result: Result<Duration, Hitch>) {
        let pv = &volume.pv.name;
        let before = self
            .rests
            .get(&volume.pv.uid)
            .map_or(0, |rest| rest.failures);
        let (pause, failures) = match result {
            Ok(pause) => (pause, 0),
            Err(Hitch::NotLeader) => return,
            Err(Hitch::Changed(why)) => {
                tracing::debug!(pv, ?step, "not done: {why}");
                (LOOK_AGAIN, 0)
            }
            Err(Hitch::NotGone(why)) => {
                tracing::warn!(
                    pv,
                    ?step,
                    "not done, and looked at again in {LOOK_AGAIN:?}: {why}"
                );
                (LOOK_AGAIN, 0)
            }
            Err(Hitch::Api(error)) => {
                let pause = (BACK_OFF * 2_u32.saturating_pow(before)).min(LONGEST_BACK_OFF);
                // That one is said once for all PVs.
                if !matches!(error, ApiError::Forbidden { .. }) {
                    tracing::warn!(pv, ?step, %error, "failed; tried again in {pause:?}");
                }
                (pause, (before + 1).min(10))
            }
        };
        let until = Instant::now() + pause;
        self.rests
            .retain(|_, rest| rest.until.elapsed() < LONGEST_BACK_OFF);
        let version = volume.pv.resource_version.clone();
        let rest = Rest {
            version,
            until,
            failures,
        };
        self.rests.insert(volume.pv.uid.clone(), rest);
    }

    // === what people see ===

    fn show(&mut self, agenda: &Agenda) {
        let metrics = &self.worker.metrics;
        metrics.synced.set(1);
        metrics.pending_claims.set(agenda.claims);
        metrics.stale_pvs.set(agenda.pvs);
        let count = |pvs: &Vec<String>| i64::try_from(pvs.len()).unwrap_or(i64::MAX);
        metrics
            .unclear_pvs
            .set(agenda.unclear.values().map(count).sum());
        for (why, pvs) in &agenda.unclear {
            if self.said.get(why).is_none_or(|said| *said < pvs.len()) {
                let names = pvs[..pvs.len().min(SHOWN)].join(", ");
                let more = if pvs.len() > SHOWN { ", ..." } else { "" };
                tracing::warn!(
                    count = pvs.len(),
                    "PVs are left alone: {why}; delete by hand what is of a node that is gone: {names}{more}"
                );
            }
        }
        let unclear = agenda.unclear.iter();
        self.said = unclear.map(|(why, pvs)| (why.clone(), pvs.len())).collect();

        let left = [agenda.claims, agenda.pvs];
        let is_idle = left == [0, 0];
        match self.told {
            None if is_idle => {}
            Some(_) if is_idle => {
                tracing::info!("nothing is left of nodes that are gone");
                self.told = None;
            }
            Some((at, told)) if told == left || at.elapsed() < TELL => {}
            _ => {
                let [claims, pvs] = left;
                tracing::info!(
                    claims,
                    pvs,
                    "these claims and PVs are left of nodes that are gone"
                );
                self.told = Some((Instant::now(), left));
            }
        }
    }

    fn tell_listed(&self, volumes: &Volumes) {
        let pvs = volumes.len();
        tracing::info!(pvs, "Nodes and PersistentVolumes are listed");
        let found: BTreeSet<_> = volumes.values().map(|volume| &volume.class).collect();
        for class in self
            .worker
            .classes
            .iter()
            .filter(|class| !found.contains(class))
        {
            tracing::warn!(
                class,
                "no local PersistentVolume has this class yet; if that is a mistake, correct --storageclass-names (`kubectl get pv` shows the classes)"
            );
        }
    }

    /// Rights that are missing, once each until they are granted.
    fn tell_denied(&mut self) {
        let missing = self.worker.cluster.permissions().missing();
        for (resource, verb, why) in &missing {
            if self.denied.insert((resource, verb)) {
                let text = format!(
                    "the right to {verb} {resource} is missing, so that part waits: {why}; {REMEDY}"
                );
                tracing::warn!("{text}");
                let reporter = &self.worker.reporter;
                reporter.warning(&About::Pod, "PermissionMissing", "NodeCleanup", &text);
            }
        }
        self.denied.retain(|(resource, verb)| {
            missing
                .iter()
                .any(|(other, of, _)| other == resource && of == verb)
        });
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let metrics = &self.worker.metrics;
        for gauge in [
            &metrics.synced,
            &metrics.pending_claims,
            &metrics.stale_pvs,
            &metrics.unclear_pvs,
        ] {
            gauge.set(0);
        }
    }
}

impl Agenda {
    fn count(&mut self, step: Step, volume: &Volume) {
        match step {
            Step::Cancel => {}
            _ if volume.phase == Phase::Bound => self.claims += 1,
            _ => self.pvs += 1,
        }
    }
}
