//! Carries out what a plan says, in the background, and remembers what is under way.

mod create;
mod jobs;
mod writing;

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Semaphore;

use crate::cache::Learnt;
use crate::clean::table::Patience;
use crate::clean::{Ground, protocol};
use crate::cluster::{ApiError, JOBS};
use crate::plan::verdict::without_ours;
use crate::plan::{About, Action, CleanOrder, Patch, Withdrawal};
use crate::render;
use crate::view::PvRef;

use writing::Entered;
pub use writing::{UnderWay, Writing};

/// Writes to the API server at a time.
const CONCURRENCY: usize = 8;

/// How often is tried what takes a right that is missing.
const PROBE: Duration = Duration::from_secs(8);

/// Carries out plans.
#[derive(Clone, Debug)]
pub struct Actor {
    ground: Arc<Ground>,
    writing: Writing,
    places: Arc<Semaphore>,
    /// Counts the passes with a right missing.
    turn: Arc<AtomicUsize>,
    /// When which kind of action was last tried although a right that it takes was missing.
    probed: Arc<Mutex<HashMap<Discriminant<Action>, Instant>>>,
}

/// What an action does, in the words of RBAC.
fn rights(action: &Action) -> (&'static str, &'static [&'static str]) {
    let verbs: &[_] = match action {
        Action::Forget(_) => &[],
        Action::Collect(_) | Action::CallOff(..) => return (JOBS, &["delete"]),
        Action::Create(_) => &["create"],
        Action::Patch(_) | Action::Withdraw(Withdrawal { delete: false, .. }) => &["patch"],
        Action::Clean(_) | Action::Withdraw(_) => &["patch", "delete"],
    };
    ("persistentvolumes", verbs)
}

impl Actor {
    /// `ground` is what cleanups stand on.
    #[must_use]
    pub fn new(ground: Arc<Ground>) -> Self {
        Self {
            ground,
            writing: Writing::default(),
            places: Arc::new(Semaphore::new(CONCURRENCY)),
            turn: Arc::default(),
            probed: Arc::default(),
        }
    }

    /// Lets so many volumes be cleaned at a time (`maxConcurrentCleanups`).
    pub fn allow_cleanups(&self, limit: usize) {
        self.ground.permits.resize(limit);
    }

    /// What is under way.
    #[must_use]
    pub fn writing(&self) -> &Writing {
        &self.writing
    }

    /// Starts everything; waits for nothing.
    pub fn apply(&self, mut actions: Vec<Action>, learnt: &Learnt, pass: Instant) {
        if !self.ground.lacking().is_empty() {
            // A right may be missing for one object only: then the next pass finds out with another.
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let first = turn.checked_rem(actions.len()).unwrap_or(0);
            actions.rotate_left(first);
        }
        for action in actions {
            if !self.is_worth_trying(&action) {
                continue;
            }
            match action {
                Action::Forget(tenancy) => {
                    // Only a running one cannot be, and the plan says it of no such.
                    if let Err(error) = self.ground.table.remove_entry(&tenancy) {
                        tracing::debug!(%error, "a cleanup began again before it was forgotten");
                    }
                }
                Action::Clean(order) => self.clean(*order),
                Action::Collect(job) => {
                    let (this, name) = (self.clone(), job.name.clone());
                    self.write(&name, async move { this.collect(&job).await });
                }
                Action::CallOff(job, why) => {
                    let (this, name) = (self.clone(), job.name.clone());
                    self.write(&name, async move { this.call_off(&job, &why).await });
                }
                Action::Create(draft) => {
                    let (this, learnt) = (self.clone(), learnt.clone());
                    let entered = self.writing.enter_new(&draft);
                    self.write_as(entered, |generation| async move {
                        this.create(&draft, &learnt, pass, generation).await;
                    });
                }
                Action::Patch(patch) => {
                    let name = patch.pv.name.clone();
                    let (this, learnt) = (self.clone(), learnt.clone());
                    self.write(&name, async move { this.patch(&patch, &learnt).await });
                }
                Action::Withdraw(withdrawal) => {
                    let name = withdrawal.pv.name.clone();
                    let (this, learnt) = (self.clone(), learnt.clone());
                    self.write(&name, async move {
                        this.withdraw(&withdrawal, &learnt).await;
                    });
                }
            }
        }
    }

    /// Where a right that an action takes is missing, one of its kind finds out now and then whether it
    /// was granted; the others wait.
    fn is_worth_trying(&self, action: &Action) -> bool {
        let permissions = self.ground.cluster.permissions();
        let kind = std::mem::discriminant(action);
        let (resource, verbs) = rights(action);
        if !verbs
            .iter()
            .any(|verb| permissions.is_missing(resource, verb))
        {
            return true;
        }
        let mut probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        let due = probed.get(&kind).is_none_or(|at| at.elapsed() >= PROBE);
        if due {
            probed.insert(kind, Instant::now());
        }
        due
    }

    fn write(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        self.write_as(self.writing.enter(name), |_| work);
    }

    /// `work` is told which configuration wants it.
    fn write_as<F>(&self, entered: Option<Entered>, work: impl FnOnce(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(entered) = entered else {
            return;
        };
        let this = self.clone();
        let generation = self.generation();
        let work = work(generation);
        tokio::spawn(async move {
            let _place = this.places.acquire().await;
            // What an earlier configuration wanted, the next pass decides anew.
            if this.generation() == generation {
                work.await;
            }
            drop(entered);
            // Nobody else tells it that what it waits for has ended without a result.
            if this.generation() != generation {
                this.ground.ended.notify_one();
            }
        });
    }

    /// Which configuration is in force.
    fn generation(&self) -> u64 {
        self.ground.world.borrow().settings.generation
    }

    fn clean(&self, order: CleanOrder) {
        let tenancy = order.pv.tenancy();
        let table = &self.ground.table;
        match table.begin(&tenancy, &order.pv.name, &order.path, order.basis) {
            Err(error) => tracing::debug!(pv = order.pv.name, %error, "not begun again"),
            Ok(progress) => {
                let ground = Arc::clone(&self.ground);
                tokio::spawn(async move {
                    let (pv, table) = (order.pv.name.clone(), Arc::clone(&ground.table));
                    let task = tokio::spawn(protocol::clean(ground, order, progress));
                    if let Err(error) = task.await {
                        tracing::error!(pv, %error, "the cleanup ended in a panic; this is a bug");
                        let _ = table.mark_failed(
                            &tenancy,
                            "the cleanup ended in a panic",
                            Patience::Growing,
                        );
                    }
                });
            }
        }
    }

    async fn patch(&self, patch: &Patch, learnt: &Learnt) {
        let name = &patch.pv.name;
        match self
            .ground
            .cluster
            .patch_pv(&patch.pv, render::patched_metadata(patch))
            .await
        {
            Ok(view) => {
                learnt.changed(&patch.pv.resource_version, view);
                let about = About::from(&patch.pv);
                for (reason, text) in &patch.events {
                    tracing::info!(pv = name, reason, "{text}");
                    self.ground.reporter.normal(&about, reason, "Record", text);
                }
            }
            Err(ApiError::Conflict | ApiError::NotFound) => {
                tracing::debug!(
                    pv = name,
                    "the PV changed before it was patched; the next pass looks again"
                );
                self.look_again(&patch.pv, learnt).await;
            }
            Err(error) => {
                tracing::warn!(pv = name, %error, "the PV's metadata could not be changed; the next pass tries again");
            }
        }
    }

    /// What we know of a PV has proved to be old, and of one without the label no watch tells more.
    async fn look_again(&self, pv: &PvRef, learnt: &Learnt) {
        if learnt.is_stray(&pv.uid) {
            learnt
                .look_again(&self.ground.cluster, &pv.uid, &pv.name)
                .await;
            self.ground.ended.notify_one();
        }
    }

    async fn withdraw(&self, withdrawal: &Withdrawal, learnt: &Learnt) {
        match self.try_withdraw(withdrawal).await {
            Ok(()) => {
                let (pv, because) = (&withdrawal.pv.name, &withdrawal.because);
                tracing::info!(
                    pv,
                    "the PV goes without its volume being cleaned: {because}"
                );
                let about = About::from(&withdrawal.pv);
                self.ground
                    .reporter
                    .normal(&about, withdrawal.reason, "Withdraw", because);
            }
            Err(ApiError::Conflict | ApiError::NotFound) => {
                self.look_again(&withdrawal.pv, learnt).await;
            }
            Err(error) => {
                tracing::warn!(pv = withdrawal.pv.name, %error, "the PV could not be let go; the next pass tries again");
            }
        }
    }

    /// Deletes first: with our finalizer still on it, the PV is then Terminating and cannot be bound
    /// any more when the finalizer goes.
    async fn try_withdraw(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let cluster = &self.ground.cluster;
        let mut pv = withdrawal.pv.clone();
        let mut finalizers = withdrawal.finalizers.clone();
        if withdrawal.delete {
            cluster.delete_pv(&pv).await?;
            match cluster.pv(&pv.name).await? {
                // Others may have taken theirs off meanwhile.
                Some(now) if now.uid == pv.uid && now.deleting => {
                    finalizers = now.has_finalizer().then(|| without_ours(&now));
                    pv = now.reference();
                }
                _ => return Ok(()),
            }
        }
        if let Some(finalizers) = finalizers {
            cluster
                .patch_pv(&pv, json!({ "finalizers": finalizers }))
                .await?;
        }
        Ok(())
    }
}
