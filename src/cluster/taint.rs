//! Taking a taint off our Node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster, json_patch};
use crate::view::NodeView;

const NODES: &str = "nodes";

impl Cluster {
    /// Takes all taints of a key off a Node, whatever their effects, and returns whether there were any.
    /// Without any nothing is written.
    ///
    /// The taints are one list, which others write to as well. So the request names each taint that goes
    /// with its place in the list, and the API server refuses it if something else is there by now:
    /// nobody's taint is lost, and whoever only adds one does not get in the way.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if the taints have changed meanwhile, or it is another Node
    /// by now.
    pub async fn take_taint_off(&self, node: &NodeView, key: &str) -> Result<bool, ApiError> {
        // As the API server wrote it, with fields that this program has never heard of.
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        let taints = self.taints(&api, node).await?;
        let Some(operations) = operations(&node.uid, &taints, key) else {
            return Ok(false);
        };
        let (params, patch) = (PatchParams::default(), json_patch(operations)?);
        let patched = api.patch(&node.name, &params, &patch);
        match self.limited(NODES, "patch", patched).await {
            Ok(_) => Ok(true),
            // A `test` that fails is answered like a policy's refusal, which is no use to try again.
            Err(ApiError::Invalid(_)) if self.taints(&api, node).await? != taints => {
                Err(ApiError::Conflict)
            }
            Err(error) => Err(error),
        }
    }

    /// The taints of the very Node that is meant, as they are.
    async fn taints(
        &self,
        api: &Api<DynamicObject>,
        node: &NodeView,
    ) -> Result<Vec<Value>, ApiError> {
        let mut found = self.limited(NODES, "get", api.get(&node.name)).await?;
        if found.metadata.uid.as_deref() != Some(&node.uid) {
            return Err(ApiError::Conflict);
        }
        match found.data["spec"]["taints"].take() {
            Value::Array(taints) => Ok(taints),
            _ => Ok(Vec::new()),
        }
    }
}

/// The JSON patch that takes the taints of a key out of a list; `None` if there are none.
fn operations(uid: &str, taints: &[Value], key: &str) -> Option<Value> {
    let ours = taints.iter().enumerate();
    // From the end, so that no place changes by what went before.
    let ours = ours.rev().filter(|(_, taint)| taint["key"] == key);
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    for (place, taint) in ours {
        let path = format!("/spec/taints/{place}");
        operations.push(json!({ "op": "test", "path": path, "value": taint }));
        operations.push(json!({ "op": "remove", "path": path }));
    }
    (operations.len() > 1).then(|| operations.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use kube::Client;

    use crate::metrics::Metrics;

    use super::*;

    /// An API server that refuses to change the Node, as a policy without a `reason` does and as a
    /// `test` that fails is answered, while the Node's taint has the value `values` say, read by read.
    async fn refused(values: [&'static str; 2]) -> ApiError {
        let reads = Arc::new(AtomicUsize::new(0));
        let read = move || {
            let value = values[reads.fetch_add(1, Ordering::Relaxed).min(1)];
            let taint = json!({ "key": "ours", "effect": "NoSchedule", "value": value });
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "uid": "u" },
                "spec": { "taints": [taint] },
            });
            std::future::ready(node.to_string())
        };
        let patch = async || {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "the policy says no", "reason": "Invalid", "code": 422,
            });
            (StatusCode::UNPROCESSABLE_ENTITY, status.to_string())
        };
        let node = get(read).patch(patch);
        let server = Router::new().route("/api/v1/nodes/n", node);
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let node = NodeView {
            name: "n".into(),
            uid: "u".into(),
            hostname: "n".into(),
            labels: [].into(),
            paused: false,
        };
        cluster.take_taint_off(&node, "ours").await.unwrap_err()
    }

    #[tokio::test]
    async fn a_refusal_is_a_conflict_only_if_the_taints_have_changed() {
        let error = refused(["a", "a"]).await;
        assert!(error.to_string().contains("the policy says no"), "{error}");
        let error = refused(["a", "b"]).await;
        assert!(matches!(error, ApiError::Conflict), "{error}");
    }

    #[test]
    fn a_patch_takes_each_taint_of_the_key_from_its_place_and_no_other() {
        let of = |key, effect| json!({ "key": key, "effect": effect });
        let (ours, evicting) = (of("ours", "NoSchedule"), of("ours", "NoExecute"));
        // Whatever later versions of Kubernetes put there.
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
            let expected = (!places.is_empty()).then_some(Value::Array(expected));
            assert_eq!(operations("uid", &taints, "ours"), expected, "{situation}");
        }
    }
}
