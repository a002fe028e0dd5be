//! The main loop. Each pass takes a snapshot, plans, carries out the plan and publishes the state. Then it waits
//! for a notification or the discovery period.
//!
//! A pass never waits for a write or a cleanup. It waits for a disk only in the first scan of a class, within a limit.

mod publish;
mod reloading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::act::Actor;
use crate::cache::{ClassCache, JobCache, NodeCache, PvCache};
use crate::cleanup::table::ProcTable;
use crate::cleanup::{CleanupContext, ControllerState, Host};
use crate::cluster::Cluster;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::plan::job_object::JobSource;
use crate::plan::{CleanupState, Occupied, Settings, Snapshot, StorageClasses, plan};
use crate::report::{Notices, Reporter};
use crate::status::Pass;
use crate::taint::StartupTaint;
use crate::types::HostPath;
use crate::view::{NodeView, PvView};

pub use reloading::Reloads;

/// How long notifications are collected before the next pass.
const COALESCE: Duration = Duration::from_millis(20);
/// How long a pass waits for the first scan of a new class. It waits for no later scan.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_millis(500);
/// For how many periods a volume must be missing before its PV is deleted, in a class configured so.
const MISSING_PERIODS: u32 = 3;

/// What a controller is made of.
#[derive(Debug)]
pub struct Parts {
    /// The API server.
    pub cluster: Cluster,
    /// The machine.
    pub host: Arc<dyn Host>,
    /// Our Node.
    pub node: NodeView,
    /// The configuration in force.
    pub settings: Settings,
    /// The state of configuration reloads.
    pub reloads: Reloads,
    /// Publishes events.
    pub reporter: Reporter,
    /// The table of cleanups.
    pub table: Arc<ProcTable>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Notified when a pass is due.
    pub wake: Arc<Notify>,
    /// The outcome of the latest pass, for the HTTP server.
    pub pass: watch::Sender<Arc<Pass>>,
    /// The longest time between two passes.
    pub period: Duration,
    /// How long to wait after a release if the kubelet's directory is not visible.
    pub quiet_period: Duration,
    /// The parameters of cleaning Jobs.
    pub job_source: Arc<JobSource>,
}

/// The main loop.
#[derive(Debug)]
pub struct Controller {
    parts: Parts,
    node: NodeCache,
    storage_classes: ClassCache,
    actor: Actor,
    /// The state that the gate of a cleanup checks.
    state: watch::Sender<ControllerState>,
}

/// The state that the loop keeps between passes.
struct Memory {
    inventory: Inventory,
    pvs: Option<PvCache>,
    jobs: JobCache,
    notices: Notices,
    /// By PV, since when its volume is missing, by the latest plan.
    missing_since: BTreeMap<String, Duration>,
    taint: StartupTaint,
    /// The end of the latest pass that waited for no new PV.
    settled_at: Instant,
    /// The skipped entries and faulty classes that the latest pass logged.
    skips: BTreeSet<String>,
}

/// Runs a controller until this is dropped.
pub async fn run(parts: Parts) {
    let (cluster, wake) = (parts.cluster.clone(), Arc::clone(&parts.wake));
    let (state, known_state) = watch::channel(ControllerState {
        settings: parts.settings.clone(),
        node: parts.node.clone(),
        occupied: Arc::new(Occupied::default()),
        // No cleanup starts before the first pass.
        paused: true,
    });
    let context = CleanupContext {
        cluster: cluster.clone(),
        state: known_state,
        host: Arc::clone(&parts.host),
        quiet_period: parts.quiet_period,
        table: Arc::clone(&parts.table),
        wake: Arc::clone(&wake),
        reporter: parts.reporter.clone(),
        metrics: Arc::clone(&parts.metrics),
        jobs: Arc::clone(&parts.job_source),
    };
    let jobs = JobCache::new(&cluster, &parts.job_source.namespace, Arc::clone(&wake));
    let controller = Controller {
        node: NodeCache::start(&cluster, parts.node.clone(), Arc::clone(&wake)),
        storage_classes: ClassCache::start(&cluster, Arc::clone(&wake)),
        actor: Actor::new(Arc::new(context), jobs.subscribe()),
        state,
        parts,
    };
    let parts = &controller.parts;
    let memory = Memory {
        inventory: Inventory::new(Arc::clone(&parts.host) as _, wake, parts.period),
        pvs: None,
        jobs,
        notices: Notices::default(),
        missing_since: BTreeMap::new(),
        taint: StartupTaint::new(cluster, parts.reporter.clone()),
        settled_at: Instant::now(),
        skips: BTreeSet::new(),
    };
    controller.run(memory).await;
}

