//! Claims that do not rest: the binder looks at a claim when the claim changes, and else every 15 s.
//! In a busy cluster, somebody always touches something.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::leftovers::namespace;

const EVERY: Duration = Duration::from_millis(200);
const TOUCHED: &str = "local-volume-provisioner.test/touched";

/// Touches the stage's pending claims until it is aborted.
pub async fn claims(client: Client, id: String) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &namespace(&id));
    for round in 0_u64.. {
        tokio::time::sleep(EVERY).await;
        let Ok(found) = claims.list(&ListParams::default()).await else {
            continue;
        };
        let is_pending = |claim: &PersistentVolumeClaim| {
            let phase = claim
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase == Some("Pending") && claim.metadata.deletion_timestamp.is_none()
        };
        for claim in found.items.iter().filter(|claim| is_pending(claim)) {
            let touch = json!({ "metadata": {
                // Not another claim of the same name.
                "uid": claim.metadata.uid,
                "annotations": { TOUCHED: round.to_string() },
            } });
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            // It may be gone, or bound, by now.
            let _ = claims
                .patch(name, &PatchParams::default(), &Patch::Merge(touch))
                .await;
        }
    }
}
