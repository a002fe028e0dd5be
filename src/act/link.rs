//! Makes the links of PVs that are bound to their disks. The plan decides which.

use std::time::Duration;

use tokio::time::timeout;

use super::Actor;
use crate::cache::Expectations;
use crate::cleanup::PassFacts;
use crate::cluster::ApiError;
use crate::plan::{LinkOrder, NodeLabels};
use crate::retry;

/// The time limit for the check of the disk.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Actor {
    /// Removes a link, at once.
    pub(super) fn unlink(&self, token: &str) {
        self.context.table.facts().linked.remove(token);
        match self.context.host.unlink(token) {
            Ok(true) => tracing::info!(link = token, "removed the link; no new pod can start"),
            Ok(false) => {}
            Err(why) => tracing::error!(
                link = token,
                "the link cannot be removed: {why}; pods may mount a wrong volume; remove it"
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
            // It may have been made nevertheless.
            if !matches!(done, Ok(Ok(()))) {
                this.unlink(&token);
            }
            let made = done?;
            let result = made.clone().map(|()| order.epoch);
            this.context.table.facts().linked.insert(token, result);
            made.map_err(ApiError::Disk)
        };
        let (this, now) = (self.clone(), expectations.clone());
        let needs_pass = move |is_ok| is_ok || now.has_changed(&before) || this.epoch() != epoch;
        self.write(guard, work, needs_pass);
    }

    fn epoch(&self) -> u64 {
        *self.context.cluster.origin.epoch().borrow()
    }

    /// Makes a link. The inner error is why the volume does not permit it.
    async fn link(
        &self,
        order: &LinkOrder,
        facts: &PassFacts,
    ) -> Result<Result<(), String>, ApiError> {
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
        if !is_current() {
            return Err(ApiError::Conflict);
        }
        if made.is_ok() {
            tracing::info!("the volume is verified; pods of its claim can start");
        }
        Ok(made)
    }

    /// Changes the labels of the Node.
    pub(super) fn label_node(&self, change: NodeLabels) {
        let guard = self.enter(&change.node.uid, None);
        let this = self.clone();
        let work = async move {
            this.context
                .cluster
                .label_node(&change.node, &change.labels)
                .await?;
            let known_until = this.context.table.now() + retry::UNSEEN_LABELS;
            this.context.table.facts().labelled = Some((change.labels, known_until));
            Ok(())
        };
        self.write(guard, work, |_| false);
    }
}