impl Controller {
    async fn run(mut self, mut memory: Memory) {
        self.storage_classes.wait_for_first_list().await;
        loop {
            let begun = Instant::now();
            self.reload(&mut memory);
            let wake_at = self.pass(&mut memory, begun).await;
            let took = begun.elapsed();
            self.parts
                .metrics
                .loop_duration
                .with_label_values::<&str>(&[])
                .observe(took.as_secs_f64());
            self.wait(took, wake_at).await;
        }
    }

    /// Waits until the next pass is due.
    async fn wait(&self, took: Duration, wake_at: Option<Duration>) {
        let until = wake_at.map(|at| at.saturating_sub(self.parts.table.now()));
        let longest = until.map_or(self.parts.period, |until| until.min(self.parts.period));
        tokio::select! {
            biased;
            () = self.parts.wake.notified() => tracing::trace!("woken"),
            () = tokio::time::sleep(longest) => {}
        }
        // A pause as long as the pass limits the loop to half of a CPU.
        tokio::time::sleep(COALESCE.max(took)).await;
    }

    /// Runs a pass. Returns when the plan changes although the snapshot does not, on the clock of the plan.
    async fn pass(&self, memory: &mut Memory, begun: Instant) -> Option<Duration> {
        let snapshot = self.snapshot(memory).await;
        let mut plan = plan(&self.parts.settings, &snapshot);
        if let Some(node) = snapshot.node.as_ref().filter(|_| plan.made) {
            self.state.send_replace(ControllerState {
                settings: self.parts.settings.clone(),
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

    /// Takes the snapshot to plan with.
    async fn snapshot(&self, memory: &mut Memory) -> Snapshot {
        let node = self.node.view();
        let config = &self.parts.settings.config;
        let classes = config.classes.values();
        let dirs: BTreeSet<HostPath> = classes.map(|class| class.host_dir.clone()).collect();
        if let Some(node) = &node {
            let watching = memory.pvs.as_ref().map(PvCache::hostname);
            if watching != Some(node.hostname.as_str()) {
                memory.pvs = Some(PvCache::start(
                    &self.parts.cluster,
                    &node.hostname,
                    &self.parts.wake,
                ));
            }
            if let Some(pvs) = &mut memory.pvs {
                pvs.find_unlabelled(node, &dirs);
            }
            let jobs = &mut memory.jobs;
            jobs.follow(&node.hostname, config.use_job_for_cleaning);
        }
        let inventory = &mut memory.inventory;
        inventory.serve(&config.classes);
        inventory.settle(FIRST_SCAN_TIMEOUT).await;
        // No await from here on, so that the snapshot is consistent.
        let jobs = memory.jobs.jobs();
        let mut under_way = self.actor.in_flight().now();
        let mut writing = std::mem::take(&mut under_way.names);
        let cleanups = self.parts.table.view();
        if let Some(pvs) = &memory.pvs {
            // The watch does not show the deletion of a PV without the label.
            let released = cleanups
                .iter()
                .filter(|(_, it)| it.state == CleanupState::Released);
            released.for_each(|(it, _)| pvs.expectations().forget(&it.pv_uid));
            writing.extend(pvs.expectations().backing_off());
        }
        let pvs = memory.pvs.as_ref().and_then(PvCache::views);
        if let Some(pvs) = &pvs {
            let cleaning = cleanups.values().filter(|it| it.is_active());
            let paths = pvs.iter().filter_map(PvView::path);
            let taken: BTreeSet<_> = paths.chain(cleaning.map(|it| &it.path)).cloned().collect();
            memory.inventory.set_taken(&taken);
        }
        let observed = memory.inventory.observe();
        // An outdated entry waits for its next scan as if its PV were being created.
        let outdated = observed.outdated.into_iter();
        let outdated = outdated.map(|path| (path, String::new()));
        under_way.making.extend(outdated);
        Snapshot {
            node,
            storage_classes: StorageClasses::Known(
                self.storage_classes.views(config.classes.keys()),
            ),
            observed: observed.classes,
            // The Job of a deleted PV may still be wiping the volume, so both must be known.
            pvs: jobs.as_ref().and(pvs),
            cleanups,
            jobs: jobs.unwrap_or_default(),
            job_source: Arc::clone(&self.parts.job_source),
            writing,
            making: under_way.making,
            refusals: self.actor.offer_checks().refusals(),
            now: self.parts.table.now(),
            date: self.parts.cluster.now(),
            missing_since: std::mem::take(&mut memory.missing_since),
            missing_limit: self.parts.period * MISSING_PERIODS,
        }
    }
}

/// Seconds since 1970, for timestamps in metrics.
#[must_use]
pub fn unix_time() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
