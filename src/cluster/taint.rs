//! Removes a taint from our Node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::view::NodeView;

const NODES: &str = "nodes";

impl Cluster {
    /// Untyped, so that fields of later Kubernetes versions are kept.
    fn untyped_nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()))
    }

    /// Reads the taints of a Node.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if a Node of that name has another UID.
    pub async fn taints(&self, node: &NodeView) -> Result<Vec<Value>, ApiError> {
        let nodes = self.untyped_nodes();
        let mut found = self.limited(NODES, "get", nodes.get(&node.name)).await?;
        if found.metadata.uid.as_deref() != Some(&node.uid) {
            return Err(ApiError::Conflict);
        }
        match found.data["spec"]["taints"].take() {
            Value::Array(taints) => Ok(taints),
            _ => Ok(Vec::new()),
        }
    }

    /// Removes all taints of a key, with any effect, from a Node whose `taints` were read.
    ///
    /// The taints are one list with several writers. The patch tests that each removed taint is still at its index, so
    /// no other taint is lost. A concurrent append causes no conflict.
    ///
    /// # Errors
    /// [`ApiError`]; a refusal because of a changed list is [`ApiError::Invalid`].
    pub async fn remove_taints(
        &self,
        node: &NodeView,
        taints: &[Value],
        key: &str,
    ) -> Result<(), ApiError> {
        let operations = serde_json::from_value(operations(&node.uid, taints, key));
        let operations = operations.map_err(|error| ApiError::Bug(error.to_string()))?;
        let patch: Patch<Value> = Patch::Json(operations);
        let (nodes, params) = (self.untyped_nodes(), PatchParams::default());
        let patched = nodes.patch(&node.name, &params, &patch);
        self.limited(NODES, "patch", patched).await.map(drop)
    }
}

/// The JSON patch that removes the taints of a key from a list.
fn operations(uid: &str, taints: &[Value], key: &str) -> Value {
    let of_key = taints.iter().enumerate();
    // From the end, so that a removal does not shift the next index.
    let of_key = of_key.rev().filter(|(_, taint)| taint["key"] == key);
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    for (index, taint) in of_key {
        let path = format!("/spec/taints/{index}");
        operations.push(json!({ "op": "test", "path": path, "value": taint }));
        operations.push(json!({ "op": "remove", "path": path }));
    }
    operations.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_taints_of_the_key_are_removed() {
        let of = |key, effect| json!({ "key": key, "effect": effect });
        let (ours, evicting) = (of("ours", "NoSchedule"), of("ours", "NoExecute"));
        // A taint with a field of a later Kubernetes version.
        let other = json!({ "key": "other", "effect": "NoSchedule", "timeAdded": "now", "new": 1 });
        let late = json!({ "key": "ours", "effect": "NoExecute", "timeAdded": "now" });
        for (situation, taints, places) in [
            ("none at all", vec![], vec![]),
            ("not ours", vec![other.clone()], vec![]),
            (
                "a key that begins alike",
                vec![of("ours-too", "NoSchedule")],
                vec![],
            ),
            ("ours alone", vec![ours.clone()], vec![0]),
            (
                "two effects",
                vec![ours.clone(), other.clone(), evicting],
                vec![2, 0],
            ),
            ("as it was read", vec![other, late], vec![1]),
        ] {
            let mut expected =
                vec![json!({ "op": "test", "path": "/metadata/uid", "value": "uid" })];
            for place in &places {
                let path = format!("/spec/taints/{place}");
                expected.push(json!({ "op": "test", "path": path, "value": taints[*place] }));
                expected.push(json!({ "op": "remove", "path": path }));
            }
            let expected = Value::Array(expected);
            assert_eq!(operations("uid", &taints, "ours"), expected, "{situation}");
        }
    }
}
