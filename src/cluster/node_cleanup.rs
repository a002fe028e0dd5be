//! The requests of `node-cleanup` about claims and Nodes.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};

use super::pvs::PVS;
use super::{ApiError, Cluster};
use crate::view::ClaimRef;

const CLAIMS: &str = "persistentvolumeclaims";

/// The fields of a claim that its deletion requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    /// The UID.
    pub uid: String,
    /// The version.
    pub resource_version: String,
    /// `spec.volumeName`.
    pub volume: String,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl Cluster {
    /// Reads a PV with all fields.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn whole_pv(&self, name: &str) -> Result<Option<PersistentVolume>, ApiError> {
        self.limited(PVS, "get", self.pvs().get_opt(name)).await
    }

    /// Reads a claim.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn bound_claim(&self, claim: &ClaimRef) -> Result<Option<BoundClaim>, ApiError> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace);
        let found = self
            .limited(CLAIMS, "get", api.get_opt(&claim.name))
            .await?;
        Ok(found.map(|claim| BoundClaim {
            uid: claim.metadata.uid.unwrap_or_default(),
            resource_version: claim.metadata.resource_version.unwrap_or_default(),
            volume: claim
                .spec
                .and_then(|spec| spec.volume_name)
                .unwrap_or_default(),
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }))
    }

    /// Deletes a claim, if it still has the UID and the version that was read.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_claim(&self, claim: &ClaimRef, seen: &BoundClaim) -> Result<(), ApiError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(seen.uid.clone()),
            resource_version: Some(seen.resource_version.clone()),
        });
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace);
        let delete = api.delete(&claim.name, &params);
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
