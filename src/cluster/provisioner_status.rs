//! The request of `status`: a provisioner's `/status`, through the API server.

use http::Request;

use super::{ApiError, Cluster, ProvisionerPod};

impl Cluster {
    /// Reads `/status` of a provisioner.
    ///
    /// # Errors
    /// [`ApiError`], also when the API server cannot reach the pod.
    pub async fn provisioner_status(&self, pod: &ProvisionerPod) -> Result<String, ApiError> {
        let (namespace, name) = pod.name.split_once('/').unwrap_or(("", &pod.name));
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{name}:{}/proxy/status",
            pod.port
        );
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| ApiError::Failed(error.to_string()))?;
        let client = self.client().clone();
        self.limited("pods/proxy", "get", client.request_text(request))
            .await
    }
}
