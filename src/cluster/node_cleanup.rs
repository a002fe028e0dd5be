//! The requests of `node-cleanup` about claims and Nodes.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use super::{ApiError, CLAIMS, ClaimView, Cluster, only};
use crate::view::ClaimRef;

impl Cluster {
    /// Deletes a claim, if it still has the UID and the version that was read.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_claim(&self, claim: &ClaimRef, seen: &ClaimView) -> Result<(), ApiError> {
        let claims = self.claims(claim);
        let seen = only(&seen.uid, Some(&seen.resource_version));
        let params = DeleteParams::default().preconditions(seen);
        let delete = claims.delete(&claim.name, &params);
        self.limited(CLAIMS, "delete", delete).await.map(drop)
    }

    /// Whether the API server lists any Node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn has_nodes(&self) -> Result<bool, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let params = ListParams::default().limit(1);
        let nodes = self.limited("nodes", "list", api.list_metadata(&params));
        Ok(!nodes.await?.items.is_empty())
    }
}
