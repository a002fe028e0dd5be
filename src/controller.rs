//! The main loop: look, plan, act, say; then wait until something happens or ten seconds have gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use crate::act::Actor;
use crate::cache::{ClassCache, NodeCache, PvCache};
use crate::clean::World;
use crate::clean::table::ProcTable;
use crate::cluster::{Cluster, REMEDY};
use crate::host::patient_watch::PatientWatch;
use crate::metrics::Metrics;
use crate::plan::{
    About, ClassReport, CleanupState, Notice, Plan, Settings, Snapshot, StorageClasses,
    VolumeState, plan, reasons,
};
use crate::report::{Notices, Reporter};
use crate::scan::{Finding, Machine, Observation, Rounds};
use crate::status::Pass;
use crate::view::PvView;

/// How long a wake-up is held back, so that what happens together is looked at together.
const COALESCE: Duration = Duration::from_millis(20);
/// For how many periods PVs may be in the making before that makes the node unready.
const SETTLING: u32 = 3;
/// How often PVs without a label in our directories are looked at, if there are any. They cannot be
/// watched for without watching everybody's.
const STRAY_PERIOD: Duration = Duration::from_mins(1);

/// Everything that the loop is made of.
#[derive(Debug)]
pub struct Controller {
    /// The configuration in force.
    pub settings: Settings,
    /// The API server.
    pub cluster: Cluster,
    /// Our Node, watched.
    pub node: NodeCache,
    /// The StorageClasses, watched.
    pub storage_classes: ClassCache,
    /// Carries out plans.
    pub actor: Actor,
    /// The cleanups.
    pub table: Arc<ProcTable>,
    /// For events.
    pub reporter: Reporter,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Told when something happened.
    pub wake: Arc<Notify>,
    /// For the gate.
    pub world: watch::Sender<World>,
    /// For the HTTP server.
    pub pass: watch::Sender<Arc<Pass>>,
    /// The zero of the plan's time.
    pub epoch: Instant,
    /// The longest time between two passes.
    pub period: Duration,
}

/// What the loop remembers from pass to pass.
struct Memory {
    rounds: Rounds,
    host: Option<PatientWatch>,
    pvs: Option<PvCache>,
    /// For which classes the PVs without a label were listed.
    strays_of: BTreeSet<String>,
    strays_at: Instant,
    notices: Notices,
    /// When last no PV was being made.
    settled_at: Instant,
    /// What was logged of skipped entries and faulty classes the last time.
    skips: BTreeSet<String>,
    /// What is logged only once.
    said: BTreeSet<String>,
}

