//! The main loop. Each pass takes a snapshot, plans, carries out the plan and publishes the state. Then it waits
//! for a notification or the discovery period.
//!
//! A pass never waits for a write or a cleanup. It waits for a disk only in the first scan of a class, within a limit.

mod publish;
mod reloading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::act::Actor;
use crate::cache::{ClassCache, InstallationCache, JobCache, NodeCache, PvCache};
use crate::cleanup::{CleanupContext, ControllerState};
use crate::inventory::Inventory;
use crate::memory;
use crate::plan::{Action, Settings, Snapshot, other_installation, plan};
use crate::report::{Damper, Notices};
use crate::retry;
use crate::status::Pass;
use crate::taint::StartupTaint;
use crate::types::HostPath;
use crate::view::PvView;

pub use reloading::Reloads;

/// How long notifications are collected before the next pass.
const COALESCE: Duration = Duration::from_millis(20);
/// How long a pass waits for the first scan of a new class. It waits for no later scan.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_millis(500);
/// For how many periods a volume must be missing before its PV is deleted, in a class configured so.
const MISSING_PERIODS: u32 = 3;

/// The periods of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// The longest time between two passes.
    pub discovery: Duration,
    /// How long the DaemonSet of another installation must be absent before its PVs are taken over.
    pub absence: Duration,
    /// Whether volumes have marks.
    pub has_marks: bool,
}

/// The main loop, with the state that it keeps between passes.
struct Controller {
    context: Arc<CleanupContext>,
    /// The state that the gate of a cleanup checks.
    state: watch::Sender<ControllerState>,
    /// The configuration in force.
    settings: Settings,
    reloads: Reloads,
    /// The outcome of the latest pass.
    pass: watch::Sender<Arc<Pass>>,
    periods: Periods,
    node: NodeCache,
    storage_classes: ClassCache,
    pvs: Option<PvCache>,
    jobs: JobCache,
    installations: InstallationCache,
    inventory: Inventory,
    actor: Actor,
    notices: Notices,
    taint: StartupTaint,
    /// The end of the latest pass that waited for no new PV.
    all_created_at: Instant,
    /// The paths that cleanups held at the latest pass.
    cleaning: BTreeSet<HostPath>,
    /// When the UID of the cluster is read again, if it is not known.
    cluster_due: Instant,
    /// Whether links exist, which a doubt about the cluster withdraws.
    has_links: bool,
    /// The doubts about the cluster, see [`Snapshot::epoch`].
    epoch: watch::Receiver<u64>,
    /// The skipped entries and faulty classes that the latest pass logged.
    skips: BTreeSet<String>,
    /// What was logged last of the readiness.
    logged_not_ready: Option<Vec<String>>,
    damper: Damper,
    outages: watch::Receiver<u64>,
}

/// Runs the main loop until this is dropped. `state` is what the gate of a cleanup checks, and has the first
/// configuration; `pass` publishes the outcome of each pass.
pub async fn run(
    context: CleanupContext,
    state: watch::Sender<ControllerState>,
    reloads: Reloads,
    pass: watch::Sender<Arc<Pass>>,
    periods: Periods,
) {
    let context = Arc::new(context);
    let (cluster, wake) = (&context.cluster, &context.wake);
    let ControllerState { settings, node, .. } = state.borrow().clone();
    let jobs = JobCache::default();
    let controller = Controller {
        settings,
        state,
        reloads,
        pass,
        periods,
        node: NodeCache::start(cluster, node, Arc::clone(wake)),
        storage_classes: ClassCache::start(cluster, Arc::clone(wake)),
        pvs: None,
        installations: InstallationCache::new(cluster, periods.absence, Arc::clone(wake)),
        inventory: Inventory::new(
            Arc::clone(&context.host) as _,
            Arc::clone(wake),
            periods.discovery,
        ),
        actor: Actor::new(Arc::clone(&context), jobs.subscribe()),
        jobs,
        notices: Notices::default(),
        taint: StartupTaint::default(),
        all_created_at: Instant::now(),
        cleaning: BTreeSet::new(),
        cluster_due: Instant::now() + retry::CLUSTER_UID,
        skips: BTreeSet::new(),
        logged_not_ready: None,
        damper: Damper::default(),
        outages: cluster.outages(),
        has_links: false,
        epoch: cluster.origin.epoch(),
        context,
    };
    controller.run().await;
}

