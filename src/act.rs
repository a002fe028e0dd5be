//! Carries out what a plan says, in the background, and remembers what is under way.

mod create;
mod device_checks;
mod jobs;
mod withdraw;
mod writing;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Semaphore, watch};

use crate::cache::Expectations;
use crate::cleanup::table::Backoff;
use crate::cleanup::{CleanupContext, attempt};
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::{About, Action, CleanOrder, Patch};
use crate::quantity;
use crate::render;
use crate::view::{JobView, Jobs, PvRef, Tenancy};

pub use device_checks::DeviceChecks;
use writing::Entered;
pub use writing::{UnderWay, Writing};

/// Writes to the API server at a time.
const CONCURRENCY: usize = 8;

/// Carries out plans.
#[derive(Clone, Debug)]
pub struct Actor {
    context: Arc<CleanupContext>,
    /// The Jobs that the watch shows.
    jobs: watch::Receiver<Option<Jobs>>,
    writing: Writing,
    device_checks: DeviceChecks,
    places: Arc<Semaphore>,
}

impl Actor {
    /// `context` is what cleanups stand on.
    #[must_use]
    pub fn new(context: Arc<CleanupContext>, jobs: watch::Receiver<Option<Jobs>>) -> Self {
        Self {
            context,
            jobs,
            writing: Writing::default(),
            device_checks: DeviceChecks::default(),
            places: Arc::new(Semaphore::new(CONCURRENCY)),
        }
    }

    /// What is under way.
    #[must_use]
    pub fn writing(&self) -> &Writing {
        &self.writing
    }

    /// What is known of the devices that PVs were to be made for.
    #[must_use]
    pub fn device_checks(&self) -> &DeviceChecks {
        &self.device_checks
    }

    /// Starts everything; waits for nothing.
    pub fn apply(&self, actions: Vec<Action>, expectations: &Expectations, pass: Instant) {
        for action in actions {
            match action {
                Action::Forget(tenancy) => self.context.table.forget(&tenancy),
                Action::Track(track) => self.context.table.track(*track),
                Action::Clean(order) => self.clean(*order),
                Action::Release(tenancy) => self.release(tenancy),
                Action::Disown(job) => {
                    let (this, before) = (self.clone(), job.clone());
                    let work = async move { this.disown(&job).await };
                    self.write_job(before, expectations, work);
                }
                Action::Collect(job) => {
                    let (this, before) = (self.clone(), job.clone());
                    let work = async move { this.collect(&job).await };
                    self.write_job(before, expectations, work);
                }
                Action::DeleteJob(job, why) => {
                    let (this, before) = (self.clone(), job.clone());
                    let work = async move { this.delete_job(&job, &why).await };
                    self.write_job(before, expectations, work);
                }
                Action::CallOff(job, why) => {
                    let (this, before) = (self.clone(), job.clone());
                    let work = async move { this.call_off(&job, &why).await };
                    self.write_job(before, expectations, work);
                }
                Action::Create(draft) => self.offer(draft, expectations.clone(), pass),
                Action::Patch(patch) => {
                    let (this, before, now) =
                        (self.clone(), patch.pv.clone(), expectations.clone());
                    let work = async move { this.patch(&patch, &now).await };
                    self.write_pv(before, expectations, work);
                }
                Action::Withdraw(withdrawal) => {
                    let (this, before, now) =
                        (self.clone(), withdrawal.pv.clone(), expectations.clone());
                    let work = async move { this.withdraw(&withdrawal, &now).await };
                    self.write_pv(before, expectations, work);
                }
            }
        }
    }

    /// Changes a PV that was in this state when that was decided.
    fn write_pv<F>(&self, before: PvRef, expectations: &Expectations, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let entered = self.writing.enter(&before.name);
        let expectations = expectations.clone();
        self.write(
            entered,
            |_| work,
            move |()| expectations.has_changed(&before),
        );
    }

