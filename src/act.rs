//! Carries out what a plan says, in the background, and remembers what is under way.

mod jobs;
mod writing;

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::cache::Learnt;
use crate::clean::table::Patience;
use crate::clean::{Ground, protocol};
use crate::cluster::{ApiError, JOBS};
use crate::plan::verdict::without_ours;
use crate::plan::{About, Action, CleanOrder, Patch, PvDraft, Withdrawal};
use crate::render;
use crate::types::HostPath;
use crate::view::{PvRef, PvView};

pub use writing::Writing;

/// Writes to the API server at a time.
const CONCURRENCY: usize = 8;

/// How often is tried what takes a right that is missing.
const PROBE: Duration = Duration::from_secs(8);

/// Pauses before a failed creation is tried again; then the next pass does.
const RETRIES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

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
                    let name = draft.name.clone();
                    let (this, learnt) = (self.clone(), learnt.clone());
                    self.write(
                        &name,
                        async move { this.create(&draft, &learnt, pass).await },
                    );
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
        let Some(entered) = self.writing.enter(name) else {
            return;
        };
        let places = Arc::clone(&self.places);
        let ground = Arc::clone(&self.ground);
        let generation = ground.world.borrow().settings.generation;
        tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            if ground.world.borrow().settings.generation == generation {
                work.await;
            } else {
                // What an earlier configuration wanted, the next pass decides anew.
                ground.ended.notify_one();
            }
            drop(entered);
        });
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

    async fn create(&self, draft: &PvDraft, learnt: &Learnt, pass: Instant) {
        let mut pv = render::persistent_volume(draft);
        for name in [&draft.name, &draft.second_name] {
            pv.metadata.name = Some(name.clone());
            match self.create_as(name, &pv, &draft.path, learnt).await {
                Ok(true) => {
                    let metrics = &self.ground.metrics;
                    let mode = draft.mode.as_str();
                    metrics.discovery_total.with_label_values(&[mode]).inc();
                    let took = pass.elapsed().as_secs_f64();
                    metrics
                        .discovery_duration
                        .with_label_values(&[mode])
                        .observe(took);
                    tracing::info!(pv = name, path = %draft.path, class = draft.class, "created a PersistentVolume");
                    return;
                }
                Ok(false) => return,
                Err(Taken) => {}
            }
        }
        tracing::error!(
            path = %draft.path, class = draft.class, first = draft.name, second = draft.second_name,
            "no PersistentVolume was made: both of its names belong to other volumes; rename the entry"
        );
    }

    /// Creates a PV; `false` if that failed or there is one for the same volume already.
    async fn create_as(
        &self,
        name: &str,
        pv: &PersistentVolume,
        path: &HostPath,
        learnt: &Learnt,
    ) -> Result<bool, Taken> {
        let cluster = &self.ground.cluster;
        let failed = |error: ApiError| {
            tracing::warn!(pv = name, %path, %error, "no PersistentVolume was made; the next pass tries again");
        };
        match self.patiently(|| cluster.create_pv(pv)).await {
            Ok(view) => {
                learnt.made(view);
                Ok(true)
            }
            Err(ApiError::AlreadyExists) => match cluster.pv(name).await {
                Ok(Some(other)) if self.stands_for(&other, path) => {
                    learnt.stray(other);
                    // No watch will tell of it.
                    self.ground.ended.notify_one();
                    Ok(false)
                }
                Ok(Some(_)) => Err(Taken),
                Ok(None) => Ok(false),
                Err(error) => {
                    failed(error);
                    Ok(false)
                }
            },
            Err(error) => {
                failed(error);
                Ok(false)
            }
        }
    }

    /// Tries a request again that failed for a reason that may pass, a few times, with pauses that
    /// grow. The client itself does that for 429 and 503, and heeds `Retry-After`.
    async fn patiently<T, F>(&self, request: impl Fn() -> F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        for pause in RETRIES {
            match request().await {
                Err(ApiError::Failed(_)) => tokio::time::sleep(pause).await,
                result => return result,
            }
        }
        request().await
    }

    /// Whether a PV is for a path on this node. Whoever made it: then there is no second one.
    fn stands_for(&self, pv: &PvView, path: &HostPath) -> bool {
        pv.path() == Some(path) && pv.is_on(&self.ground.world.borrow().node)
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

/// The name belongs to the PV of another volume.
struct Taken;
