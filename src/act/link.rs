//! Makes the links of PVs that are bound to their disks. The plan decides which.

use std::sync::Arc;

use super::Execution;
use crate::cleanup::blocking::{DISK_TIMEOUT, within};
use crate::cluster::ApiError;
use crate::plan::{LinkOrder, NodeLabels};
use crate::retry;

impl Execution {
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
    pub(super) fn make_link(self: &Arc<Self>, order: LinkOrder) {
        let Some(token) = order.pv.link.as_ref().map(|link| link.token.clone()) else {
            return;
        };
        let (this, guard) = (Arc::clone(self), self.enter(&token, None));
        self.write(guard, async move {
            let done = this.link(&order).await;
            // It may have been made nevertheless.
            if !matches!(done, Ok(Ok(()))) {
                this.unlink(&token);
            }
            if done.as_ref().is_err_and(ApiError::is_change) {
                let before = order.pv.reference();
                this.expectations.read(&before).await;
                return Ok(this.expectations.has_changed(&before) || this.epoch() != order.epoch);
            }
            let made = done?;
            let result = made.clone().map(|()| order.epoch);
            this.context.table.facts().linked.insert(token, result);
            made.map(|()| true).map_err(ApiError::Disk)
        });
    }

    fn epoch(&self) -> u64 {
        *self.context.cluster.origin.epoch().borrow()
    }

    /// Makes a link. The inner error is why the volume does not permit it.
    async fn link(&self, order: &LinkOrder) -> Result<Result<(), String>, ApiError> {
        let (cluster, pv) = (&self.context.cluster, &order.pv);
        let is_current = || self.epoch() == order.epoch;
        if cluster.origin.verified().is_err() {
            cluster.ensure_known().await?;
        }
        let found = cluster.pv(&pv.name).await?;
        if found.is_none_or(|found| found.reference() != pv.reference()) || !is_current() {
            return Err(ApiError::Conflict);
        }
        let link = self.context.host.link(order, &self.facts);
        let made = within(DISK_TIMEOUT, "the disk", link).await.map_err(|it| it.to_string());
        if !is_current() {
            return Err(ApiError::Conflict);
        }
        if made.is_ok() {
            tracing::info!("the volume is verified; pods of its claim can start");
        }
        Ok(made)
    }

    /// Changes the labels of the Node.
    pub(super) fn label_node(self: &Arc<Self>, change: NodeLabels) {
        let (this, guard) = (Arc::clone(self), self.enter(&change.node.uid, None));
        self.write(guard, async move {
            let cluster = &this.context.cluster;
            cluster.label_node(&change.node, &change.labels).await?;
            let known_until = this.context.table.now() + retry::UNSEEN_LABELS;
            this.context.table.facts().labelled = Some((change.labels, known_until));
            Ok(false)
        });
    }
}
