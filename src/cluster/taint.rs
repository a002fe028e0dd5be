//! Taking a taint off our Node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::view::NodeView;

const NODES: &str = "nodes";

impl Cluster {
    /// Takes all taints of a key off a Node, whatever their effects, and returns whether there were any.
    /// Without any nothing is written.
    ///
    /// The taints are one list, which others write to as well. So the request names the list that was
    /// read, in full, and the API server refuses it if that has changed: nobody's taint is lost.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if the list has changed, or it is another Node by now.
    pub async fn take_taint_off(&self, node: &NodeView, key: &str) -> Result<bool, ApiError> {
        // As the API server wrote it, with fields that this program has never heard of.
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        let found = self.limited(NODES, "get", api.get(&node.name)).await?;
        if found.metadata.uid.as_deref() != Some(&node.uid) {
            return Err(ApiError::Conflict);
        }
        let taints = found.data["spec"]["taints"].as_array();
        let Some(operations) = operations(&node.uid, taints.map_or(&[], Vec::as_slice), key) else {
            return Ok(false);
        };
        let operations = serde_json::from_value(operations)
            .map_err(|error| ApiError::Failed(error.to_string()))?;
        let (params, patch) = (PatchParams::default(), Patch::Json::<Value>(operations));
        let patched = async {
            let patched = api.patch(&node.name, &params, &patch).await;
            patched.map_err(conflict_if_refused)
        };
        self.limited(NODES, "patch", patched).await?;
        Ok(true)
    }
}

/// The JSON patch that takes the taints of a key out of a list; `None` if there are none.
fn operations(uid: &str, taints: &[Value], key: &str) -> Option<Value> {
    let others: Vec<_> = taints.iter().filter(|taint| taint["key"] != key).collect();
    if others.len() == taints.len() {
        return None;
    }
    let path = "/spec/taints";
    let change = if others.is_empty() {
        json!({ "op": "remove", "path": path })
    } else {
        json!({ "op": "replace", "path": path, "value": others })
    };
    Some(json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": path, "value": taints },
        change,
    ]))
}

/// A `test` that fails is answered with 422.
fn conflict_if_refused(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(mut status) if status.code == 422 => {
            (status.code, status.reason) = (409, "Conflict".into());
            kube::Error::Api(status)
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_all_that_was_read_and_keeps_all_but_the_key() {
        let of = |key, effect| json!({ "key": key, "effect": effect });
        let (ours, evicting) = (of("ours", "NoSchedule"), of("ours", "NoExecute"));
        // Whatever later versions of Kubernetes put there.
        let other = json!({ "key": "other", "effect": "NoSchedule", "timeAdded": "now", "new": 1 });
        for (situation, taints, left) in [
            ("none at all", vec![], None),
            ("not ours", vec![other.clone()], None),
            (
                "a key that begins alike",
                vec![of("ours-too", "NoSchedule")],
                None,
            ),
            ("ours alone", vec![ours.clone()], Some(vec![])),
            (
                "two effects",
                vec![ours.clone(), other.clone(), evicting.clone()],
                Some(vec![other.clone()]),
            ),
            (
                "the others keep their order",
                vec![other.clone(), ours.clone(), of("a", "NoSchedule")],
                Some(vec![other.clone(), of("a", "NoSchedule")]),
            ),
        ] {
            let expected = left.map(|left| {
                let change = if left.is_empty() {
                    json!({ "op": "remove", "path": "/spec/taints" })
                } else {
                    json!({ "op": "replace", "path": "/spec/taints", "value": left })
                };
                json!([
                    { "op": "test", "path": "/metadata/uid", "value": "uid" },
                    { "op": "test", "path": "/spec/taints", "value": taints },
                    change,
                ])
            });
            assert_eq!(operations("uid", &taints, "ours"), expected, "{situation}");
        }
    }
}
