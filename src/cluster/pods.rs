//! The requests about Pods.

use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Pod as FullPod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::ListParams;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ApiError, Cluster};
use crate::types::HostPath;
use crate::view::Partial;

/// A Pod, as far as it is read.
pub(super) type Pod = Partial<FullPod, PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub containers: Vec<Container>,
    volumes: Vec<Volume>,
}

/// One of its containers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub env: Vec<Variable>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Variable {
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    host_path: Option<HostPathVolumeSource>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    phase: Option<String>,
    start_time: Option<Time>,
}

/// The fields of a Pod that the gate before a wipe requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// `namespace/name`.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Whether it has ended: Succeeded or Failed.
    pub terminal: bool,
    /// When the kubelet started it, or else when it was created.
    pub started: Option<Timestamp>,
    /// The names of the claims that it uses.
    pub claims: Vec<String>,
    /// The paths of the node that it mounts.
    pub host_paths: Vec<PathBuf>,
}

impl PodView {
    /// Whether it has not ended and mounts this path of the node, or one below it.
    pub fn mounts(&self, path: &HostPath) -> bool {
        let mut mounted = self.host_paths.iter();
        !self.terminal && mounted.any(|it| it.starts_with(path.as_str()))
    }
}

impl Cluster {
    /// Lists the Pods of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of(&self, node: &str) -> Result<Vec<PodView>, ApiError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = self.limited("pods", "list", api.list(&params)).await?;
        Ok(pods.items.iter().map(pod_view).collect())
    }

    /// The Pods of a namespace, on all nodes.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn pods_in(&self, namespace: &str) -> Result<Vec<PodView>, ApiError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let keep = |pod: Pod| Some(pod_view(&pod));
        self.list_pages("pods", api, ListParams::default(), keep)
            .await
    }
}

/// Whether a Pod has ended: Succeeded or Failed.
pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn pod_view(pod: &Pod) -> PodView {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let volumes = || pod.spec.volumes.iter();
    let claim_of = |volume: &Volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        // A generic ephemeral volume's claim is named after the Pod and the volume.
        None => volume
            .ephemeral
            .as_ref()
            .map(|_| format!("{name}-{}", volume.name)),
    };
    let host_path_of = |volume: &Volume| Some(volume.host_path.as_ref()?.path.clone().into());
    let started = pod.status.start_time.as_ref();
    let started = started.or(metadata.creation_timestamp.as_ref());
    PodView {
        name: format!("{namespace}/{name}"),
        namespace,
        terminal: has_ended(pod),
        started: started.map(|time| time.0),
        claims: volumes().filter_map(claim_of).collect(),
        host_paths: volumes().filter_map(host_path_of).collect(),
    }
}
