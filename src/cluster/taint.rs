//! Removes a taint from our Node.

use k8s_openapi::api::core::v1::Node as FullNode;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::view::{NodeView, Partial};

const NODES: &str = "nodes";

type Node = Partial<FullNode, NodeSpec, IgnoredAny>;

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    /// With all their fields, since those of other keys are written back.
    #[serde(default)]
    taints: Vec<Value>,
}

impl Cluster {
    /// Removes all taints of a key, with any effect, from a Node. Returns whether there was one.
    ///
    /// The taints are one list with several writers. The patch replaces it, so it names the version that was read.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if the Node has changed meanwhile, or has another UID.
    pub async fn remove_taints(&self, node: &NodeView, key: &str) -> Result<bool, ApiError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = self.limited(NODES, "get", nodes.get(&node.name)).await?;
        let mut others = found.spec.taints.clone();
        others.retain(|taint| taint["key"] != key);
        if others.len() == found.spec.taints.len() {
            return Ok(false);
        }
        let seen = json!({ "uid": node.uid, "resourceVersion": found.metadata.resource_version });
        let patch = Patch::Merge(json!({ "metadata": seen, "spec": { "taints": others } }));
        let params = PatchParams::default();
        let patched = nodes.patch(&node.name, &params, &patch);
        self.limited(NODES, "patch", patched).await?;
        Ok(true)
    }
}