impl Controller {
    async fn run(mut self) {
        self.storage_classes.wait_for_first_list().await;
        let mut has_news = true;
        loop {
            let begun = Instant::now();
            self.reload();
            let longest = self.pass(begun, has_news).await;
            let took = begun.elapsed();
            // It may wait for the API server, and links are withdrawn first.
            self.find_cluster(begun).await;
            has_news = self.wait(took, longest).await;
        }
    }

    /// Reads the UID of the cluster again while the permission is missing, so that marks begin once it is granted, and
    /// while another cluster answers.
    async fn find_cluster(&mut self, now: Instant) {
        let cluster = &self.context.cluster;
        let is_due = self.periods.has_marks && now >= self.cluster_due;
        if self.settings.cluster.is_none() && is_due || cluster.origin.other().is_some() {
            self.cluster_due = now + retry::CLUSTER_UID;
            let _ = cluster.ensure_known().await;
            self.settings.cluster = cluster.origin.uid();
        }
    }

    /// Waits until the next pass is due. Returns whether a notification caused it.
    async fn wait(&self, took: Duration, longest: Duration) -> bool {
        // A pause as long as the pass limits the loop to half of a CPU.
        let pause = COALESCE.max(took);
        // Copies: what the pass has not seen yet ends the wait.
        let (mut doubts, mut outages) = (self.epoch.clone(), self.outages.clone());
        let woken = async {
            tokio::select! {
                biased;
                () = self.context.wake.notified() => {}
                Ok(()) = doubts.changed(), if self.has_links => {}
                Ok(()) = outages.changed() => {}
            }
        };
        let is_woken = timeout(longest.max(pause), woken).await.is_ok();
        if is_woken {
            tracing::trace!("woken");
            sleep(pause).await;
        }
        is_woken
    }

    /// Lets everything be tried at once after an outage: what failed was the connection.
    fn end_back_offs(&mut self) {
        if !self.outages.has_changed().unwrap_or_default() {
            return;
        }
        self.outages.mark_unchanged();
        self.context.table.end_back_offs();
    }

    /// Runs a pass. Returns the longest time until the next one.
    async fn pass(&mut self, begun: Instant, has_news: bool) -> Duration {
        self.end_back_offs();
        let snapshot = self.snapshot().await;
        let mut plan = plan(&self.settings, &snapshot);
        let mut longest = self.periods.discovery;
        if self.context.cluster.origin.other().is_some() {
            // Nothing is done until our cluster answers, but its claims do not mount our volumes.
            plan.actions.retain(|it| matches!(it, Action::Unlink(_)));
            plan.wake_at = None;
            longest = retry::WRITE_PASS;
        } else if !has_news {
            memory::release_unused();
        }
        // When the plan changes although the snapshot does not.
        let now = self.context.table.now();
        let left = plan.wake_at.map(|at| at.saturating_sub(now));
        if let Some(node) = snapshot.node.as_ref().filter(|_| plan.made) {
            self.state.send_replace(ControllerState {
                settings: self.settings.clone(),
                node: node.clone(),
                occupied: Arc::clone(&plan.occupied),
            });
        }
        if let Some(pvs) = &mut self.pvs {
            let mut actions = std::mem::take(&mut plan.actions);
            let needs_list = |it: &Action| matches!(it, Action::Create(_) | Action::Clean(_));
            // What is held back is planned again when the list is complete.
            if let Some(node) = &snapshot.node
                && actions.iter().any(needs_list)
                && pvs.is_outdated(node)
            {
                actions.retain(|it| !needs_list(it));
            }
            self.actor.apply(actions, &pvs.expectations, begun);
        }
        self.context.host.doubt_marks(plan.marks_differ);
        self.context.table.facts().missing_since = std::mem::take(&mut plan.missing_since);
        self.publish(&snapshot, plan, begun);
        left.unwrap_or(longest).min(longest)
    }

