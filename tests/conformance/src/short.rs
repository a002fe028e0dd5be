//! Objects in short form, with defaults for what a scenario is not about.
//!
//! Names that belong to the whole cluster are written `${name}`; the run puts its own in.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::target::Target;

/// The default class.
pub const STANDARD: &str = "standard";

type Map = BTreeMap<String, String>;

/// A class: `{}` binds at once and provisions nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Class {
    late: bool,
    provisioner: Option<String>,
    policy: Option<String>,
    expand: bool,
    default: bool,
    with: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Volume {
    size: Option<String>,
    class: Option<String>,
    modes: Option<Vec<String>>,
    policy: Option<String>,
    block: bool,
    claim: Option<String>,
    claim_uid: Option<String>,
    node: Option<String>,
    host_path: Option<String>,
    labels: Map,
    annotations: Map,
    finalizers: Vec<String>,
    with: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Claim {
    size: Option<String>,
    class: Option<String>,
    no_class: bool,
    modes: Option<Vec<String>>,
    volume: Option<String>,
    selector: Map,
    block: bool,
    annotations: Map,
    finalizers: Vec<String>,
    with: Value,
}

/// A pod that uses claims; nothing of it ever runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Pod {
    claims: Vec<String>,
    node: Option<String>,
    with: Value,
}

/// A node without a kubelet.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Node {
    labels: Map,
    with: Value,
}

pub fn is_short(kind: &str) -> bool {
    matches!(kind, "class" | "pv" | "pvc" | "pod" | "node")
}

pub fn expand(kind: &str, target: &Target, body: Value) -> Result<Value, serde_json::Error> {
    let body = if body.is_null() { json!({}) } else { body };
    let (mut object, with) = match kind {
        "class" => class(serde_json::from_value(body)?),
        "pv" => volume(serde_json::from_value(body)?),
        "pvc" => claim(serde_json::from_value(body)?),
        "pod" => pod(serde_json::from_value(body)?),
        _ => node(serde_json::from_value(body)?, &target.real_name()),
    };
    if !with.is_null() {
        json_patch::merge(&mut object, &with);
    }
    Ok(named(target, object))
}

pub fn named(target: &Target, mut object: Value) -> Value {
    if object.is_null() {
        object = json!({});
    }
    let own = json!({
        "apiVersion": target.resource.api_version(),
        "kind": target.resource.kind,
        "metadata": {"name": target.real_name()},
    });
    // What the scenario says wins, a wrong kind included: it may be about that.
    let said = std::mem::replace(&mut object, own);
    json_patch::merge(&mut object, &said);
    object
}

/// A reference to something whose name is the cluster's; an empty one stays empty.
fn cluster_name(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("${{{name}}}") }
}

fn class(class: Class) -> (Value, Value) {
    let mut annotations = Map::new();
    if class.default {
        let key = "storageclass.kubernetes.io/is-default-class";
        annotations.insert(key.into(), "true".into());
    }
    let provisioner = class.provisioner;
    let mut object = json!({
        "metadata": metadata(&Map::new(), &annotations, &[]),
        "provisioner": provisioner.as_deref().unwrap_or("kubernetes.io/no-provisioner"),
        "volumeBindingMode": if class.late { "WaitForFirstConsumer" } else { "Immediate" },
    });
    if let Some(policy) = class.policy {
        object["reclaimPolicy"] = policy.into();
    }
    if class.expand {
        object["allowVolumeExpansion"] = true.into();
    }
    (object, class.with)
}

