//! Removes a taint from our Node.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::view::NodeView;

const NODES: &str = "nodes";

impl Cluster {
    /// Removes all taints of a key, with any effect, from a Node. Returns whether there was one.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Invalid`] if the Node has another UID, or its taints have changed since they were read.
    pub async fn remove_taints(&self, node: &NodeView, key: &str) -> Result<bool, ApiError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = self.limited(NODES, "get", nodes.get(&node.name)).await?;
        let taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if taints.iter().all(|taint| taint.key != key) {
            return Ok(false);
        }
        let operations = serde_json::from_value(operations(&node.uid, &taints, key));
        let operations = operations.map_err(|error| ApiError::Bug(error.to_string()))?;
        let patch: Patch<Value> = Patch::Json(operations);
        let params = PatchParams::default();
        let patched = nodes.patch(&node.name, &params, &patch);
        self.limited(NODES, "patch", patched).await?;
        Ok(true)
    }
}

/// The JSON patch that removes the taints of a key. The taints are one list with several writers: it tests that each
/// removed taint has the key, so no other taint is lost. A concurrent append causes no conflict.
fn operations(uid: &str, taints: &[Taint], key: &str) -> Value {
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    // From the end, so that a removal does not shift the next index.
    for (index, taint) in taints.iter().enumerate().rev() {
        if taint.key == key {
            let path = format!("/spec/taints/{index}");
            operations.push(json!({ "op": "test", "path": format!("{path}/key"), "value": key }));
            operations.push(json!({ "op": "remove", "path": path }));
        }
    }
    operations.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_taints_of_the_key_are_removed() {
        for (keys, places) in [
            (&[][..], &[][..]),
            (&["other", "ours-too"], &[]),
            (&["ours"], &[0]),
            // Two effects.
            (&["ours", "other", "ours"], &[2, 0]),
        ] {
            let taint = |key: &&str| Taint {
                key: (*key).to_owned(),
                ..Taint::default()
            };
            let taints: Vec<_> = keys.iter().map(taint).collect();
            let mut expected =
                vec![json!({ "op": "test", "path": "/metadata/uid", "value": "uid" })];
            for place in places {
                let path = format!("/spec/taints/{place}");
                let key = format!("{path}/key");
                expected.push(json!({ "op": "test", "path": key, "value": "ours" }));
                expected.push(json!({ "op": "remove", "path": path }));
            }
            let expected = Value::Array(expected);
            assert_eq!(operations("uid", &taints, "ours"), expected, "{keys:?}");
        }
    }
}
