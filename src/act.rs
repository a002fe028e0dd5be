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
/// Concurrent inspections. Each blocks a thread, and a dead disk blocks it for good.
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

    /// Starts all actions and does not wait for them.
    pub fn apply(&self, actions: Vec<Action>, expectations: &Expectations, pass: Instant) {
        let config = Arc::clone(&self.context.state.borrow().settings.config);
        let (facts, owners) = (PassFacts::new(config), PassOwners::of(&actions));
        for action in actions {
            let this = self.clone();
            let _span = span::of(&action).entered();
            match action {
                Action::Forget(tenancy) => {
                    self.context.table.forget(&tenancy);
                    self.context.wake.notify_one();
                }
                Action::Track(track) => self.context.table.track(*track),
                Action::Suspend(tenancy, on) => self.context.table.suspend(&tenancy, on),
                Action::Cancel(cancel) => {
                    let guard = self.enter(&cancel.tenancy.pv_uid, None);
                    let known = expectations.clone();
                    let work = async move { this.cancel(&cancel, &known).await };
                    self.write(guard, work, |_| false);
                }
                Action::Clean(order) => {
                    if let Some(progress) = self.context.table.begin(&order) {
                        let tenancy = order.pv.tenancy();
                        let work = async move { attempt(&this.context, &order, &progress).await };
                        self.run_step(tenancy, work);
                    }
                }
                Action::Release(tenancy) => {
                    if let Some(wiped) = self.context.table.begin_release(&tenancy) {
                        let _span = span::of_release(&wiped).entered();
                        let work = async move { release(&this.context, &wiped).await };
                        self.run_step(tenancy, work);
                    }
                }
                Action::WriteJob(job, write) => self.write_job(job, write),
                Action::Create(draft) => {
                    let (facts, owners) = (facts.clone(), owners.clone());
                    self.offer(draft, facts, owners, expectations.clone(), pass);
                }
                Action::FindOwners(queries) => self.find_owners(queries),
                Action::Patch(patch) => {
                    let (pv, now, facts) = (patch.pv.clone(), expectations.clone(), facts.clone());
                    let work = async move { this.patch(patch, &now, &facts).await };
                    self.write_pv(pv, expectations, work);
                }
                Action::WriteMark(write) => {
                    self.write_mark_only(*write, facts.clone());
                }
                Action::TakeOver(volume) => self.find_former(volume, expectations),
                Action::Unlink(token) => self.unlink(&token),
                Action::Link(order) => self.make_link(*order, facts.clone(), expectations),
                Action::TakeIn(order) => self.take_in(*order, facts.clone()),
                Action::LabelNode(change) => self.label_node(change),
                Action::FindPv(search) => self.search(search, expectations),
                Action::Withdraw(withdrawal) => {
                    let pv = withdrawal.pv.clone();
                    let known = expectations.clone();
                    let work = async move { this.withdraw(&withdrawal, &known).await };
                    self.write_pv(pv, expectations, work);
                }
            }
        }
    }

    /// Changes a PV. `before` is the PV as the plan saw it.
    fn write_pv<F>(&self, before: PvRef, expectations: &Expectations, work: F)
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        let guard = self.enter(&before.name, None);
        let (now, pv) = (expectations.clone(), before.clone());
        let work = async move {
            let done = work.await;
            if done.as_ref().is_err_and(ApiError::is_change) {
                now.read(&pv).await;
            }
            done
        };
        let now = expectations.clone();
        let has_changed = move |_| now.has_changed(&before);
        self.write(guard, work, has_changed);
    }

    /// Changes a Job.
    fn write_job(&self, job: JobView, write: JobWrite) {
        let guard = self.enter(&job.name, None);
        let (this, before, known) = (self.clone(), job.clone(), self.jobs.clone());
        let work = async move { this.change_job(&job, &write).await };
        let has_changed = move |_| {
            let jobs = known.borrow();
            jobs.as_ref().and_then(|jobs| jobs.get(&before.name)) != Some(&before)
        };
        self.write(guard, work, has_changed);
    }

    /// Runs `work` if the configuration is still the current one. After an error, its object backs off.
    ///
    /// Passes ignore an object while a write to it is in flight. `needs_pass` runs after the write, with its success,
    /// and reports whether such a pass skipped something. It must not return true for each repeated refusal by the API
    /// server: the main loop would spin.
    fn write(
        &self,
        guard: Option<InFlight>,
        work: impl Future<Output = Result<(), ApiError>> + Send + 'static,
        needs_pass: impl FnOnce(bool) -> bool + Send + 'static,
    ) {
        let Some(guard) = guard else {
            return;
        };
        let (this, generation) = (self.clone(), self.generation());
        let write = async move {
            let permit = this.write_permits.acquire().await;
            // After a reload, the next pass decides again.
            let done = if this.generation() == generation {
                Some(work.await)
            } else {
                None
            };
            let failure = done.as_ref().and_then(|done| done.as_ref().err());
            let failure = failure.filter(|error| !error.is_change());
            // A pass learns when the back-off ends.
            let is_first = failure.is_some_and(|error| {
                tracing::warn!(name = guard.name, %error, "a write failed; a later pass retries");
                let now = this.context.table.now();
                let mut ledger = this.context.table.facts();
                ledger.writes.fail(&guard.name, error.is_passing(), now)
            });
            drop((permit, guard));
            // The pass that a watch event triggered may have skipped the object. Some changes trigger none.
            if is_first || done.is_none_or(|done| needs_pass(done.is_ok())) {
                this.context.wake.notify_one();
            }
        };
        tokio::spawn(write.in_current_span());
    }

    /// Fails if our Node was registered again, and the watch does not show it yet. The garbage collector would delete each PV
    /// that the former one owns, as fast as it is created or adopted.
    async fn ensure_node_is(&self, uid: &str) -> Result<(), ApiError> {
        let name = self.context.state.borrow().node.name.clone();
        let found = self.context.cluster.node(&name).await?;
        let is_same = found.uid.is_some_and(|found| found == uid);
        is_same.then_some(()).ok_or(ApiError::Conflict)
    }

    /// The generation of the current configuration.
    fn generation(&self) -> u64 {
        self.context.state.borrow().settings.generation
    }

    /// Runs a step of a cleanup. A panic is recorded as a failure.
    fn run_step(&self, tenancy: Tenancy, work: impl Future<Output = ()> + Send + 'static) {
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

    async fn patch(
        &self,
        mut patch: Patch,
        expectations: &Expectations,
        facts: &PassFacts,
    ) -> Result<(), ApiError> {
        let mut owners = patch.owners.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.kind == "Node") {
            self.ensure_node_is(&owner.uid).await?;
        }
        self.mark(&mut patch, facts).await?;
        let cluster = &self.context.cluster;
        if !patch.changes_nothing() {
            crash_point("record-on-pv");
            let view = cluster.merge_pv(&patch.pv, patch.body()).await?;
            expectations.expect(view);
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
            tracing::info!(
                capacity,
                "the volume's size changed; spec.capacity was set to it"
            );
        }
        let about = About::from(&patch.pv);
        for (reason, text) in &patch.events {
            tracing::info!(reason, "{text}");
            self.context.reporter.normal(&about, reason, "Record", text);
        }
        Ok(())
    }

    /// Deletes a PV without cleaning, or removes our finalizer from a Terminating one, which cannot be bound.
    async fn withdraw(
        &self,
        withdrawal: &Withdrawal,
        expectations: &Expectations,
    ) -> Result<(), ApiError> {
        let (cluster, pv, because) = (&self.context.cluster, &withdrawal.pv, &withdrawal.because);
        match &withdrawal.finalizers {
            None => {
                cluster.delete_pv(pv).await?;
                expectations.read(pv).await;
            }
            Some(others) => cluster.remove_finalizer(pv, others).await?,
        }
        tracing::info!("the PV is removed without cleaning its volume: {because}");
        let reporter = &self.context.reporter;
        reporter.normal(&pv.into(), withdrawal.reason, "Withdraw", because);
        Ok(())
    }
}