    /// Takes the snapshot to plan with.
    async fn snapshot(&mut self) -> Snapshot {
        let node = self.node.view();
        let config = &self.settings.config;
        let classes = config.classes.values();
        let dirs: BTreeSet<HostPath> = classes.map(|class| class.host_dir.clone()).collect();
        if let Some(node) = &node {
            let (cluster, wake) = (&self.context.cluster, &self.context.wake);
            let (hostname, namespace) = (&node.hostname, &self.context.jobs.namespace);
            let watched = self.pvs.take().filter(|pvs| pvs.expectations.node.hostname == *hostname);
            let start = || PvCache::start(cluster, node, wake);
            let pvs = self.pvs.insert(watched.unwrap_or_else(start));
            pvs.find_unlabelled(node, &dirs);
            let (jobs, uses_jobs) = (&mut self.jobs, config.use_job_for_cleaning);
            jobs.follow(cluster, namespace, hostname, uses_jobs, wake);
        }
        self.inventory.serve(&config.classes);
        self.inventory.settle(FIRST_SCAN_TIMEOUT).await;
        // No await from here on, so that the snapshot is consistent.
        let jobs = self.jobs.jobs();
        let table = Arc::clone(&self.context.table);
        let mut ledger = table.facts();
        let mut changed = std::mem::take(&mut ledger.marked);
        let cleanups = table.view();
        let cleaning: BTreeSet<_> =
            cleanups.values().filter(|it| it.is_active()).map(|it| it.path.clone()).collect();
        let now = table.now();
        let pvs = self.pvs.as_mut().and_then(PvCache::views);
        let owners = self.pvs.as_ref().map(|it| Arc::clone(&it.owners));
        if let Some(pvs) = &pvs {
            ledger.end_offers(pvs.iter().filter_map(|pv| pv.offer.as_ref()));
            ledger.forget_others(pvs);
            // The contents of a volume with an unused PV of an earlier version decide whether the PV is adopted.
            let has_marks = self.settings.cluster.is_some();
            let is_read = |pv: &&PvView| has_marks && pv.offer.is_none() && pv.never_used();
            let paths = pvs.iter().filter(|pv| !is_read(pv)).filter_map(PvView::path);
            let taken = paths.chain(&cleaning).cloned().collect();
            self.inventory.set_taken(&taken);
        }
        if let (Some(node), Some(pvs)) = (&node, &pvs) {
            let others = pvs.iter().filter_map(|pv| other_installation(&self.settings, node, pv));
            self.installations.follow(&others.map(str::to_owned).collect());
        }
        // A cleanup writes marks, too.
        changed.extend(self.cleaning.difference(&cleaning).cloned());
        self.cleaning = cleaning;
        if self.settings.cluster.is_some() {
            self.inventory.outdate(&changed);
        }
        let has_links = config.binds_to_disks() || pvs.iter().flatten().any(|pv| pv.link.is_some());
        let links = has_links.then(|| self.context.host.links());
        let (links, links_fault) = match links.unwrap_or_else(|| Ok(BTreeMap::new())) {
            Ok(links) => (links, None),
            Err(why) => (BTreeMap::new(), Some(why)),
        };
        self.has_links = !links.is_empty();
        let epoch = *self.epoch.borrow_and_update();
        let observed = self.inventory.observe();
        // An outdated entry waits for its next scan as if its PV were being created.
        let outdated = observed.outdated.into_iter().map(|path| (path, String::new()));
        let mut known = ledger.at(now);
        drop(ledger);
        known.cleanups = cleanups;
        known.creating.extend(outdated);
        Snapshot {
            node,
            storage_classes: self.storage_classes.views(config.classes.keys()),
            observed: observed.classes,
            // The Job of a deleted PV may still be wiping the volume, so both must be known.
            pvs: jobs.as_ref().and(pvs),
            owners: owners.unwrap_or_default(),
            jobs: jobs.unwrap_or_default(),
            job_source: Arc::clone(&self.context.jobs),
            ledger: known,
            links,
            links_fault,
            epoch,
            ended: self.pvs.as_ref().map(PvCache::ended).unwrap_or_default(),
            now,
            date: self.context.cluster.now(),
            boot_time: self.context.host.boot_time().ok(),
            state_directory: self.context.host.state_directory(),
            has_doubt: self.context.host.has_doubt(),
            contradictions: self.state.borrow().occupied.contradictions.clone(),
            missing_limit: self.periods.discovery * MISSING_PERIODS,
            absent_for: self.installations.absent_for(),
            absence_limit: self.periods.absence,
        }
    }
}

/// Seconds since 1970, for timestamps in metrics.
pub fn unix_time() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}
