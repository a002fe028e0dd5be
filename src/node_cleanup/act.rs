//! Carries out one step: fresh reads, then one write that names the object and its version.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::election::Leadership;
use super::limiter::Limiter;
use super::metrics::Metrics;
use super::plan::{Next, Step};
use super::timer;
use super::view::View;
use super::volume::Volume;
use crate::cluster::{ApiError, Cluster};
use crate::names::{ANNOTATION_NODE_GONE_SINCE, ANNOTATION_PAUSED, FINALIZER};
use crate::report::Reporter;
use crate::view::{ClaimRef, Phase};

/// How long the answer that a node is gone serves for its other volumes, too.
const CONFIRMED_FOR: Duration = Duration::from_secs(1);
/// Until the watch shows what we wrote. Then the version is another one, and this is of no matter.
const WATCH_LAG: Duration = Duration::from_secs(30);
/// Until the next look at a claim that pods still keep.
const CLAIM_LINGERS: Duration = Duration::from_mins(5);

/// Why a step was not carried out.
#[derive(Debug)]
pub enum Hitch {
    /// Things are not as they were when it was decided: look again.
    Changed(&'static str),
    /// The watch says that the node is gone, the API server says that it is not, or says nothing useful.
    NotGone(String),
    /// Another process acts now.
    NotLeader,
    /// A request failed.
    Api(ApiError),
}

/// What it takes to carry out steps.
#[derive(Debug)]
#[allow(missing_docs, reason = "each is documented where it is made")]
pub struct Worker {
    pub cluster: Cluster,
    pub reporter: Reporter,
    pub metrics: Arc<Metrics>,
    pub limiter: Limiter,
    pub leadership: Leadership,
    pub classes: BTreeSet<String>,
    pub delay: Duration,
    pub confirmed: Mutex<HashMap<String, Instant>>,
}

impl Worker {
    /// Carries a step out. Until the time that is returned there is nothing more to do for this version
    /// of the PV.
    ///
    /// # Errors
    /// [`Hitch`]; then nothing was changed, or the answer was lost.
    pub async fn carry_out(
        &self,
        step: Step,
        volume: &Volume,
        view: &View,
    ) -> Result<Duration, Hitch> {
        match step {
            Step::Cancel => self.cancel(volume, view).await,
            Step::StartTimer => self.start_timer(volume, view).await,
            Step::DeleteClaim => self.delete_claim(volume, view).await,
            Step::TakeFinalizer => self.take_finalizer(volume, view).await,
            Step::DeletePv => self.delete_pv(volume, view).await,
        }
    }

    async fn cancel(&self, volume: &Volume, view: &View) -> Result<Duration, Hitch> {
        self.limiter.admit(2).await;
        self.still(Step::Cancel, volume, view)?;
        self.annotate(volume, Value::Null).await?;
        let pv = &volume.pv.name;
        tracing::info!(pv, "its node is back; nothing of it is deleted");
        if let Some(claim) = &volume.claim {
            let note = format!(
                "the node of volume {pv} is back: this claim is not deleted by the node cleanup"
            );
            self.tell(claim, EventType::Normal, "ReferencedNodeReturned", &note);
        }
        Ok(WATCH_LAG)
    }

