//! Executes the actions of a plan in the background and records which writes are in flight.

mod cancel;
mod create;
mod in_flight;
mod intake;
mod jobs;
mod link;
mod marks;
mod offer;
mod owners;
mod span;
mod takeover;

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument;

use crate::cache::Expectations;
use crate::cleanup::attempt::attempt;
use crate::cleanup::release::release;
use crate::cleanup::{CleanupContext, PassFacts};
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::{About, Action, JobWrite, Patch, Withdrawal};
use crate::quantity;
use crate::retry;
use crate::view::{JobView, Jobs, PvRef, Tenancy};

use in_flight::InFlight;
use owners::PassOwners;

/// Concurrent writes to the API server.
const MAX_CONCURRENT_WRITES: usize = 8;
/// Concurrent inspections. Each blocks a thread.
const MAX_CONCURRENT_INSPECTIONS: usize = 64;

/// Executes plans.
#[derive(Clone, Debug)]
pub struct Actor {
    context: Arc<CleanupContext>,
    /// The Jobs in the watch cache.
    jobs: watch::Receiver<Option<Jobs>>,
    write_permits: Arc<Semaphore>,
    inspection_permits: Arc<Semaphore>,
}

impl Actor {
    /// An actor without writes in flight.
    pub fn new(context: Arc<CleanupContext>, jobs: watch::Receiver<Option<Jobs>>) -> Self {
        Self {
            context,
            jobs,
            write_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
            inspection_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_INSPECTIONS)),
        }
    }

    /// Starts all actions of a pass that began at this time, and does not wait for them.
    pub fn apply(&self, actions: Vec<Action>, expectations: &Expectations, begun: Instant) {
        let settings = self.context.state.borrow().settings.clone();
        let execution = Arc::new(Execution {
            actor: self.clone(),
            expectations: expectations.clone(),
            facts: PassFacts::new(settings.config),
            owners: PassOwners::of(&actions),
            generation: settings.generation,
            begun,
        });
        for action in actions {
            let _span = span::of(&action).entered();
            execution.start(action);
        }
    }
}

/// The plan of one pass, while it is executed.
struct Execution {
    actor: Actor,
    expectations: Expectations,
    facts: PassFacts,
    owners: PassOwners,
    /// Of the configuration when it was started.
    generation: u64,
    begun: Instant,
}

impl Deref for Execution {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.actor
    }
}

impl Execution {
    fn start(self: &Arc<Self>, action: Action) {
        let (this, table) = (Arc::clone(self), &self.context.table);
        match action {
            Action::Forget(tenancy) => {
                table.forget(&tenancy);
                self.context.wake.notify_one();
            }
            Action::Track(track) => table.track(*track),
            Action::Suspend(tenancy, on) => table.suspend(&tenancy, on),
            Action::Cancel(cancel) => {
                let guard = self.enter(&cancel.tenancy.pv_uid, None);
                // The cleaner wakes the loop when it has stopped, and the watch when the Job is gone.
                self.write(guard, async move { this.cancel(&cancel).await.map(|()| false) });
            }
            Action::Clean(order) => {
                if let Some(progress) = table.begin(&order) {
                    // Not this execution: a wipe takes hours, and what the pass has read would stay in memory.
                    let (context, tenancy) = (Arc::clone(&self.context), order.pv.tenancy());
                    let work = async move { attempt(&context, &order, &progress).await };
                    self.run_cleanup(tenancy, work);
                }
            }
            Action::Release(tenancy) => {
                if let Some(wiped) = table.begin_release(&tenancy) {
                    let _span = span::of_release(&wiped).entered();
                    let context = Arc::clone(&self.context);
                    let work = async move { release(&context, &wiped).await };
                    self.run_cleanup(tenancy, work);
                }
            }
            Action::WriteJob(job, write) => self.write_job(job, write),
            Action::Create(draft) => self.offer(draft),
            Action::FindOwners(queries) => self.find_owners(queries),
            Action::Patch(patch) => {
                self.write_pv(patch.pv.clone(), async move { this.patch(patch).await });
            }
            Action::WriteMark(write) => self.write_mark_only(*write),
            Action::TakeOver(volume) => self.find_former(volume),
            Action::Unlink(token) => self.unlink(&token),
            Action::Link(order) => self.make_link(*order),
            Action::TakeIn(order) => self.take_in(*order),
            Action::LabelNode(change) => self.label_node(change),
            Action::FindPv(search) => self.search(search),
            Action::Withdraw(withdrawal) => {
                let pv = withdrawal.pv.clone();
                self.write_pv(pv, async move { this.withdraw(&withdrawal).await });
            }
        }
    }

