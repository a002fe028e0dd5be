//! The requests of `node-cleanup`: claims, Nodes, and the lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};

use super::lost::or_look;
use super::{ApiError, Cluster, PVS};
use crate::view::ClaimRef;

const CLAIMS: &str = "persistentvolumeclaims";
const LEASES: &str = "leases.coordination.k8s.io";

/// A claim, as far as its deletion needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    /// The UID.
    pub uid: String,
    /// The version.
    pub resource_version: String,
    /// `spec.volumeName`.
    pub volume: String,
    /// Whether it is being deleted already.
    pub deleting: bool,
}

impl Cluster {
    /// Reads a PV, all of it.
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

    /// Deletes a claim, if it is still the very object and version that was looked at.
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
        let delete = async || self.limited(CLAIMS, "delete", delete).await.map(drop);
        let look = async || {
            let found = self.bound_claim(claim).await?;
            let stays = found.is_some_and(|now| now.uid == seen.uid && !now.deleting);
            Ok((!stays).then_some(()))
        };
        or_look(delete, look).await
    }

    /// Whether the API server knows of any Node at all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn has_nodes(&self) -> Result<bool, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let params = ListParams::default().limit(1);
        let nodes = self.limited("nodes", "list", api.list_metadata(&params));
        Ok(!nodes.await?.items.is_empty())
    }

    /// Reads a lease.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Lease>, ApiError> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        self.limited(LEASES, "get", api.get_opt(name)).await
    }

    /// Writes a lease: makes it if it has no version, or else replaces that version.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn write_lease(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let metadata = &lease.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        if metadata.resource_version.is_none() {
            self.limited(LEASES, "create", api.create(&params, lease))
                .await
        } else {
            self.limited(LEASES, "update", api.replace(name, &params, lease))
                .await
        }
    }
}