    /// Changes a Job that was in this state when that was decided.
    fn write_job<F>(&self, before: JobView, expectations: &Expectations, work: F)
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        let entered = self.writing.enter(&before.name);
        let (known, expectations) = (self.jobs.clone(), expectations.clone());
        let has_changed = move |done: Result<(), ApiError>| {
            if done.is_err_and(|error| !error.is_passing()) {
                expectations.refused(&before.name);
            }
            let jobs = known.borrow();
            jobs.as_ref().and_then(|jobs| jobs.get(&before.name)) != Some(&before)
        };
        self.write(entered, |_| work, has_changed);
    }

    /// `work` is told which configuration wants it. `is_news` is asked when nothing is under way any
    /// more: whether the passes meanwhile may have seen, and left alone, what the next one would act on.
    /// It must not be so each time that the API server refuses the same thing for the same reason.
    fn write<F>(
        &self,
        entered: Option<Entered>,
        work: impl FnOnce(u64) -> F,
        is_news: impl FnOnce(F::Output) -> bool + Send + 'static,
    ) where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let Some(entered) = entered else {
            return;
        };
        let this = self.clone();
        let generation = self.generation();
        let work = work(generation);
        tokio::spawn(async move {
            let place = this.places.acquire().await;
            // What an earlier configuration wanted, the next pass decides anew.
            let done = if this.generation() == generation {
                Some(work.await)
            } else {
                None
            };
            drop((place, entered));
            // The watch may have told of it while this was under way, and of some things it never does.
            if this.generation() != generation || done.is_some_and(is_news) {
                this.context.wake.notify_one();
            }
        });
    }

    /// Which configuration is in force.
    fn generation(&self) -> u64 {
        self.context.state.borrow().settings.generation
    }

    fn clean(&self, order: CleanOrder) {
        if let Some(progress) = self.context.table.begin(&order) {
            let tenancy = order.pv.tenancy();
            let work = attempt::attempt(Arc::clone(&self.context), order, progress);
            self.work(tenancy, work);
        }
    }

    fn release(&self, tenancy: Tenancy) {
        if let Some(wiped) = self.context.table.begin_release(&tenancy) {
            let (context, of) = (Arc::clone(&self.context), tenancy.clone());
            self.work(tenancy, async move {
                attempt::release(&context, &of, wiped).await;
                context.wake.notify_one();
            });
        }
    }

    /// Runs a step of a cleanup; a panic ends it like a failure.
    fn work(&self, tenancy: Tenancy, work: impl Future<Output = ()> + Send + 'static) {
        let context = Arc::clone(&self.context);
        let work = tokio::spawn(work);
        tokio::spawn(async move {
            if let Err(error) = work.await {
                tracing::error!(pv = tenancy.pv_uid, %error, "the cleanup ended in a panic; this is a bug");
                let message = "the cleanup ended in a panic";
                context
                    .table
                    .mark_failed(&tenancy, message, Backoff::Growing);
                context.wake.notify_one();
            }
        });
    }

    async fn patch(&self, patch: &Patch, expectations: &Expectations) {
        let name = &patch.pv.name;
        crash_point("record-on-pv");
        match self
            .context
            .cluster
            .merge_pv(&patch.pv, render::patched(patch))
            .await
        {
            Ok(view) => {
                expectations.expect(view);
                let about = About::from(&patch.pv);
                if let Some(bytes) = patch.capacity {
                    let capacity = quantity::format(bytes);
                    tracing::info!(
                        pv = name,
                        capacity,
                        "the volume's size changed; spec.capacity was set to it"
                    );
                }
                for (reason, text) in &patch.events {
                    tracing::info!(pv = name, reason, "{text}");
                    self.context.reporter.normal(&about, reason, "Record", text);
                }
            }
            Err(ApiError::Conflict | ApiError::NotFound) => {
                tracing::debug!(
                    pv = name,
                    "the PV changed before it was patched; the next pass looks again"
                );
                expectations.read(&patch.pv).await;
            }
            Err(error) => {
                tracing::warn!(pv = name, %error, "the PV could not be changed; it is retried");
                if !error.is_passing() {
                    expectations.refused(name);
                }
            }
        }
    }
}