    /// Changes a PV. `before` is the PV as the plan saw it.
    fn write_pv<F>(self: &Arc<Self>, before: PvRef, work: F)
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        let (this, guard) = (Arc::clone(self), self.enter(&before.name, None));
        self.write(guard, async move {
            match work.await {
                Err(error) if error.is_change() => this.expectations.read(&before).await,
                done => done?,
            }
            Ok(this.expectations.has_changed(&before))
        });
    }

    /// Changes a Job.
    fn write_job(self: &Arc<Self>, job: JobView, write: JobWrite) {
        let (this, guard) = (Arc::clone(self), self.enter(&job.name, None));
        self.write(guard, async move {
            match this.change_job(&job, &write).await {
                Err(error) if error.is_change() => {}
                done => done?,
            }
            let jobs = this.jobs.borrow();
            Ok(jobs.as_ref().and_then(|jobs| jobs.get(&job.name)) != Some(&job))
        });
    }

    /// Runs a write to the API server, see [`Self::run`].
    fn write<F>(self: &Arc<Self>, guard: Option<InFlight>, work: F)
    where
        F: Future<Output = Result<bool, ApiError>> + Send + 'static,
    {
        let (this, work) = (Arc::clone(self), work.boxed());
        self.run(guard, async move { this.permitted(work).await });
    }

    /// Waits for a permit, and writes if the configuration is still that of the pass. After a reload, the next pass decides
    /// again.
    async fn permitted(
        &self,
        work: impl Future<Output = Result<bool, ApiError>>,
    ) -> Result<bool, ApiError> {
        let _permit = self.write_permits.acquire().await;
        if self.is_current() { work.await } else { Ok(true) }
    }

    /// Whether the configuration is that of the pass.
    fn is_current(&self) -> bool {
        self.generation == self.context.state.borrow().settings.generation
    }

    /// Runs a step as a task, unless one is in flight for its object. After an error, the object backs off.
    ///
    /// Passes ignore an object while a step for it is in flight. The step returns whether such a pass may have skipped
    /// something; no await comes after that, so no pass runs before the object is free. It must not do so for each repeated
    /// refusal by the API server: the main loop would spin.
    fn run<F>(&self, guard: Option<InFlight>, step: F)
    where
        F: Future<Output = Result<bool, ApiError>> + Send + 'static,
    {
        let Some(guard) = guard else {
            return;
        };
        let context = Arc::clone(&self.context);
        let step = async move {
            let needs_pass = match step.await {
                Ok(needs_pass) => needs_pass,
                Err(error) if error.is_change() => false,
                // A pass learns when the back-off ends.
                Err(error) => {
                    tracing::warn!(name = guard.name, %error, "a write failed; a later pass retries");
                    let (now, mut ledger) = (context.table.now(), context.table.facts());
                    ledger.writes.fail(&guard.name, error.is_passing(), now)
                }
            };
            drop(guard);
            if needs_pass {
                context.wake.notify_one();
            }
        };
        tokio::spawn(step.in_current_span());
    }

    /// Runs a step of a cleanup. A panic is recorded as a failure.
    fn run_cleanup(&self, tenancy: Tenancy, work: impl Future<Output = ()> + Send + 'static) {
        let context = Arc::clone(&self.context);
        let step = async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                let message = "the cleanup panicked; this is a bug";
                tracing::error!("{message}");
                context.table.mark_failed(&tenancy, message);
            }
            // The last pass saw this step running.
            context.wake.notify_one();
        };
        tokio::spawn(step.in_current_span());
    }

    /// Fails if our Node was registered again, and the watch does not show it yet. The garbage collector would delete each PV
    /// that the former one owns, as fast as it is created or adopted.
    async fn ensure_node_is(&self, uid: &str) -> Result<(), ApiError> {
        let name = self.context.state.borrow().node.name.clone();
        let found = self.context.cluster.node(&name).await?;
        let is_same = found.uid.is_some_and(|found| found == uid);
        is_same.then_some(()).ok_or(ApiError::Conflict)
    }

    async fn patch(&self, mut patch: Patch) -> Result<(), ApiError> {
        let mut owners = patch.owners.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.kind == "Node") {
            self.ensure_node_is(&owner.uid).await?;
        }
        self.mark(&mut patch).await?;
        let cluster = &self.context.cluster;
        if !patch.changes_nothing() {
            crash_point("record-on-pv");
            let view = cluster.merge_pv(&patch.pv, patch.body()).await?;
            self.expectations.expect(view);
            let now = self.context.table.now();
            if self.context.table.facts().writes.count(&patch.pv, now) {
                tracing::warn!(
                    "another writer reverts the provisioner's changes of the PV; its metadata.managedFields name the writer; the next change waits for {:?}",
                    retry::WRITE.longest
                );
            }
        }
        if let Some(bytes) = patch.capacity {
            let capacity = quantity::format(bytes);
            tracing::info!(capacity, "the volume's size changed; spec.capacity was set to it");
        }
        let about = About::from(&patch.pv);
        for (reason, text) in &patch.events {
            tracing::info!(reason, "{text}");
            self.context.reporter.normal(&about, reason, "Record", text);
        }
        Ok(())
    }

    /// Deletes a PV without cleaning, or removes our finalizer from a Terminating one, which cannot be bound.
    async fn withdraw(&self, withdrawal: &Withdrawal) -> Result<(), ApiError> {
        let (cluster, pv, because) = (&self.context.cluster, &withdrawal.pv, &withdrawal.because);
        match &withdrawal.finalizers {
            None => {
                cluster.delete_pv(pv).await?;
                self.expectations.read(pv).await;
            }
            Some(others) => cluster.remove_finalizer(pv, others).await?,
        }
        tracing::info!("the PV is removed without cleaning its volume: {because}");
        let reporter = &self.context.reporter;
        reporter.normal(&pv.into(), withdrawal.reason, "Withdraw", because);
        Ok(())
    }
}
