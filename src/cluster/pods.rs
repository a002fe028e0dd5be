//! The requests about Pods and DaemonSets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Pod as FullPod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::pvs::PVS;
use super::retries::POD_STATUS;
use super::{ApiError, Cluster, only};
use crate::names::LABEL_JOB_PV_UID;
use crate::view::{ClaimRef, Partial, PersistentVolume};

/// The environment variable that only provisioners have, ours and the Go program.
pub(crate) const JOB_IMAGE_VARIABLE: &str = "JOB_CONTAINER_IMAGE";

/// A Pod, as far as it is read.
type Pod = Partial<FullPod, PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    containers: Vec<Container>,
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    #[serde(default)]
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Deserialize)]
struct Variable {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    host_path: Option<HostPathVolumeSource>,
    ephemeral: Option<IgnoredAny>,
}

/// The paths of PVs by the UID of a Pod and the name of its claim, whose binding does not change while the Pod runs.
pub(super) type ClaimedPaths = BTreeMap<(String, String), Option<PathBuf>>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    start_time: Option<Time>,
}

/// A Pod: who uses which volumes, and whether it is a provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// The UID.
    pub uid: String,
    /// `namespace/name`.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The node, or empty while it has none.
    pub node: String,
    /// Whether it has ended: Succeeded or Failed.
    pub terminal: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When the kubelet started it, or else when it was created.
    pub started: Option<Timestamp>,
    /// The names of the claims that it uses.
    pub claims: Vec<String>,
    /// The paths of the node that it mounts; by a claim only after [`Cluster::add_claimed_paths`].
    pub host_paths: Vec<PathBuf>,
    /// The DaemonSet that owns it, which may be gone.
    pub daemon_set: Option<String>,
    /// Of a cleaning Job: the UID of its PV.
    pub job_pv_uid: Option<String>,
    /// Whether one of its containers has the variable of a provisioner.
    pub is_provisioner: bool,
}

impl Cluster {
    /// Lists the `wanted` Pods of a namespace, or of all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods(
        &self,
        namespace: Option<&str>,
        params: ListParams,
        wanted: impl Fn(&PodView) -> bool,
    ) -> Result<Vec<PodView>, ApiError> {
        let api: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let keep = |pod: Pod| Some(view(&pod)).filter(&wanted);
        self.list_pages("pods", api, params, keep).await
    }

    /// Lists the Pods of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of(&self, node: &str) -> Result<Vec<PodView>, ApiError> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.pods(None, params, |_| true).await
    }

    /// Lists the Pods that use a claim and have not ended.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of_claim(&self, claim: &ClaimRef) -> Result<Vec<PodView>, ApiError> {
        let uses_it = |pod: &PodView| !pod.terminal && pod.claims.contains(&claim.name);
        let namespace = Some(claim.namespace.as_str());
        self.pods(namespace, ListParams::default(), uses_it).await
    }

    /// Deletes a Pod, with its own grace period.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_pod(&self, pod: &PodView) -> Result<(), ApiError> {
        let (_, name) = pod.name.split_once('/').unwrap_or(("", &pod.name));
        let api: Api<FullPod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let params = DeleteParams::default().preconditions(only(&pod.uid, None));
        let deleted = api.delete(name, &params);
        self.limited("pods", "delete", deleted).await.map(drop)
    }

    /// Reads a DaemonSet's metadata.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn daemon_set(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ObjectMeta>, ApiError> {
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        let found = self.find("daemonsets.apps", api.get_metadata_opt(name));
        Ok(found.await?.map(|set| set.metadata))
    }

    /// Reads `/status` of a provisioner, `namespace/name`, through the API server. The API server connects to the
    /// first port in the Pod's template.
    ///
    /// # Errors
    /// [`ApiError`], also when the API server cannot reach the pod.
    pub async fn provisioner_status(&self, pod: &str) -> Result<String, ApiError> {
        let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}{POD_STATUS}");
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| ApiError::Failed(error.to_string()))?;
        let answer = self.client.request_text(request);
        self.limited("pods/proxy", "get", answer).await
    }

    /// Adds the paths of the hostPath and local PVs whose claims these Pods of the node use. The `known` claims have
    /// other volumes.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn add_claimed_paths(
        &self,
        pods: &mut [PodView],
        known: &BTreeSet<ClaimRef>,
    ) -> Result<(), ApiError> {
        let uids: BTreeSet<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        self.claimed.lock().retain(|(uid, _), _| uids.contains(uid));
        for pod in pods.iter_mut().filter(|pod| !pod.terminal) {
            for name in &pod.claims {
                let key = (pod.uid.clone(), name.clone());
                let claim =
                    ClaimRef { namespace: pod.namespace.clone(), name: name.clone(), uid: None };
                if known.contains(&claim) {
                    continue;
                }
                let cached = self.claimed.lock().get(&key).cloned();
                let path = match cached {
                    Some(path) => path,
                    None => match self.path_of_claim(&claim).await {
                        Ok(Some(path)) => {
                            self.claimed.lock().insert(key, path.clone());
                            path
                        }
                        Ok(None) | Err(ApiError::Forbidden { .. }) => continue,
                        Err(error) => return Err(error),
                    },
                };
                pod.host_paths.extend(path);
            }
        }
        Ok(())
    }

    /// The path of the PV of a claim, if that has one. `None`: the claim is not bound.
    async fn path_of_claim(&self, claim: &ClaimRef) -> Result<Option<Option<PathBuf>>, ApiError> {
        let Some(volume) = self.claim(claim).await?.and_then(|claim| claim.volume) else {
            return Ok(None);
        };
        let pvs: Api<PersistentVolume> = Api::all(self.client.clone());
        let found = self.limited(PVS, "get", pvs.get_opt(&volume)).await?;
        Ok(found.map(|PersistentVolume { spec, .. }| {
            let local = spec.local.map(|local| local.path);
            let path = spec.host_path.map(|it| it.path).or(local);
            path.map(PathBuf::from)
        }))
    }
}

fn view(pod: &Pod) -> PodView {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let volumes = || pod.spec.volumes.iter();
    let claim_of = |volume: &Volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        // A generic ephemeral volume's claim is named after the Pod and the volume.
        None => volume.ephemeral.map(|_| format!("{name}-{}", volume.name)),
    };
    let host_path_of = |volume: &Volume| Some(volume.host_path.as_ref()?.path.clone().into());
    let created = pod.metadata.creation_timestamp.as_ref();
    let started = pod.status.start_time.as_ref().or(created);
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|it| it.controller == Some(true) && it.kind == "DaemonSet");
    let mut variables = pod.spec.containers.iter().flat_map(|it| &it.env);
    PodView {
        uid: pod.uid().unwrap_or_default(),
        name: format!("{namespace}/{name}"),
        namespace,
        node: pod.spec.node_name.clone().unwrap_or_default(),
        terminal: matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")),
        created: created.map(|time| time.0),
        started: started.map(|time| time.0),
        claims: volumes().filter_map(claim_of).collect(),
        host_paths: volumes().filter_map(host_path_of).collect(),
        daemon_set: owner.map(|owner| owner.name.clone()),
        job_pv_uid: pod.labels().get(LABEL_JOB_PV_UID).cloned(),
        is_provisioner: variables.any(|it| it.name == JOB_IMAGE_VARIABLE),
    }
}
