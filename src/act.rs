//! Executes the actions of a plan in the background and records which writes are in flight.

mod create;
mod in_flight;
mod jobs;
mod offer_checks;
mod withdraw;

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::cache::Expectations;
use crate::cleanup::{CleanupContext, PassFacts, attempt};
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::{About, Action, CleanOrder, Patch};
use crate::quantity;
use crate::render;
use crate::view::{JobView, Jobs, PvRef, Tenancy};

use in_flight::InFlightGuard;
pub use in_flight::{InFlight, InFlightWrites};
pub use offer_checks::OfferChecks;

/// Concurrent writes to the API server.
const MAX_CONCURRENT_WRITES: usize = 8;

/// Executes plans.
#[derive(Clone, Debug)]
pub struct Actor {
    context: Arc<CleanupContext>,
    /// The Jobs in the watch cache.
    jobs: watch::Receiver<Option<Jobs>>,
    in_flight: InFlightWrites,
    offer_checks: OfferChecks,
    permits: Arc<Semaphore>,
}

impl Actor {
    /// An actor without writes in flight.
    #[must_use]
    pub fn new(context: Arc<CleanupContext>, jobs: watch::Receiver<Option<Jobs>>) -> Self {
        Self {
            offer_checks: OfferChecks::new(Arc::clone(&context.host)),
            context,
            jobs,
            in_flight: InFlightWrites::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
        }
    }

    /// The writes in flight.
    #[must_use]
    pub fn in_flight(&self) -> &InFlightWrites {
        &self.in_flight
    }

    /// The results of the inspections before PVs are created.
    #[must_use]
    pub fn offer_checks(&self) -> &OfferChecks {
        &self.offer_checks
    }

    /// Starts all actions and does not wait for them.
    pub fn apply(&self, actions: Vec<Action>, expectations: &Expectations, pass: Instant) {
        let facts = PassFacts::default();
        for action in actions {
            match action {
                Action::Forget(tenancy) => self.context.table.forget(&tenancy),
                Action::Track(track) => self.context.table.track(*track),
                Action::Clean(order) => self.clean(*order),
                Action::Release(tenancy) => self.release(tenancy),
                Action::WriteJob(job, write) => {
                    let (this, before) = (self.clone(), job.clone());
                    let work = async move { this.change_job(&job, write).await };
                    self.write_job(before, expectations, work);
                }
                Action::Create(draft) => {
                    self.offer(draft, facts.clone(), expectations.clone(), pass);
                }
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

    /// Changes a PV. `before` is the PV as the plan saw it.
    fn write_pv<F>(&self, before: PvRef, expectations: &Expectations, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let guard = self.in_flight.enter(&before.name);
        let expectations = expectations.clone();
        self.write(guard, |_| work, move |()| expectations.has_changed(&before));
    }

    /// Changes a Job. `before` is the Job as the plan saw it.
    fn write_job<F>(&self, before: JobView, expectations: &Expectations, work: F)
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        let guard = self.in_flight.enter(&before.name);
        let (known, expectations) = (self.jobs.clone(), expectations.clone());
        let has_changed = move |done: Result<(), ApiError>| {
            if done.is_err_and(|error| !error.is_passing()) {
                expectations.refused(&before.name);
            }
            let jobs = known.borrow();
            jobs.as_ref().and_then(|jobs| jobs.get(&before.name)) != Some(&before)
        };
        self.write(guard, |_| work, has_changed);
    }

    /// Runs `work` for the current configuration. It receives that configuration's generation.
    ///
    /// Passes ignore an object while a write to it is in flight. `needs_pass` runs after the write and
    /// reports whether such a pass skipped something. It must not return true for each repeated
    /// refusal by the API server: the main loop would spin.
    fn write<F>(
        &self,
        guard: Option<InFlightGuard>,
        work: impl FnOnce(u64) -> F,
        needs_pass: impl FnOnce(F::Output) -> bool + Send + 'static,
    ) where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let Some(guard) = guard else {
            return;
        };
        let this = self.clone();
        let generation = self.generation();
        let work = work(generation);
        tokio::spawn(async move {
            let permit = this.permits.acquire().await;
            // After a reload, the next pass decides again.
            let done = if this.generation() == generation {
                Some(work.await)
            } else {
                None
            };
            drop((permit, guard));
            // The pass that a watch event triggered may have skipped the object. Some changes trigger none.
            if this.generation() != generation || done.is_some_and(needs_pass) {
                this.context.wake.notify_one();
            }
        });
    }

    /// The generation of the current configuration.
    fn generation(&self) -> u64 {
        self.context.state.borrow().settings.generation
    }

    fn clean(&self, order: CleanOrder) {
        if let Some(progress) = self.context.table.begin(&order) {
            let tenancy = order.pv.tenancy();
            let work = attempt::attempt(Arc::clone(&self.context), order, progress);
            self.run_step(tenancy, work);
        }
    }

    fn release(&self, tenancy: Tenancy) {
        if let Some(wiped) = self.context.table.begin_release(&tenancy) {
            let (context, released) = (Arc::clone(&self.context), tenancy.clone());
            self.run_step(tenancy, async move {
                attempt::release(&context, &released, wiped).await;
                context.wake.notify_one();
            });
        }
    }

    /// Runs a step of a cleanup. A panic is recorded as a failure.
    fn run_step(&self, tenancy: Tenancy, work: impl Future<Output = ()> + Send + 'static) {
        let context = Arc::clone(&self.context);
        let work = tokio::spawn(work);
        tokio::spawn(async move {
            if let Err(error) = work.await {
                tracing::error!(pv = tenancy.pv_uid, %error, "the cleanup panicked; this is a bug");
                let message = "the cleanup panicked";
                context.table.mark_failed(&tenancy, message, false);
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
                if expectations.wrote(&patch.pv) {
                    tracing::warn!(
                        pv = name,
                        "another writer reverts the provisioner's changes of the PV; its metadata.managedFields name the writer; the next change waits for 20 s"
                    );
                }
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
                    "the PV changed before it was patched; the next pass decides again"
                );
                expectations.read(&patch.pv).await;
            }
            Err(error) => {
                tracing::warn!(pv = name, %error, "cannot patch the PV; the next pass retries");
                if !error.is_passing() {
                    expectations.refused(name);
                }
            }
        }
    }
}
