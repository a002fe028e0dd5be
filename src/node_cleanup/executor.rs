//! Carries out one step: fresh reads, then one write with the UID and the version of its object as preconditions.

use std::time::Duration;

use anyhow::{Result, ensure};
use prometheus::Counter;
use tokio::time::Instant;

use super::controller::Controller;
use super::plan::{self, NodeIndex, Step};
use super::volume::Volume;
use super::watches::View;
use crate::cluster::{ApiError, ClaimView};
use crate::names::ANNOTATION_PAUSED;
use crate::plan::About;
use crate::plan::verdict::without_ours;
use crate::view::{ClaimRef, Phase};

/// How long the confirmation that a node is gone is valid for its other volumes.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(1);

impl Controller {
    /// Carries out a step.
    ///
    /// # Errors
    /// An [`ApiError`] if a request failed or an object has changed: nothing was changed, or the response was lost.
    /// Another error if the API server does not confirm that the node is gone.
    pub(super) async fn execute(&mut self, step: Step, volume: &Volume, view: &View) -> Result<()> {
        if step == Step::Announce {
            self.announce(volume).await;
            return Ok(());
        }
        self.requests.tick().await;
        let pv = volume.pv.reference();
        let now = self.cluster.pv(&pv.name).await?;
        let is_same = now.is_some_and(|now| now.reference() == pv);
        ensure!(is_same, ApiError::Conflict);
        let claim = match step {
            Step::DeleteClaim => Some(self.read_claim(volume).await?),
            _ => None,
        };
        self.confirm_gone(volume, view).await?;
        let (cluster, metrics) = (&self.cluster, &self.metrics);
        if step == Step::RemoveFinalizer {
            let others = without_ours(&volume.pv);
            cluster.remove_finalizer(&pv, &others).await?;
            metrics.finalizers_removed.inc();
            return Ok(());
        }
        if let Some((claim, seen)) = claim {
            let done = cluster.delete_claim(claim, &seen).await;
            return count(done, &metrics.claim_deleted, &metrics.claim_delete_failed);
        }
        let phase = &[&*format!("{:?}", volume.pv.phase)];
        let counters = [&metrics.pv_deleted, &metrics.pv_delete_failed];
        let [deleted, failed] = counters.map(|counter| counter.with_label_values(phase));
        count(cluster.delete_pv(&pv).await.map(drop), &deleted, &failed)
    }

    /// Publishes an event on the bound claim.
    async fn announce(&mut self, of: &Volume) {
        let is_bound = of.pv.phase == Phase::Bound;
        let Some(claim) = of.pv.claim.clone().filter(|_| is_bound) else {
            return;
        };
        self.requests.tick().await;
        let (pv, hosts) = (&of.pv.name, of.hosts.join(", "));
        let delay = self.args.pvc_deletion_delay;
        let note = format!(
            "node {hosts}, which has the data of volume {pv}, is gone: the claim is deleted in {delay:?} or later. To keep it: kubectl annotate pv {pv} {ANNOTATION_PAUSED}=true"
        );
        let (about, reason) = (About::Claim(claim), "ReferencedNodeDeleted");
        self.reporter.warning(&about, reason, "NodeCleanup", &note);
    }

    /// Reads the claim of a PV, and verifies that they name each other, and that it is not being deleted.
    async fn read_claim<'a>(&mut self, volume: &'a Volume) -> Result<(&'a ClaimRef, ClaimView)> {
        let claim = volume.pv.claim.as_ref().ok_or(ApiError::NotFound)?;
        self.requests.tick().await;
        let seen = self.cluster.claim(claim).await?.ok_or(ApiError::NotFound)?;
        let is_bound =
            Some(&seen.uid) == claim.uid.as_ref() && seen.volume.as_ref() == Some(&volume.pv.name);
        ensure!(is_bound && !seen.deleting, ApiError::Conflict);
        Ok((claim, seen))
    }

    /// Verifies with the API server that the PV's nodes are gone. It also admits the write, so that the write follows
    /// without a pause.
    async fn confirm_gone(&mut self, volume: &Volume, view: &View) -> Result<()> {
        self.requests.tick().await;
        self.confirmed.retain(|_, asked| asked.elapsed() < CONFIRMATION_LIFETIME);
        for name in volume.node_names() {
            let (label, key) = (&volume.label, (volume.label.clone(), name.clone()));
            if self.confirmed.contains_key(&key) {
                continue;
            }
            for _ in 0..3 {
                self.requests.tick().await;
            }
            let asked = Instant::now();
            // An empty list of Nodes is treated as an error of the API server, not as a cluster without Nodes.
            let has_nodes = self.cluster.has_nodes().await?;
            ensure!(has_nodes, "the API server lists no Node at all");
            let found = self.cluster.nodes_known_as(label, name).await?.join(", ");
            ensure!(
                found.is_empty(),
                "there is the Node {found}, whose name or label {label} is {name:?}"
            );
            self.confirmed.insert(key, asked);
        }
        let nodes = view.nodes.borrow();
        let is_gone = |nodes| plan::is_gone(volume, &NodeIndex::new(nodes)) == Ok(true);
        let is_gone = nodes.as_ref().is_some_and(is_gone);
        ensure!(is_gone, "a Node has appeared meanwhile");
        Ok(())
    }
}

/// Counts a deletion. It has not failed if its object has changed.
fn count(done: Result<(), ApiError>, deleted: &Counter, failed: &Counter) -> Result<()> {
    match &done {
        Ok(()) => deleted.inc(),
        Err(error) if error.is_change() => {}
        Err(_) => failed.inc(),
    }
    Ok(done?)
}
