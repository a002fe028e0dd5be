//! The requests of `release` and `status` about the DaemonSet and the Pods of provisioners.

use std::collections::BTreeSet;

use http::Request;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt};

use super::pods::{Pod, has_ended};
use super::{ApiError, Cluster};
use crate::names::{LABEL_HOSTNAME, LABEL_JOB_PV_UID};

/// The environment variable that only provisioners have, ours and the Go program.
const JOB_IMAGE_VARIABLE: &str = "JOB_CONTAINER_IMAGE";

/// A Pod that may be a provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionerPod {
    /// `namespace/name`.
    pub name: String,
    /// The node, or empty while it has none.
    pub node: String,
    /// The DaemonSet that owns it, which may be gone.
    pub daemon_set: Option<String>,
    /// Of a cleaning Job: the UID of its PV.
    pub job_pv_uid: Option<String>,
    /// Whether one of its containers has the variable of a provisioner.
    pub is_provisioner: bool,
}

impl Cluster {
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
        let found = self.limited("daemonsets.apps", "get", api.get_metadata_opt(name));
        Ok(found.await?.map(|set| set.metadata))
    }

    /// Lists running Pods, in one namespace or in all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn running_pods(
        &self,
        namespace: Option<&str>,
        wanted: impl Fn(&ProvisionerPod) -> bool,
    ) -> Result<Vec<ProvisionerPod>, ApiError> {
        let api: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let keep = |pod| {
            let running = Some(pod).filter(|pod| !has_ended(pod));
            running.map(provisioner_pod).filter(&wanted)
        };
        self.list_pages("pods", api, ListParams::default(), keep)
            .await
    }

    /// Reads `/status` of a provisioner, `namespace/name`, through the API server. The API server connects to the
    /// first port in the Pod's template.
    ///
    /// # Errors
    /// [`ApiError`], also when the API server cannot reach the pod.
    pub async fn provisioner_status(&self, pod: &str) -> Result<String, ApiError> {
        let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/proxy/status");
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| ApiError::Failed(error.to_string()))?;
        let answer = self.client.request_text(request);
        self.limited("pods/proxy", "get", answer).await
    }

    /// The Nodes with this name or hostname label.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn nodes_known_as(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let by_name = self.limited("nodes", "get", api.get_metadata_opt(name));
        let params = ListParams::default().labels(&format!("{LABEL_HOSTNAME}={name}"));
        let by_label = self.limited("nodes", "list", api.list_metadata(&params));
        let found = by_name.await?.into_iter().chain(by_label.await?.items);
        let names: BTreeSet<_> = found.filter_map(|node| node.metadata.name).collect();
        Ok(names.into_iter().collect())
    }
}

fn provisioner_pod(pod: Pod) -> ProvisionerPod {
    let namespace = pod.namespace().unwrap_or_default();
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|it| it.controller == Some(true) && it.kind == "DaemonSet");
    let mut variables = pod.spec.containers.iter().flat_map(|it| &it.env);
    ProvisionerPod {
        name: format!("{namespace}/{}", pod.name_any()),
        daemon_set: owner.map(|owner| owner.name.clone()),
        job_pv_uid: pod.labels().get(LABEL_JOB_PV_UID).cloned(),
        is_provisioner: variables.any(|it| it.name == JOB_IMAGE_VARIABLE),
        node: pod.spec.node_name.unwrap_or_default(),
    }
}
