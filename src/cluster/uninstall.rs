//! The requests of `release`: the DaemonSet, its Pods, and the PVs that our finalizer holds.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::Selector;

use super::{ApiError, Cluster};
use crate::names::LABEL_HOSTNAME;
use crate::view::PvView;

const DAEMON_SETS: &str = "daemonsets.apps";
/// The variable that every provisioner's container has, the Go program's too.
const NODE_NAME_VARIABLE: &str = "MY_NODE_NAME";

/// A DaemonSet, as far as its deletion needs it.
#[derive(Clone, Debug)]
pub struct DaemonSetView {
    /// The UID.
    pub uid: String,
    /// Which Pods may be its own.
    pub selector: Selector,
    /// Whether it is being deleted already.
    pub deleting: bool,
}

/// A Pod that may be a provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionerPod {
    /// The name.
    pub name: String,
    /// The node, or empty while it has none.
    pub node: String,
    /// The UID of the controller that made it.
    pub owner_uid: Option<String>,
    /// Whether one of its containers is told its node's name as provisioners are.
    pub knows_its_node: bool,
}

impl Cluster {
    /// Reads a DaemonSet.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn daemon_set(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DaemonSetView>, ApiError> {
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        let found = self.limited(DAEMON_SETS, "get", api.get_opt(name)).await?;
        let Some(set) = found else { return Ok(None) };
        let selector = set.spec.map(|spec| spec.selector).unwrap_or_default();
        let selector = Selector::try_from(selector)
            .map_err(|error| ApiError::Failed(format!("its selector cannot be read: {error}")))?;
        Ok(Some(DaemonSetView {
            uid: set.metadata.uid.unwrap_or_default(),
            selector,
            deleting: set.metadata.deletion_timestamp.is_some(),
        }))
    }

    /// Deletes a DaemonSet in the foreground: its object stays until its Pods are gone, so that
    /// whoever comes later still finds which Pods to wait for.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_daemon_set(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ApiError> {
        let params = DeleteParams::foreground().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        self.limited(DAEMON_SETS, "delete", api.delete(name, &params))
            .await
            .map(drop)
    }

    /// Lists the Pods of a namespace that have not ended; with a selector, those that match.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_in(
        &self,
        namespace: &str,
        selector: Option<&Selector>,
    ) -> Result<Vec<ProvisionerPod>, ApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut params = ListParams::default();
        if let Some(selector) = selector {
            params = params.labels_from(selector);
        }
        let pods = self.limited("pods", "list", api.list(&params)).await?;
        let phase = |pod: &Pod| pod.status.as_ref()?.phase.clone();
        let ended = |pod: &Pod| matches!(phase(pod).as_deref(), Some("Succeeded" | "Failed"));
        let pods = pods.items.into_iter().filter(|pod| !ended(pod));
        Ok(pods.map(provisioner_pod).collect())
    }

    /// Lists the PVs that our finalizer is on and that are `wanted`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn held_pvs(
        &self,
        wanted: impl Fn(&PvView) -> bool,
    ) -> Result<Vec<PvView>, ApiError> {
        self.pvs_in_pages(ListParams::default(), |pv| pv.has_finalizer() && wanted(pv))
            .await
    }

    /// The names of the Nodes that are, or call themselves, so.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn nodes_known_as(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let by_name = self
            .limited("nodes", "get", api.get_metadata_opt(name))
            .await?;
        let params = ListParams::default().labels(&format!("{LABEL_HOSTNAME}={name}"));
        let by_label = self
            .limited("nodes", "list", api.list_metadata(&params))
            .await?;
        let mut names: Vec<_> = by_name
            .into_iter()
            .chain(by_label.items)
            .filter_map(|node| node.metadata.name)
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

fn provisioner_pod(pod: Pod) -> ProvisionerPod {
    let spec = pod.spec.unwrap_or_default();
    let knows_its_node = spec
        .containers
        .iter()
        .flat_map(|container| container.env.iter().flatten())
        .any(|variable| variable.name == NODE_NAME_VARIABLE);
    let owners = pod.metadata.owner_references.into_iter().flatten();
    ProvisionerPod {
        name: pod.metadata.name.unwrap_or_default(),
        node: spec.node_name.unwrap_or_default(),
        owner_uid: owners
            .filter(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid)
            .next(),
        knows_its_node,
    }
}
