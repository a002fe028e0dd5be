//! Takes the PVs of other nodes over whose disks were moved here. The rules are in [`crate::plan::takeover`].

use std::sync::Arc;
use std::time::Duration;

use super::Actor;
use crate::cache::Expectations;
use crate::cluster::{ApiError, PodView};
use crate::inventory::{Skip, Volume};
use crate::names::{TAINT_OUT_OF_SERVICE, nodes_of_provisioner};
use crate::plan::takeover::{FormerNode, is_fenced, is_takeable, taken_over, waits, world_unique};
use crate::plan::{About, OtherPvs, OwnerQuery, reasons};
use crate::retry;
use crate::types::SkipReason;
use crate::view::{NodeView, PvView};

/// Why a volume is not offered whose PV is of another node.
pub(super) struct Waits {
    pub skip: Skip,
    /// Until this is checked again.
    pub pause: Duration,
    /// The PV, once it is known to be that of the volume.
    pv: Option<PvView>,
}

/// What the events of a takeover are about.
fn pv_and_claim(pv: &PvView) -> impl Iterator<Item = About> {
    let claim = pv.claim.clone().map(About::Claim);
    [About::from(pv)].into_iter().chain(claim)
}

impl Actor {
    /// Looks for the PV that the mark of a volume names, among those of other nodes.
    pub(super) fn find_former(&self, volume: Arc<Volume>, expectations: &Expectations) {
        let guard = self.enter(volume.path.as_str(), None);
        let (this, known) = (self.clone(), expectations.clone());
        let work = async move {
            let Some(identity) = world_unique(&volume) else {
                return Ok(());
            };
            let query = OwnerQuery::new("", identity, volume.candidate.capacity);
            let found = this.list_owners(&[query]).await?;
            let others = found.get(&identity.hash).cloned().unwrap_or_default();
            let waits = this.take_over(&others, &volume, &known).await?;
            let now = this.context.table.now();
            let record = |skip, pause| {
                let mut ledger = this.context.table.facts();
                ledger.moved.record(&volume, skip, now + pause, now)
            };
            match waits {
                Some(it) if record(it.skip.clone(), it.pause) => this.report_waits(&it),
                // Any other reason than that of a volume that waits.
                None if others.is_empty() => drop(record(
                    Skip::new(SkipReason::Dirty, String::new()),
                    retry::OWNED_DISK,
                )),
                _ => {}
            }
            Ok(())
        };
        self.write(guard, work, |is_ok| is_ok);
    }

    /// Tells of a claim that waits until its PV is taken over.
    pub(super) fn report_waits(&self, waits: &Waits) {
        let Some(pv) = &waits.pv else { return };
        for about in pv_and_claim(pv) {
            let (reporter, text) = (&self.context.reporter, &waits.skip.detail);
            reporter.warning(&about, reasons::VOLUME_UNVERIFIED, "TakeOver", text);
        }
    }

    /// Takes the PV of another node over. `None`: it is one of this node now, or there is none.
    pub(super) async fn take_over(
        &self,
        others: &OtherPvs,
        volume: &Volume,
        expectations: &Expectations,
    ) -> Result<Option<Waits>, ApiError> {
        for pv in &others.here {
            expectations.expect(pv.clone());
        }
        let owner = match (&others.owners[..], world_unique(volume)) {
            ([owner], Some(_)) if others.here.is_empty() => owner,
            (owners, _) => {
                let is_here = owners.is_empty();
                let pause = if is_here {
                    retry::TAKEOVER
                } else {
                    retry::OWNED_DISK
                };
                let waits = |skip| {
                    let pv = None;
                    Waits { skip, pause, pv }
                };
                return Ok(others.skip(&volume.path).map(waits));
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
        let until = |pause, why: &str, is_told: bool| Waits {
            skip: waits(&pv, volume, why),
            pause,
            pv: is_told.then(|| pv.clone()),
        };
        if let Err(why) = is_takeable(&settings, &node, &pv, volume) {
            // The disk may be attached to both nodes, and all may be well there.
            return Ok(Some(until(retry::OWNED_DISK, &why, false)));
        }
        let former = self.former_node(&pv, &node).await?;
        if let Err(why) = is_fenced(&node, &pv, volume, &former) {
            // While a pod of it is left, its claim does not wait for anything.
            return Ok(Some(until(retry::TAKEOVER, &why, former.pod.is_none())));
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
        expectations.expect(taken);
        Ok(None)
    }

    /// Reads what is known of the node of a PV, and of the Pods that may use its disk there.
    async fn former_node(&self, pv: &PvView, node: &NodeView) -> Result<FormerNode, ApiError> {
        let cluster = &self.context.cluster;
        let by = pv.provisioned_by.as_deref().unwrap_or_default();
        let hostname = pv.hostname_label.as_deref().unwrap_or_default();
        let names = nodes_of_provisioner(by);
        let nodes = cluster.tainted_nodes(&names, hostname, TAINT_OUT_OF_SERVICE);
        let nodes = nodes.await?;
        let Some(claim) = &pv.claim else {
            return Ok(FormerNode { nodes, pod: None });
        };
        let pods = cluster.pods_of_claim(claim).await?;
        let is_elsewhere = |pod: &PodView| !pod.node.is_empty() && pod.node != node.name;
        let pod = pods.into_iter().find(is_elsewhere);
        Ok(FormerNode {
            nodes,
            pod: pod.map(|pod| (pod.name, pod.node)),
        })
    }
}
