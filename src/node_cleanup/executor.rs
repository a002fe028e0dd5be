//! Carries out one step: fresh reads, then one write with the UID and the version of its object as preconditions.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use prometheus::Counter;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::metrics::Metrics;
use super::plan::Step;
use super::volume::Volume;
use super::watches::View;
use crate::cluster::{ApiError, ClaimView, Cluster};
use crate::names::{ANNOTATION_NODE_GONE_SINCE, ANNOTATION_PAUSED};
use crate::plan::verdict::without_ours;
use crate::report::Reporter;
use crate::view::{ClaimRef, Phase};

/// How long the confirmation that a node is gone is valid for its other volumes.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(1);

/// Why a step was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The objects are not as they were when the step was planned.
    #[error("{0}")]
    Changed(&'static str),
    /// The watch shows that the node is gone, but a read does not confirm it.
    #[error("{0}")]
    NotConfirmed(String),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

use StepError::{Changed, NotConfirmed};

impl StepError {
    /// Whether an object has changed, so that the next pass plans again.
    #[must_use]
    pub fn is_change(&self) -> bool {
        match self {
            Changed(_) => true,
            NotConfirmed(_) => false,
            Self::Api(error) => error.is_change(),
        }
    }
}

/// Carries out steps.
#[derive(Debug)]
pub struct Executor {
    /// The API server.
    pub cluster: Cluster,
    /// Publishes events.
    pub reporter: Reporter,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The StorageClasses.
    pub classes: BTreeSet<String>,
    /// How long a node must be gone before data is given up.
    pub delay: Duration,
    /// The minimum pause between two requests, without bursts.
    pub request_gap: Duration,
    /// When the next request may be made.
    pub next_request: Cell<Instant>,
    /// By node name, when the API server last confirmed that no such Node exists.
    pub confirmed: Mutex<HashMap<String, Instant>>,
}

impl Executor {
    /// Carries out a step.
    ///
    /// # Errors
    /// [`StepError`]: nothing was changed, or the response was lost.
    pub async fn execute(&self, step: Step, of: &Volume, view: &View) -> Result<(), StepError> {
        match step {
            Step::Unmark => self.unmark(of).await,
            Step::Mark => self.mark(of).await,
            Step::DeleteClaim | Step::RemoveFinalizer | Step::DeletePv => {
                self.give_up(step, of, view).await
            }
        }
    }

    async fn unmark(&self, volume: &Volume) -> Result<(), StepError> {
        self.annotate(volume, Value::Null).await?;
        let pv = &volume.pv.name;
        let text = format!("the node of volume {pv} is back, so this claim is not deleted");
        self.publish(volume, EventType::Normal, "ReferencedNodeReturned", &text);
        Ok(())
    }

    async fn mark(&self, volume: &Volume) -> Result<(), StepError> {
        let now = Timestamp::now();
        self.annotate(volume, volume.new_mark(now).into()).await?;
        if volume.pv.phase == Phase::Bound {
            let (pv, node) = (&volume.pv.name, volume.hosts.join(", "));
            let due = now.saturating_add(self.delay).unwrap_or(Timestamp::MAX);
            let due = format!("{} (in {:?})", due.strftime("%FT%TZ"), self.delay);
            let text = format!(
                "node {node}, which has the data of volume {pv}, is gone: the claim is deleted at {due} or later. To keep it: kubectl annotate pv {pv} {ANNOTATION_PAUSED}=true"
            );
            self.publish(volume, EventType::Warning, "ReferencedNodeDeleted", &text);
        }
        Ok(())
    }

    /// Deletes the claim or the PV, or removes our finalizer, after fresh reads.
    async fn give_up(&self, step: Step, volume: &Volume, view: &View) -> Result<(), StepError> {
        self.admit(1).await;
        let pv = volume.pv.reference();
        let now = self.cluster.pv(&pv.name).await?;
        if now.is_none_or(|now| now.reference() != pv) {
            return Err(Changed("the PV has changed"));
        }
        let claim = match step {
            Step::DeleteClaim => Some(self.read_claim(volume).await?),
            _ => None,
        };
        self.confirm_gone(volume, view).await?;
        let (cluster, metrics) = (&self.cluster, &self.metrics);
        if let Some((claim, seen)) = claim {
            let deleted = cluster.delete_claim(claim, &seen).await;
            return count(
                deleted,
                &metrics.claim_deleted,
                &metrics.claim_delete_failed,
            );
        }
        if step == Step::RemoveFinalizer {
            let others = without_ours(&volume.pv);
            cluster.remove_finalizer(&pv, &others).await?;
            metrics.finalizers_removed.inc();
            return Ok(());
        }
        let phase = &[&*volume.pv.phase.to_string()];
        let counters = [&metrics.pv_deleted, &metrics.pv_delete_failed];
        let [done, failed] = counters.map(|counter| counter.with_label_values(phase));
        count(cluster.delete_pv(&pv).await, &done, &failed)
    }

    /// Reads the claim of a PV, and verifies that they name each other.
    async fn read_claim<'a>(
        &self,
        volume: &'a Volume,
    ) -> Result<(&'a ClaimRef, ClaimView), StepError> {
        let claim = volume.pv.claim.as_ref();
        let claim = claim.ok_or(Changed("the PV has no claim"))?;
        self.admit(1).await;
        let seen = self.cluster.claim(claim).await?;
        let seen = seen.ok_or(Changed("the claim is gone"))?;
        if Some(&seen.uid) != claim.uid.as_ref() || seen.volume.as_ref() != Some(&volume.pv.name) {
            return Err(Changed("the PV and its claim do not name each other"));
        }
        if seen.deleting {
            return Err(Changed("the claim is being deleted"));
        }
        Ok((claim, seen))
    }

    /// Waits until this number of requests is admitted.
    async fn admit(&self, requests: u32) {
        let at = self.next_request.get().max(Instant::now());
        self.next_request.set(at + self.request_gap * requests);
        sleep_until(at).await;
    }

    /// Verifies with the API server that the PV's nodes are gone. It also admits the write, so that the write follows
    /// without a pause.
    async fn confirm_gone(&self, volume: &Volume, view: &View) -> Result<(), StepError> {
        let mut confirmed = self.confirmed.lock().await;
        self.admit(1).await;
        confirmed.retain(|_, asked| asked.elapsed() < CONFIRMATION_LIFETIME);
        let mut names: Vec<_> = volume.node_names().collect();
        names.retain(|name| !confirmed.contains_key(*name));
        for name in names {
            self.admit(3).await;
            let asked = Instant::now();
            // An empty list of Nodes is treated as an error of the API server, not as a cluster without Nodes.
            if !self.cluster.has_nodes().await? {
                return Err(NotConfirmed("the API server lists no Node at all".into()));
            }
            let found = self.cluster.nodes_known_as(name).await?.join(", ");
            if !found.is_empty() {
                return Err(NotConfirmed(format!(
                    "there is the Node {found}, whose name or hostname label is {name:?}"
                )));
            }
            confirmed.insert(name.clone(), asked);
        }
        drop(confirmed);
        let is_gone = view.is_gone(volume).then_some(());
        is_gone.ok_or(Changed("a Node has appeared meanwhile"))
    }

    /// Patches the mark. The second admitted request is for the event.
    async fn annotate(&self, volume: &Volume, mark: Value) -> Result<(), StepError> {
        self.admit(2).await;
        let metadata = json!({ "annotations": { ANNOTATION_NODE_GONE_SINCE: mark } });
        let pv = volume.pv.reference();
        self.cluster.patch_pv(&pv, metadata).await?;
        Ok(())
    }

    /// Publishes an event on the claim.
    fn publish(&self, volume: &Volume, type_: EventType, reason: &str, note: &str) {
        let Some(claim) = &volume.pv.claim else {
            return;
        };
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: Some(claim.namespace.clone()),
            name: Some(claim.name.clone()),
            uid: claim.uid.clone(),
            ..ObjectReference::default()
        };
        let reporter = &self.reporter;
        reporter.regarding(type_, regarding, reason, "NodeCleanup", note);
    }
}

/// Counts a deletion. It has not failed if its object has changed.
fn count(done: Result<(), ApiError>, deleted: &Counter, failed: &Counter) -> Result<(), StepError> {
    match &done {
        Ok(()) => deleted.inc(),
        Err(error) if error.is_change() => {}
        Err(_) => failed.inc(),
    }
    Ok(done?)
}
