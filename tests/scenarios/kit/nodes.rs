//! The Node object that the provisioner serves.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use local_volume_provisioner::names::LABEL_HOSTNAME;
use serde_json::{Value, json};
use support::Stage;

fn nodes(stage: &Stage) -> Api<Node> {
    Api::all(stage.client.clone())
}

/// The UID of our Node.
pub fn node_uid(stage: &Stage) -> String {
    stage.request(nodes(stage).get(&stage.node())).metadata.uid.unwrap()
}

/// Sets (or, with null, removes) an annotation of our Node.
pub fn annotate_node(stage: &Stage, key: &str, value: impl Into<Value>) {
    patch_node(stage, &json!({ "annotations": { key: value.into() } }));
}

/// Sets the hostname label of our Node.
pub fn set_hostname_label(stage: &Stage, hostname: &str) {
    patch_node(stage, &json!({ "labels": { LABEL_HOSTNAME: hostname } }));
}

/// Sets the label `zone` of our Node.
pub fn set_zone_label(stage: &Stage, zone: &str) {
    patch_node(stage, &json!({ "labels": { "zone": zone } }));
}

fn patch_node(stage: &Stage, metadata: &Value) {
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    stage.request(nodes(stage).patch(&stage.node(), &PatchParams::default(), &patch));
}

/// Deletes our Node.
pub fn delete_node(stage: &Stage) {
    stage.request(nodes(stage).delete(&stage.node(), &DeleteParams::default()));
}

/// Registers our Node (again).
pub fn register_node(stage: &Stage) {
    stage.register_node(&stage.node(), Some(&stage.node()));
}
