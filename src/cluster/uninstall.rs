//! The requests of `release` and `status` about DaemonSets, Nodes and provisioners.

use std::collections::BTreeSet;

use http::Request;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, ObjectMeta};

use super::{ApiError, Cluster};

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
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/proxy/status");
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| ApiError::Failed(error.to_string()))?;
        let answer = self.client.request_text(request);
        self.limited("pods/proxy", "get", answer).await
    }

    /// The Nodes with this name, or with this value of a label.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn nodes_known_as(&self, label: &str, name: &str) -> Result<Vec<String>, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let by_name = self.limited("nodes", "get", api.get_metadata_opt(name));
        let params = ListParams::default().labels(&format!("{label}={name}"));
        let by_label = self.limited("nodes", "list", api.list_metadata(&params));
        let found = by_name.await?.into_iter().chain(by_label.await?.items);
        let names: BTreeSet<_> = found.filter_map(|node| node.metadata.name).collect();
        Ok(names.into_iter().collect())
    }
}