fn volume(volume: Volume) -> (Value, Value) {
    let mut spec = json!({
        "capacity": {"storage": volume.size.as_deref().unwrap_or("1Gi")},
        "accessModes": modes(volume.modes),
        "persistentVolumeReclaimPolicy": volume.policy.as_deref().unwrap_or("Retain"),
        "volumeMode": if volume.block { "Block" } else { "Filesystem" },
    });
    let class = volume.class.as_deref().unwrap_or(STANDARD);
    if !class.is_empty() {
        spec["storageClassName"] = cluster_name(class).into();
    }
    if let Some(path) = &volume.host_path {
        spec["hostPath"] = json!({"path": path});
    } else {
        spec["local"] = json!({"path": "/conformance"});
    }
    if volume.host_path.is_none() || volume.node.is_some() {
        let node = cluster_name(volume.node.as_deref().unwrap_or("n"));
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
        ]}]}});
    }
    if let Some(claim) = &volume.claim {
        let (namespace, name) = match claim.split_once('/') {
            None => ("${ns}".to_owned(), claim.as_str()),
            Some((namespace, name)) => (cluster_name(namespace), name),
        };
        spec["claimRef"] = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": namespace, "name": name,
        });
        if let Some(uid) = volume.claim_uid {
            spec["claimRef"]["uid"] = uid.into();
        }
    }
    let metadata = metadata(&volume.labels, &volume.annotations, &volume.finalizers);
    (json!({"metadata": metadata, "spec": spec}), volume.with)
}

fn claim(claim: Claim) -> (Value, Value) {
    let mut spec = json!({
        "resources": {"requests": {"storage": claim.size.as_deref().unwrap_or("1Gi")}},
        "accessModes": modes(claim.modes),
        "volumeMode": if claim.block { "Block" } else { "Filesystem" },
    });
    if !claim.no_class {
        let class = claim.class.as_deref().unwrap_or(STANDARD);
        spec["storageClassName"] = cluster_name(class).into();
    }
    if let Some(volume) = claim.volume {
        spec["volumeName"] = cluster_name(&volume).into();
    }
    if !claim.selector.is_empty() {
        spec["selector"] = json!({"matchLabels": claim.selector});
    }
    let metadata = metadata(&Map::new(), &claim.annotations, &claim.finalizers);
    (json!({"metadata": metadata, "spec": spec}), claim.with)
}

fn pod(pod: Pod) -> (Value, Value) {
    let volumes = pod.claims.iter().enumerate().map(|(i, claim)| {
        json!({"name": format!("v{i}"), "persistentVolumeClaim": {"claimName": claim}})
    });
    let volumes: Vec<Value> = volumes.collect();
    let mut spec = json!({
        "containers": [{"name": "c", "image": "none"}],
        "volumes": volumes,
        // Only the scenario's own nodes, and those whatever their state: no kubelet tends them.
        "nodeSelector": {"conformance": "${ns}"},
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 0,
    });
    if let Some(node) = pod.node {
        spec["nodeName"] = cluster_name(&node).into();
    }
    (json!({"metadata": {}, "spec": spec}), pod.with)
}

fn node(node: Node, name: &str) -> (Value, Value) {
    let mut labels = node.labels;
    for (key, value) in [("kubernetes.io/hostname", name), ("conformance", "${ns}")] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let resources = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    let object = json!({
        "metadata": metadata(&labels, &Map::new(), &[]),
        "spec": {"taints": [{"key": "conformance", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    });
    (object, node.with)
}

fn modes(modes: Option<Vec<String>>) -> Vec<String> {
    let modes = modes.unwrap_or_else(|| vec!["RWO".into()]);
    let spelled_out = |mode: String| match mode.as_str() {
        "RWO" => "ReadWriteOnce".into(),
        "ROX" => "ReadOnlyMany".into(),
        "RWX" => "ReadWriteMany".into(),
        "RWOP" => "ReadWriteOncePod".into(),
        _ => mode,
    };
    modes.into_iter().map(spelled_out).collect()
}

fn metadata(labels: &Map, annotations: &Map, finalizers: &[String]) -> Value {
    let mut metadata = json!({});
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    if !finalizers.is_empty() {
        metadata["finalizers"] = json!(finalizers);
    }
    metadata
}
