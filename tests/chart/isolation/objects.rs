//! The objects and patches of the requests.

use serde_json::{Value, json};
use support::names::DEFAULT_TAINT_KEY;

use super::fixture::{CLASS, HOST_DIR, HOSTNAME};

pub fn affinity(nodes: &[&str]) -> Value {
    let expression = json!({ "key": HOSTNAME, "operator": "In", "values": nodes });
    json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] } })
}

/// A PV as the provisioner of `node` makes it; the other one makes it without the label.
pub fn pv(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { HOSTNAME: node } },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": { "path": format!("{HOST_DIR}/disk") },
            "nodeAffinity": affinity(&[node]),
        },
    })
}

pub fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

pub fn job(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "suspend": true,
            "template": {
                "spec": {
                    "restartPolicy": "OnFailure",
                    "nodeSelector": { HOSTNAME: node },
                    "serviceAccountName": "default",
                    "automountServiceAccountToken": false,
                    "imagePullSecrets": [{ "name": "registry" }],
                    "nodeName": null,
                    "containers": [{
                        "name": "cleaner",
                        "image": "none",
                        "env": [{ "name": "LOCAL_PV_BLKDEVICE", "value": "/dev/null" }],
                        "securityContext": { "privileged": true },
                    }],
                    "volumes": [{ "name": "dev", "hostPath": { "path": "/dev" } }],
                },
            },
        },
    })
}

pub fn finalizers(list: &Value) -> Value {
    json!({ "metadata": { "finalizers": list } })
}

pub fn hostname(node: &str) -> Value {
    json!({ "metadata": { "labels": { HOSTNAME: node } } })
}

pub fn take_startup_taint_off(node: &mut Value) {
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| taint["key"] != DEFAULT_TAINT_KEY);
    }
}