    async fn start_timer(&self, volume: &Volume, view: &View) -> Result<Duration, Hitch> {
        self.limiter.admit(2).await;
        self.still(Step::StartTimer, volume, view)?;
        let now = Timestamp::now();
        self.annotate(volume, timer::written(now, volume.subject()).into())
            .await?;
        let (pv, nodes, delay) = (&volume.pv.name, volume.hosts().join(", "), self.delay);
        let bound = volume
            .claim
            .as_ref()
            .filter(|_| volume.phase == Phase::Bound);
        let Some(claim) = bound else {
            tracing::info!(
                pv,
                node = nodes,
                "the node is gone; what is left of it goes in {delay:?}"
            );
            return Ok(WATCH_LAG);
        };
        let due = now
            .checked_add(delay)
            .unwrap_or(Timestamp::MAX)
            .strftime("%FT%TZ");
        tracing::warn!(pv, node = nodes, %claim, "the node is gone; the claim is deleted in {delay:?}, unless the node comes back");
        let note = format!(
            "node {nodes}, which has the data of volume {pv}, is gone: this claim is deleted at {due} (in {delay:?}), so that its pods can start elsewhere with an empty volume. To keep it, register the node again before then, or annotate PersistentVolume {pv} with {ANNOTATION_PAUSED}=true"
        );
        self.tell(claim, EventType::Warning, "ReferencedNodeDeleted", &note);
        Ok(WATCH_LAG)
    }

    async fn delete_claim(&self, volume: &Volume, view: &View) -> Result<Duration, Hitch> {
        let (volume, _) = self.fresh(Step::DeleteClaim, volume, view).await?;
        let pv = &volume.pv.name;
        let Some(claim) = &volume.claim else {
            return Err(Hitch::Changed("the PV has no claim any more"));
        };
        let asked = self.cluster.bound_claim(claim);
        let Some(seen) = self.ask(asked).await? else {
            return Err(Hitch::Changed("the claim is gone"));
        };
        if Some(&seen.uid) != claim.uid.as_ref() || seen.volume != *pv {
            return Err(Hitch::Changed(
                "the PV and its claim do not point at each other",
            ));
        }
        if seen.deleting {
            tracing::debug!(pv, %claim, "the claim is being deleted already");
            return Ok(CLAIM_LINGERS);
        }
        self.confirm_gone(Step::DeleteClaim, &volume, view).await?;
        let deleted = self.write(self.cluster.delete_claim(claim, &seen)).await;
        if has_failed(&deleted) {
            self.metrics.claim_delete_failed.inc();
        }
        deleted?;
        self.metrics.claim_deleted.inc();
        let node = volume.hosts().join(", ");
        tracing::warn!(pv, node, %claim, "the claim is deleted: its node has been gone for {:?}", self.delay);
        Ok(CLAIM_LINGERS)
    }

    async fn take_finalizer(&self, volume: &Volume, view: &View) -> Result<Duration, Hitch> {
        let (volume, finalizers) = self.fresh(Step::TakeFinalizer, volume, view).await?;
        self.confirm_gone(Step::TakeFinalizer, &volume, view)
            .await?;
        let rest: Vec<_> = finalizers
            .into_iter()
            .filter(|one| one != FINALIZER)
            .collect();
        let taken_off = self.cluster.take_finalizer_off(&volume.pv, &rest);
        self.write(taken_off).await?;
        self.metrics.finalizers_removed.inc();
        let (pv, node) = (&volume.pv.name, volume.hosts().join(", "));
        tracing::info!(
            pv,
            node,
            "our finalizer is taken off: its node is gone, and its data too"
        );
        Ok(WATCH_LAG)
    }

    async fn delete_pv(&self, volume: &Volume, view: &View) -> Result<Duration, Hitch> {
        let (volume, _) = self.fresh(Step::DeletePv, volume, view).await?;
        self.confirm_gone(Step::DeletePv, &volume, view).await?;
        let deleted = self.write(self.cluster.delete_pv_surely(&volume.pv)).await;
        let phase = volume.phase.to_string();
        if has_failed(&deleted) {
            self.metrics
                .pv_delete_failed
                .with_label_values(&[&phase])
                .inc();
        }
        deleted?;
        self.metrics.pv_deleted.with_label_values(&[&phase]).inc();
        let (pv, node) = (&volume.pv.name, volume.hosts().join(", "));
        tracing::info!(pv, node, phase, "the PV is deleted: its node is gone");
        Ok(WATCH_LAG)
    }

