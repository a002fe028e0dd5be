//! Takes the PVs of other nodes over whose disks were moved here. The rules are in [`crate::plan::takeover`].

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use crate::cluster::{ApiError, PodView};
use crate::inventory::{Skip, Volume};
use crate::names::{TAINT_OUT_OF_SERVICE, nodes_of_provisioner};
use crate::plan::takeover::{FormerNode, is_fenced, is_takeable, taken_over, waits, world_unique};
use crate::plan::{About, OtherPvs, OwnerQuery, reasons};
use crate::retry;
use crate::types::SkipReason;
use crate::view::{NodeView, PvView};

/// What the events of a takeover are about.
fn pv_and_claim(pv: &PvView) -> impl Iterator<Item = About> {
    let claim = pv.claim.clone().map(About::Claim);
    [About::from(pv)].into_iter().chain(claim)
}

impl Execution {
    /// Looks for the PV that the mark of a volume names, among those of other nodes.
    pub(super) fn find_former(self: &Arc<Self>, volume: Arc<Volume>) {
        let (this, guard) = (Arc::clone(self), self.enter(volume.path.as_str(), None));
        self.write(guard, async move {
            let Some(identity) = world_unique(&volume) else {
                return Ok(true);
            };
            let query = OwnerQuery::new("", identity, volume.candidate.capacity);
            let found = this.list_owners(&[query]).await?;
            let others = found.get(&identity.hash).cloned().unwrap_or_default();
            let wait = |skip, pause| {
                let (now, mut ledger) = (this.context.table.now(), this.context.table.facts());
                ledger.moved.record(&volume, skip, pause, now)
            };
            if others.is_empty() {
                // Any other reason than that of a volume that waits.
                wait(Skip::new(SkipReason::Dirty, String::new()), retry::OWNED_DISK);
            } else {
                this.take_over(&others, &volume, wait).await?;
            }
            Ok(true)
        });
    }

    /// Takes the PV of another node over, unless it is one of this node now. If that is not possible, `wait` records why and
    /// until when, and returns whether the reason is new.
    pub(super) async fn take_over(
        &self,
        others: &OtherPvs,
        volume: &Volume,
        wait: impl Fn(Skip, Duration) -> bool,
    ) -> Result<(), ApiError> {
        for pv in &others.here {
            self.expectations.expect(pv.clone());
        }
        let owner = match (&others.owners[..], world_unique(volume)) {
            ([owner], Some(_)) if others.here.is_empty() => owner,
            (owners, _) => {
                let is_here = owners.is_empty();
                let pause = if is_here { retry::TAKEOVER } else { retry::OWNED_DISK };
                if let Some(skip) = others.skip(&volume.path) {
                    wait(skip, pause);
                }
                return Ok(());
            }
        };
        let cluster = &self.context.cluster;
        let (settings, node) = {
            let state = self.context.state.borrow();
            (state.settings.clone(), state.node.clone())
        };
        let found = cluster.pv(&owner.name).await?;
        let Some(pv) = found.filter(|pv| pv.uid == owner.uid) else {
            return Err(ApiError::Conflict);
        };
        if let Err(why) = is_takeable(&settings, &node, &pv, volume) {
            // The disk may be attached to both nodes, and all may be well there.
            wait(waits(&pv, volume, &why), retry::OWNED_DISK);
            return Ok(());
        }
        let former = self.former_node(&pv, &node).await?;
        if let Err(why) = is_fenced(&node, &pv, volume, &former) {
            let skip = waits(&pv, volume, &why);
            let text = skip.detail.clone();
            // While a pod of it is left, its claim does not wait for anything.
            if wait(skip, retry::TAKEOVER) && former.pod.is_none() {
                for about in pv_and_claim(&pv) {
                    let reporter = &self.context.reporter;
                    reporter.warning(&about, reasons::VOLUME_UNVERIFIED, "TakeOver", &text);
                }
            }
            return Ok(());
        }
        self.ensure_node_is(&node.uid).await?;
        let metadata = taken_over(&settings, &node, &pv, volume);
        let taken = cluster.patch_pv(&pv.reference(), metadata).await?;
        let from = pv.hostname_label.as_deref().unwrap_or_default();
        let (name, path) = (&pv.name, &volume.path);
        let text = format!(
            "its disk was moved from node {from} to {path} of node {}, and the PV with it; pods of its claim can start there",
            node.name
        );
        tracing::info!(pv = name, "took the PV over: {text}");
        for about in pv_and_claim(&taken) {
            let reporter = &self.context.reporter;
            reporter.normal(&about, reasons::VOLUME_ADOPTED, "TakeOver", &text);
        }
        self.expectations.expect(taken);
        Ok(())
    }

    /// Reads what is known of the node of a PV, and of the Pods that may use its disk there.
    async fn former_node(&self, pv: &PvView, node: &NodeView) -> Result<FormerNode, ApiError> {
        let cluster = &self.context.cluster;
        let by = pv.provisioned_by.as_deref().unwrap_or_default();
        let hostname = pv.hostname_label.as_deref().unwrap_or_default();
        let names = nodes_of_provisioner(by);
        let nodes = cluster.tainted_nodes(&names, hostname, TAINT_OUT_OF_SERVICE).await?;
        let Some(claim) = &pv.claim else {
            return Ok(FormerNode { nodes, pod: None });
        };
        let pods = cluster.pods_of_claim(claim).await?;
        let is_elsewhere = |pod: &PodView| !pod.node.is_empty() && pod.node != node.name;
        let pod = pods.into_iter().find(is_elsewhere);
        Ok(FormerNode { nodes, pod: pod.map(|pod| (pod.name, pod.node)) })
    }
}
