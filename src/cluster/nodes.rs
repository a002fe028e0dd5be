//! The requests about Nodes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::names::LABEL_HOSTNAME;
use crate::view::NodeView;

const NODES: &str = "nodes";

impl Cluster {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Reads a Node's metadata.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn node(&self, name: &str) -> Result<ObjectMeta, ApiError> {
        let nodes = self.nodes();
        let found = self.limited(NODES, "get", nodes.get_metadata(name));
        Ok(found.await?.metadata)
    }

    /// Whether the API server lists any Node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn has_nodes(&self) -> Result<bool, ApiError> {
        let (nodes, params) = (self.nodes(), ListParams::default().limit(1));
        let found = self.limited(NODES, "list", nodes.list_metadata(&params));
        Ok(!found.await?.items.is_empty())
    }

    /// The Nodes with this name, or with this value of a label.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn nodes_known_as(&self, label: &str, name: &str) -> Result<Vec<String>, ApiError> {
        let nodes = self.nodes();
        let by_name = self.limited(NODES, "get", nodes.get_metadata_opt(name));
        let params = ListParams::default().labels(&format!("{label}={name}"));
        let by_label = self.limited(NODES, "list", nodes.list_metadata(&params));
        let found = by_name.await?.into_iter().chain(by_label.await?.items);
        let names: BTreeSet<_> = found.filter_map(|node| node.metadata.name).collect();
        Ok(names.into_iter().collect())
    }

    /// The Nodes with one of these names or this hostname, and whether each has a taint of this key.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tainted_nodes(
        &self,
        names: &[&str],
        hostname: &str,
        key: &str,
    ) -> Result<Vec<(String, bool)>, ApiError> {
        let nodes = self.nodes();
        let params = ListParams::default().labels(&format!("{LABEL_HOSTNAME}={hostname}"));
        let listed = self.limited(NODES, "list", nodes.list(&params)).await?;
        let mut found = listed.items;
        for name in names {
            found.extend(self.find(NODES, nodes.get_opt(name)).await?);
        }
        let found = found.into_iter().map(|node| {
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let is_tainted = taints.iter().any(|taint| taint.key == key);
            (node.metadata.name.unwrap_or_default(), is_tainted)
        });
        Ok(found.collect::<BTreeMap<_, _>>().into_iter().collect())
    }

    /// Sets labels of a Node, or (`None`) removes them.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] if the Node has another UID.
    pub async fn label_node(
        &self,
        node: &NodeView,
        labels: &BTreeMap<String, Option<String>>,
    ) -> Result<(), ApiError> {
        let metadata = json!({ "uid": node.uid, "labels": labels });
        self.patch_node(&node.name, &json!({ "metadata": metadata })).await
    }

    /// Sets annotations of a Node, or (`null`) removes them.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn annotate_node(&self, name: &str, annotations: &Value) -> Result<(), ApiError> {
        let metadata = json!({ "annotations": annotations });
        self.patch_node(name, &json!({ "metadata": metadata })).await
    }

    /// Keeps new pods away from a Node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn cordon(&self, name: &str) -> Result<(), ApiError> {
        self.patch_node(name, &json!({ "spec": { "unschedulable": true } })).await
    }

    async fn patch_node(&self, name: &str, patch: &Value) -> Result<(), ApiError> {
        let (nodes, params, patch) = (self.nodes(), PatchParams::default(), Patch::Merge(patch));
        let patched = nodes.patch_metadata(name, &params, &patch);
        self.limited(NODES, "patch", patched).await.map(drop)
    }

    /// Removes all taints of a key, with any effect, from a Node. Returns whether there was one.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Invalid`] if the Node has another UID, or its taints have changed since they were read.
    pub async fn remove_taints(&self, node: &NodeView, key: &str) -> Result<bool, ApiError> {
        let nodes = self.nodes();
        let found = self.limited(NODES, "get", nodes.get(&node.name)).await?;
        let taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if taints.iter().all(|taint| taint.key != key) {
            return Ok(false);
        }
        let operations = serde_json::from_value(operations(&node.uid, &taints, key))
            .map_err(|error| ApiError::Bug(error.to_string()))?;
        let (params, patch) = (PatchParams::default(), Patch::<Value>::Json(operations));
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
            let taint = |key: &&str| Taint { key: (*key).to_owned(), ..Taint::default() };
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
