//! Makes the links of PVs that are bound to their disks. The plan decides which.

use std::time::Duration;

use tokio::time::timeout;

use super::Actor;
use crate::cache::Expectations;
use crate::cleanup::PassFacts;
use crate::cluster::ApiError;
use crate::plan::{LinkOrder, NodeLabels};

/// The time limit for the check of the disk.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the watch may take to show a change of the labels until it is written again.
const LABEL_PAUSE: Duration = Duration::from_secs(10);

impl Actor {
    /// Removes a link, at once.
    pub(super) fn unlink(&self, token: &str) {
        self.ledger.lock().linked.remove(token);
        match self.context.host.unlink(token) {
            Ok(()) => tracing::info!(
                link = token,
                "the link is removed; its volume is not verified"
            ),
            Err(why) => tracing::error!(
                link = token,
                "{why}; pods may mount a wrong volume; remove the link"
            ),
        }
    }

    /// Makes the link of a PV, once the API server and the disk confirm what the plan has seen.
    pub(super) fn make_link(
        &self,
        order: LinkOrder,
        facts: PassFacts,
        expectations: &Expectations,
    ) {
        let Some(token) = order.pv.link.as_ref().map(|link| link.token.clone()) else {
            return;
        };
        let guard = self.enter(&token, None);
        let (before, epoch) = (order.pv.reference(), order.epoch);
        let (this, now) = (self.clone(), expectations.clone());
        let pv = before.clone();
        let work = async move {
            let done = this.link(&order, &facts).await;
            if done.as_ref().is_err_and(ApiError::is_change) {
                now.read(&pv).await;
            }
            // Also one that was made in spite of an error.
            if done.is_err() {
                this.unlink(&token);
            }
            let result = match &done {
                Ok(()) => Some(Ok(order.epoch)),
                Err(error) if error.is_change() => None,
                Err(error) => Some(Err(error.to_string())),
            };
            if let Some(result) = result {
                this.ledger.lock().linked.insert(token, result);
            }
            done
        };
        let (this, now) = (self.clone(), expectations.clone());
        let needs_pass = move |is_ok| is_ok || now.has_changed(&before) || this.epoch() != epoch;
        self.write(guard, expectations, work, needs_pass);
    }

    fn epoch(&self) -> u64 {
        *self.context.cluster.origin.epoch().borrow()
    }

    async fn link(&self, order: &LinkOrder, facts: &PassFacts) -> Result<(), ApiError> {
        let (cluster, pv) = (&self.context.cluster, &order.pv);
        let is_current = || self.epoch() == order.epoch;
        if cluster.origin.verified().is_err() {
            cluster.ensure_known().await?;
        }
        let found = cluster.pv(&pv.name).await?;
        if found.is_none_or(|found| found.reference() != pv.reference()) || !is_current() {
            return Err(ApiError::Conflict);
        }
        let made = timeout(TIMEOUT, self.context.host.link(order, facts)).await;
        let made = made.map_err(|_| format!("the disk did not answer for {TIMEOUT:?}"));
        let made = made.and_then(|made| made.map_err(|obstacle| obstacle.to_string()));
        made.map_err(ApiError::Failed)?;
        if !is_current() {
            return Err(ApiError::Conflict);
        }
        let (name, path) = (&pv.name, &order.volume.path);
        tracing::info!(pv = name, %path, "the volume is verified; pods of its claim can start");
        Ok(())
    }

    /// Changes the labels of the Node.
    pub(super) fn label_node(&self, change: NodeLabels, expectations: &Expectations) {
        let guard = self.enter(&change.node.uid, None);
        let this = self.clone();
        let work = async move {
            this.context
                .cluster
                .label_node(&change.node, &change.labels)
                .await?;
            let known_until = this.context.table.now() + LABEL_PAUSE;
            this.ledger.lock().labelled = Some((change.labels, known_until));
            Ok(())
        };
        self.write(guard, expectations, work, |_| false);
    }
}