impl Controller {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let host = PatientWatch::new()
            .inspect_err(|error| {
                tracing::warn!(%error, "changes are found by looking every {:?} only", self.period);
            })
            .ok();
        let mut memory = Memory {
            rounds: Rounds::new(Arc::clone(&self.wake)),
            host,
            pvs: None,
            strays_of: BTreeSet::new(),
            strays_at: Instant::now(),
            notices: Notices::default(),
            settled_at: Instant::now(),
            skips: BTreeSet::new(),
            said: BTreeSet::new(),
        };
        self.storage_classes.settle().await;
        loop {
            let begun = Instant::now();
            self.pass(&mut memory, begun).await;
            let took = begun.elapsed();
            self.metrics
                .loop_duration
                .with_label_values::<&str>(&[])
                .observe(took.as_secs_f64());
            self.wait(&mut memory.host, took).await;
        }
    }

    /// Waits for a reason to look again.
    async fn wait(&self, host: &mut Option<PatientWatch>, took: Duration) {
        let changed = async {
            match host {
                Some(host) => host.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.wake.notified() => {}
            change = changed => match change {
                Ok(change) => tracing::trace!(?change, "woken"),
                Err(error) => {
                    tracing::error!(%error, "changes on this machine are found by looking every {:?} only, from now on", self.period);
                    *host = None;
                }
            },
            () = tokio::time::sleep(self.period) => return,
        }
        // Passes that take long are not made back to back.
        tokio::time::sleep(COALESCE.max(took)).await;
    }

    async fn pass(&self, memory: &mut Memory, begun: Instant) {
        let snapshot = self.look(memory).await;
        let mut plan = plan(&self.settings, &snapshot);
        if let Some(node) = snapshot.node.as_ref().filter(|_| plan.made) {
            self.world.send_replace(World {
                settings: self.settings.clone(),
                node: node.clone(),
                occupied: Arc::clone(&plan.occupied),
                paused: plan.paused,
            });
        }
        if let Some(pvs) = &memory.pvs {
            self.actor
                .apply(std::mem::take(&mut plan.actions), &pvs.learnt(), begun);
        }
        self.say(memory, &snapshot, plan);
    }

    /// Puts together what is.
    async fn look(&self, memory: &mut Memory) -> Snapshot {
        let node = self.node.view();
        let config = &self.settings.config;
        if let Some(host) = &mut memory.host {
            let dirs: Vec<PathBuf> = config
                .classes
                .values()
                .map(|class| class.mount_dir.as_path().to_owned())
                .collect();
            let silent = memory.rounds.silent(&config.classes);
            // Before the directories are read, so that no change falls in between.
            for fault in host.set_dirs(dirs, &silent).await {
                if memory.said.insert(fault.to_string()) {
                    tracing::warn!(%fault, "its changes are found by looking every {:?} only", self.period);
                }
            }
        }
        let observed = match tokio::task::spawn_blocking(Machine::read).await {
            Ok(Ok(machine)) => {
                memory
                    .rounds
                    .observe(&config.classes, &Arc::new(machine))
                    .await
            }
            _ => unreadable(&self.settings),
        };
        if let Some(node) = &node {
            let watching = memory.pvs.as_ref().map(PvCache::hostname);
            if watching != Some(node.hostname.as_str()) {
                let wake = Arc::clone(&self.wake);
                memory.pvs = Some(PvCache::start(&self.cluster, &node.hostname, wake));
                memory.strays_of.clear();
            }
        }
        self.find_strays(memory).await;
        let cleanups = self.table.view();
        if let Some(pvs) = &memory.pvs {
            // The watch does not tell of the end of a PV without the label.
            let released = cleanups
                .iter()
                .filter(|(_, it)| it.state == CleanupState::Succeeded);
            released.for_each(|(tenancy, _)| pvs.learnt().gone(&tenancy.pv_uid));
        }
        Snapshot {
            node,
            storage_classes: StorageClasses::Known(self.storage_classes.views()),
            observed,
            pvs: memory.pvs.as_ref().and_then(PvCache::views).filter(|_| {
                // Without the strays, a path may have a PV that we do not know of.
                config
                    .classes
                    .keys()
                    .all(|class| memory.strays_of.contains(class))
            }),
            cleanups,
            writing: self.actor.writing().names(),
            now: self.epoch.elapsed(),
        }
    }

    /// Finds the PVs in our directories that have no hostname label: once for each class, by the one
    /// list of all such PVs; afterwards those that were found are looked at now and then.
    async fn find_strays(&self, memory: &mut Memory) {
        let config = &self.settings.config;
        let (Some(pvs), Some(node)) = (&memory.pvs, self.node.view()) else {
            return;
        };
        let learnt = pvs.learnt();
        if config
            .classes
            .keys()
            .any(|class| !memory.strays_of.contains(class))
        {
            let dirs: Vec<_> = config
                .classes
                .values()
                .map(|class| &class.host_dir)
                .collect();
            let ours = |pv: &PvView| {
                let inside = |path| {
                    dirs.iter()
                        .any(|dir| crate::types::HostPath::is_within(path, dir))
                };
                pv.is_on(&node) && pv.path().is_some_and(inside)
            };
            match self.cluster.unlabelled_pvs(ours).await {
                Ok(strays) => {
                    if !strays.is_empty() {
                        let names: Vec<_> = strays.iter().map(|pv| pv.name.as_str()).collect();
                        tracing::info!(
                            pvs = names.join(", "),
                            "found PVs without a hostname label in our directories"
                        );
                    }
                    learnt.strays(strays);
                    memory.strays_of = config.classes.keys().cloned().collect();
                    memory.strays_at = Instant::now();
                }
                Err(error) => {
                    if memory.said.insert(format!("strays {error}")) {
                        tracing::warn!(%error, "the PVs without a hostname label could not be listed; nothing is made or cleaned until they are");
                    }
                }
            }
        } else if memory.strays_at.elapsed() >= STRAY_PERIOD {
            memory.strays_at = Instant::now();
            let cluster = self.cluster.clone();
            // Beside the loop, which must not wait for a slow API server.
            tokio::spawn(async move {
                for (uid, name) in learnt.stray_names() {
                    learnt.look_again(&cluster, &uid, &name).await;
                }
            });
        }
    }

    /// Tells people and monitoring how it is.
    fn say(&self, memory: &mut Memory, snapshot: &Snapshot, plan: Plan) {
        let before = Arc::clone(&self.pass.borrow());
        // A recycled volume is without a PV for a moment; that does not make a ready node unready.
        let was_ready = before.ended.is_some() && before.not_ready.is_empty();
        let settling = plan.only_waits_for_pvs();
        if !settling {
            memory.settled_at = Instant::now();
        }
        let lenient = was_ready && settling && memory.settled_at.elapsed() < self.period * SETTLING;
        let Plan {
            mut notices,
            classes,
            mut not_ready,
            paused,
            ..
        } = plan;
        if lenient {
            not_ready.clear();
        }
        notices.extend(self.cluster.permissions().missing().into_iter().map(|(resource, verb, why)| Notice {
            about: About::Pod,
            reason: reasons::PERMISSION_MISSING,
            message: format!(
                "the right to {verb} {resource} is missing ({why}); {REMEDY}; what depends on it is left out until then"
            ),
        }));
        notices.extend(self.settings.faults.iter().map(|fault| Notice {
            about: About::Pod,
            reason: reasons::CLASS_INVALID,
            message: fault.clone(),
        }));
        Self::say_skips(memory, &classes);
        let partial = snapshot
            .observed
            .values()
            .any(|observation| !observation.complete);
        for notice in memory.notices.tell(notices, partial, &self.reporter) {
            if notice.reason == reasons::VOLUME_FAILED_DELETE {
                self.metrics
                    .delete_failed_total
                    .with_label_values(&["unknown", "process"])
                    .inc();
            }
        }
        self.set_gauges(snapshot, &classes, memory);
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
        self.metrics.loop_last_success.set(unix_time());
        let ended = Some(Instant::now());
        let degraded = self.settings.faults.clone();
        self.pass.send_replace(Arc::new(Pass {
            node,
            not_ready,
            degraded,
            paused,
            classes,
            ended,
        }));
    }

    /// Each skipped entry and faulty class is in the log once, when it becomes so.
    fn say_skips(memory: &mut Memory, classes: &[ClassReport]) {
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
        let metrics = &self.metrics;
        let mut capacity: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, class) in &self.settings.config.classes {
            let volumes = snapshot
                .observed
                .get(name)
                .into_iter()
                .flat_map(|seen| &seen.entries);
            *capacity.entry(class.volume_mode.as_str()).or_default() += volumes
                .map(|entry| match &entry.finding {
                    Finding::Volume(candidate) => candidate.capacity as f64,
                    Finding::Skipped(_) => 0.0,
                })
                .sum::<f64>();
        }
        metrics.capacity_bytes.reset();
        for (mode, bytes) in capacity {
            metrics.capacity_bytes.with_label_values(&[mode]).set(bytes);
        }
        metrics.volumes.reset();
        metrics.skipped_entries.reset();
        for class in classes {
            for volume in &class.volumes {
                match volume.reason {
                    Some(reason) if volume.state == VolumeState::Skipped => {
                        let labels = [class.name.as_str(), &reason.to_string()];
                        metrics.skipped_entries.with_label_values(&labels).inc();
                    }
                    _ => {
                        let labels = [class.name.as_str(), &format!("{:?}", volume.state)];
                        metrics.volumes.with_label_values(&labels).inc();
                    }
                }
            }
        }
        metrics.unhealthy.reset();
        for (pv, reason) in memory.notices.about_pvs() {
            metrics.unhealthy.with_label_values(&[pv, reason]).set(1);
        }
    }
}

fn unreadable(settings: &Settings) -> BTreeMap<String, Observation> {
    let fault = "the mount table cannot be read; is /proc mounted?";
    let nothing = || Observation {
        entries: Vec::new(),
        complete: false,
        fault: Some(fault.to_owned()),
    };
    settings
        .config
        .classes
        .keys()
        .map(|name| (name.clone(), nothing()))
        .collect()
}

/// Seconds since 1970, for timestamps in metrics.
#[must_use]
pub fn unix_time() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
