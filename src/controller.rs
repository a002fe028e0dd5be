//! The main loop: look, plan, act, say; then wait until something happens or ten seconds have gone.

mod publish;
mod reloading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use crate::act::Actor;
use crate::cache::{ClassCache, JobCache, NodeCache, PvCache};
use crate::cleanup::ControllerState;
use crate::cleanup::table::ProcTable;
use crate::cluster::Cluster;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::plan::job_object::JobSource;
use crate::plan::{CleanupState, Settings, Snapshot, StorageClasses, plan};
use crate::report::{Notices, Reporter};
use crate::status::Pass;
use crate::taint::StartupTaint;
use crate::types::HostPath;
use crate::view::PvView;

pub use reloading::Reloads;

/// How long a wake-up is held back, so that what happens together is looked at together.
const COALESCE: Duration = Duration::from_millis(20);
/// How long a pass waits for the first scan of a new class. No pass waits for a later one.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_millis(500);
/// For how many periods a volume must be missing before the PV goes, where the class wants that.
const MISSING: u32 = 3;

/// Everything that the loop is made of.
#[derive(Debug)]
pub struct Controller {
    /// The configuration in force.
    pub settings: Settings,
    /// What is known of others that may come to be in force.
    pub reloads: Reloads,
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
    pub state: watch::Sender<ControllerState>,
    /// For the HTTP server.
    pub pass: watch::Sender<Arc<Pass>>,
    /// The zero of the plan's time.
    pub epoch: Instant,
    /// The longest time between two passes.
    pub period: Duration,
    /// What cleaning Jobs are made from.
    pub job_source: Arc<JobSource>,
}

/// What the loop remembers from pass to pass.
struct Memory {
    inventory: Inventory,
    pvs: Option<PvCache>,
    jobs: JobCache,
    notices: Notices,
    /// Since when which PVs have been without their volumes, as the last plan said.
    missing_since: BTreeMap<String, Duration>,
    taint: StartupTaint,
    /// When last no PV was being made.
    settled_at: Instant,
    /// What was logged of skipped entries and faulty classes the last time.
    skips: BTreeSet<String>,
}

impl Controller {
    /// Runs until it is dropped.
    pub async fn run(mut self, jobs: JobCache) {
        let mut memory = Memory {
            inventory: Inventory::new(Arc::clone(&self.wake), self.period),
            pvs: None,
            jobs,
            notices: Notices::default(),
            missing_since: BTreeMap::new(),
            taint: StartupTaint::new(self.cluster.clone(), self.reporter.clone()),
            settled_at: Instant::now(),
            skips: BTreeSet::new(),
        };
        self.storage_classes.settle().await;
        loop {
            let begun = Instant::now();
            self.reload(&mut memory);
            let wake_at = self.pass(&mut memory, begun).await;
            let took = begun.elapsed();
            self.metrics
                .loop_duration
                .with_label_values::<&str>(&[])
                .observe(took.as_secs_f64());
            self.wait(took, wake_at).await;
        }
    }

    /// Waits for a reason to look again.
    async fn wait(&self, took: Duration, wake_at: Option<Duration>) {
        let until = wake_at.map(|at| at.saturating_sub(self.epoch.elapsed()));
        let longest = until.map_or(self.period, |until| until.min(self.period));
        tokio::select! {
            () = self.wake.notified() => tracing::trace!("woken"),
            () = tokio::time::sleep(longest) => {}
        }
        // Passes that take long are not made back to back.
        tokio::time::sleep(COALESCE.max(took)).await;
    }

    /// Returns when the plan for the same facts changes, since the process started.
    async fn pass(&self, memory: &mut Memory, begun: Instant) -> Option<Duration> {
        let snapshot = self.look(memory).await;
        let mut plan = plan(&self.settings, &snapshot);
        if let Some(node) = snapshot.node.as_ref().filter(|_| plan.made) {
            self.state.send_replace(ControllerState {
                settings: self.settings.clone(),
                node: node.clone(),
                occupied: Arc::clone(&plan.occupied),
                paused: plan.paused,
            });
        }
        if let Some(pvs) = &memory.pvs {
            self.actor
                .apply(std::mem::take(&mut plan.actions), pvs.expectations(), begun);
        }
        memory.missing_since = std::mem::take(&mut plan.missing_since);
        let wake_at = plan.wake_at;
        self.publish_status(memory, &snapshot, plan);
        wake_at
    }

    /// Puts together what is.
    async fn look(&self, memory: &mut Memory) -> Snapshot {
        let node = self.node.view();
        let config = &self.settings.config;
        if let Some(node) = &node {
            let watching = memory.pvs.as_ref().map(PvCache::hostname);
            if watching != Some(node.hostname.as_str()) {
                memory.pvs = Some(PvCache::start(&self.cluster, &node.hostname, &self.wake));
            }
            if let Some(pvs) = &mut memory.pvs {
                pvs.find_unlabelled(node, &self.host_dirs());
            }
            let jobs = &mut memory.jobs;
            jobs.follow(&node.hostname, config.use_job_for_cleaning);
        }
        let inventory = &mut memory.inventory;
        inventory.serve(&config.classes);
        inventory.settle(FIRST_SCAN_TIMEOUT).await;
        // From here on nothing waits, so that all is of one moment.
        let jobs = memory.jobs.jobs();
        let mut under_way = self.actor.writing().now();
        let mut writing = std::mem::take(&mut under_way.names);
        let cleanups = self.table.view();
        if let Some(pvs) = &memory.pvs {
            // The watch does not tell of the end of a PV without the label.
            let released = cleanups
                .iter()
                .filter(|(_, it)| it.state == CleanupState::Released);
            released.for_each(|(it, _)| pvs.expectations().forget_unlabelled(&it.pv_uid));
            writing.extend(pvs.expectations().backing_off());
        }
        let pvs = self.pvs(memory);
        if let Some(pvs) = &pvs {
            let cleaning = cleanups.values().filter(|it| it.is_active());
            let paths = pvs.iter().filter_map(PvView::path);
            let taken: BTreeSet<_> = paths.chain(cleaning.map(|it| &it.path)).cloned().collect();
            memory.inventory.set_taken(&taken);
        }
        let observed = memory.inventory.observe();
        // What is about to be scanned again waits as if a PV were being made for it.
        let outdated = observed.outdated.into_iter();
        let outdated = outdated.map(|path| (path, String::new()));
        under_way.making.extend(outdated);
        Snapshot {
            node,
            storage_classes: StorageClasses::Known(self.storage_classes.views()),
            observed: observed.classes,
            // A PV may be gone, and its Job still clean the volume.
            pvs: jobs.as_ref().and(pvs),
            cleanups,
            jobs: jobs.unwrap_or_default(),
            job_source: Arc::clone(&self.job_source),
            writing,
            making: under_way.making,
            refusals: self.actor.device_checks().refusals(),
            now: self.epoch.elapsed(),
            date: jiff::Timestamp::now(),
            missing_since: std::mem::take(&mut memory.missing_since),
            missing_limit: self.period * MISSING,
        }
    }

    /// The PVs that concern us, if all of them are known.
    fn pvs(&self, memory: &Memory) -> Option<Vec<PvView>> {
        memory.pvs.as_ref()?.views(&self.host_dirs())
    }

    /// The directories of all classes.
    fn host_dirs(&self) -> BTreeSet<HostPath> {
        let classes = self.settings.config.classes.values();
        classes.map(|class| class.host_dir.clone()).collect()
    }
}

/// Seconds since 1970, for timestamps in metrics.
#[must_use]
pub fn unix_time() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
