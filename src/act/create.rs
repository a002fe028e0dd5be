//! Creates PVs. After an error, the next pass decides again.

use kube::api::ListParams;

use super::Execution;
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::inventory::Skip;
use crate::names::pv_name_of_offer;
use crate::plan::PvDraft;
use crate::retry;
use crate::types::{HostPath, SkipReason};
use crate::view::{ClaimRef, PvView};

impl Execution {
    /// Creates a PV, unless one of its volume exists, here or on another node.
    pub(super) async fn create(&self, draft: &PvDraft) -> Result<(), ApiError> {
        if self.context.state.borrow().node.hostname != draft.hostname {
            return Ok(());
        }
        if let Some(owner) = draft.object["metadata"]["ownerReferences"][0]["uid"].as_str() {
            self.ensure_node_is(owner).await?;
        }
        let (first, second) = (&draft.name, &draft.second_name);
        // An unlabelled PV of this volume may have the second name. The watch does not show it.
        if first != second && self.find(second, &draft.volume.path).await? == Some(true) {
            return Ok(());
        }
        if let Some(others) = self.offered_elsewhere(draft).await? {
            let wait = |skip, pause| self.refuse(draft, skip, pause);
            return self.take_over(&others, &draft.volume, wait).await;
        }
        let token = draft.mark.as_ref().map(|it| &it.mark.token);
        if let Some(claim) = &draft.claim
            && let Some(other) = self.pv_of_claim(claim, token).await?
        {
            let path = &draft.volume.path;
            let detail = format!(
                "{path} is not adopted: PV {other} names the claim of its mark; delete that claim if it has no data yet, and create it again later"
            );
            let skip = Skip::new(SkipReason::Dirty, detail);
            self.refuse(draft, skip, retry::CLAIM);
            return Ok(());
        }
        // A write that fails may have an effect.
        if let Some(token) = token {
            self.context.table.facts().begin_offer(token);
        }
        if let Some(write) = &draft.mark
            && let Err(why) = self.write_mark(write).await
        {
            let skip = Skip::new(SkipReason::Unreadable, why);
            self.refuse(draft, skip, retry::MARK);
            return Ok(());
        }
        let table = &self.context.table;
        table.facts().refusals.remove(&draft.volume.path);
        let mut pv = draft.object.clone();
        let third = token.map(|it| pv_name_of_offer(it));
        for name in [first, second].into_iter().chain(&third) {
            pv["metadata"]["name"] = name.as_str().into();
            crash_point("create-pv");
            match self.context.cluster.create_pv(&pv).await {
                Ok(view) => {
                    self.expectations.expect(view);
                    table.facts().end_offers(token);
                    let metrics = &self.context.metrics;
                    let mode = draft.volume.class.volume_mode.as_str();
                    metrics.discovery_total.with_label_values(&[mode]).inc();
                    let duration = metrics.discovery_duration.with_label_values(&[mode]);
                    duration.observe(self.begun.elapsed().as_secs_f64());
                    let claim = draft.claim.as_ref().map(tracing::field::display);
                    tracing::info!(
                        pv = name,
                        claim,
                        class = draft.volume.class.name,
                        "created a PersistentVolume"
                    );
                    return Ok(());
                }
                Err(ApiError::Conflict) => {
                    if self.find(name, &draft.volume.path).await? != Some(false) {
                        table.facts().end_offers(token);
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::Invalid(format!(
            "the names {first} and {second} belong to PVs of other volumes; rename the entry {}",
            draft.volume.path
        )))
    }

    /// A PV of any node and driver that names a claim, other than that of this offer. No claim may get data that is not its
    /// latest.
    async fn pv_of_claim(
        &self,
        claim: &ClaimRef,
        token: Option<&String>,
    ) -> Result<Option<String>, ApiError> {
        let is_other = |pv: &PvView| {
            let named = pv.claim.as_ref().is_some_and(|it| it.to_string() == claim.to_string());
            named && (pv.offer.is_none() || pv.offer.as_ref() != token)
        };
        let cluster = &self.context.cluster;
        let pvs = cluster.pvs_in_pages(ListParams::default(), is_other);
        Ok(pvs.await?.pop().map(|pv| pv.name))
    }

    /// Whether the PV of a name is of the volume at a path, whether or not this provisioner created it. Then it is cached,
    /// so that the next pass sees it. `None`: there is no such PV.
    pub(super) async fn find(&self, name: &str, path: &HostPath) -> Result<Option<bool>, ApiError> {
        let Some(pv) = self.context.cluster.pv(name).await? else {
            return Ok(None);
        };
        let is_here = pv.is_local_to(&self.context.state.borrow().node);
        let is_same = is_here && pv.path() == Some(path);
        if is_same {
            self.expectations.expect(pv);
        }
        Ok(Some(is_same))
    }
}
