//! The requests about claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{ApiError, ClaimView, Cluster, only};
use crate::names::ANNOTATION_BIND_COMPLETED;
use crate::view::ClaimRef;

const CLAIMS: &str = "persistentvolumeclaims";

impl Cluster {
    fn claims(&self, claim: &ClaimRef) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &claim.namespace)
    }

    /// Reads a claim.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn claim(&self, claim: &ClaimRef) -> Result<Option<ClaimView>, ApiError> {
        let claims = self.claims(claim);
        let found = self.find(CLAIMS, claims.get_opt(&claim.name));
        Ok(found.await?.map(view))
    }

    /// Creates a claim. That it exists already is no error.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_claim(&self, claim: &Value) -> Result<(), ApiError> {
        let namespace = claim["metadata"]["namespace"].as_str();
        let created = self.create::<PersistentVolumeClaim>(namespace, claim)?;
        match self.limited(CLAIMS, "create", created).await {
            Ok(_) | Err(ApiError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a claim, if it still has the UID and the version that was read.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_claim(&self, claim: &ClaimRef, seen: &ClaimView) -> Result<(), ApiError> {
        let seen = only(&seen.uid, Some(&seen.resource_version));
        let claims = self.claims(claim);
        let params = DeleteParams::default().preconditions(seen);
        let delete = claims.delete(&claim.name, &params);
        self.limited(CLAIMS, "delete", delete).await.map(drop)
    }
}

fn view(claim: PersistentVolumeClaim) -> ClaimView {
    let mut owners = claim.owner_references().iter();
    let of_pod = owners.find(|it| it.kind == "Pod").map(|it| it.uid.clone());
    ClaimView {
        of_pod,
        is_bound: claim.annotations().contains_key(ANNOTATION_BIND_COMPLETED),
        phase: claim.status.and_then(|status| status.phase),
        uid: claim.metadata.uid.unwrap_or_default(),
        resource_version: claim.metadata.resource_version.unwrap_or_default(),
        created: claim.metadata.creation_timestamp.map(|time| time.0),
        volume: claim.spec.and_then(|spec| spec.volume_name),
        deleting: claim.metadata.deletion_timestamp.is_some(),
    }
}