    /// Whether the step is still what the newest that is known calls for.
    fn still(&self, step: Step, volume: &Volume, view: &View) -> Result<(), Hitch> {
        if view.next(volume, self.delay) == Next::Now(step) {
            Ok(())
        } else {
            Err(Hitch::Changed("there is something else to do, or nothing"))
        }
    }

    /// The PV as the API server has it now, if the step is still called for; and its finalizers.
    async fn fresh(
        &self,
        step: Step,
        seen: &Volume,
        view: &View,
    ) -> Result<(Volume, Vec<String>), Hitch> {
        let found = self.ask(self.cluster.whole_pv(&seen.pv.name)).await?;
        let now = found.as_ref().and_then(|pv| Volume::of(pv, &self.classes));
        let Some(now) = now.filter(|now| now.pv.uid == seen.pv.uid) else {
            return Err(Hitch::Changed("the PV is gone, or another one"));
        };
        self.still(step, &now, view)?;
        let finalizers = found.and_then(|pv| pv.metadata.finalizers);
        Ok((now, finalizers.unwrap_or_default()))
    }

    /// Asks the API server whether the PV's nodes are really gone. Right behind it comes the write, which
    /// need not wait for its turn any more.
    async fn confirm_gone(&self, step: Step, volume: &Volume, view: &View) -> Result<(), Hitch> {
        let mut confirmed = self.confirmed.lock().await;
        self.limiter.admit(1).await;
        let place = volume.place.as_ref().map_err(|why| Hitch::Changed(why))?;
        for name in place.names() {
            self.confirm(name, &mut confirmed).await?;
        }
        drop(confirmed);
        self.still(step, volume, view)
    }

    async fn confirm(
        &self,
        name: &str,
        confirmed: &mut HashMap<String, Instant>,
    ) -> Result<(), Hitch> {
        confirmed.retain(|_, at| at.elapsed() < CONFIRMED_FOR);
        if confirmed.contains_key(name) {
            return Ok(());
        }
        self.limiter.admit(3).await;
        let begun = Instant::now();
        // Where nothing is found at all, it is the answer that is wrong.
        if !self.write(self.cluster.has_nodes()).await? {
            return Err(Hitch::NotGone("the API server lists no Node at all".into()));
        }
        let found = self.write(self.cluster.nodes_known_as(name)).await?;
        if !found.is_empty() {
            let nodes = found.join(", ");
            return Err(Hitch::NotGone(format!(
                "there is the Node {nodes}, whose name or hostname label is {name:?}"
            )));
        }
        confirmed.insert(name.to_owned(), begun);
        Ok(())
    }

    async fn annotate(&self, volume: &Volume, value: Value) -> Result<(), Hitch> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION_NODE_GONE_SINCE: value } } });
        self.write(self.cluster.patch_pv_surely(&volume.pv, patch))
            .await?;
        Ok(())
    }

    /// One request, when its turn comes.
    async fn ask<T>(&self, request: impl Future<Output = Result<T, ApiError>>) -> Result<T, Hitch> {
        self.limiter.admit(1).await;
        self.write(request).await
    }

    /// A request whose turn has come, for as long as we are the leader.
    async fn write<T>(
        &self,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, Hitch> {
        let answer = self.leadership.bound(request).await;
        answer
            .ok_or(Hitch::NotLeader)?
            .map_err(|error| match error {
                ApiError::Conflict => Hitch::Changed("the object has changed meanwhile"),
                ApiError::NotFound => Hitch::Changed("the object is gone"),
                error => Hitch::Api(error),
            })
    }

    fn tell(&self, claim: &ClaimRef, type_: EventType, reason: &str, note: &str) {
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: Some(claim.namespace.clone()),
            name: Some(claim.name.clone()),
            uid: claim.uid.clone(),
            ..ObjectReference::default()
        };
        self.reporter
            .regarding(type_, about, reason, "NodeCleanup", note);
    }
}

fn has_failed<T>(result: &Result<T, Hitch>) -> bool {
    matches!(result, Err(Hitch::Api(_)))
}
