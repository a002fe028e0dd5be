//! Whether a node suits a pod, apart from its volumes. The reasons are those of kube-scheduler.

use serde_json::{Value, json};

use crate::controllers::{
    object::{Node, Pod, items, text},
    selector,
};

/// The first reason why the node does not suit the pod.
pub(super) fn mismatch(node: &Node, pod: &Pod) -> Option<&'static str> {
    let tolerates = |taint: &Value| items(&pod["spec"]["tolerations"]).any(|t| tolerates(t, taint));
    let cordoned = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    if node["spec"]["unschedulable"] == true && !tolerates(&cordoned) {
        return Some("node(s) were unschedulable");
    }
    let repels = |taint: &Value| taint["effect"] != "PreferNoSchedule" && !tolerates(taint);
    if items(&node["spec"]["taints"]).any(repels) {
        return Some("node(s) had untolerated taint(s)");
    }
    let labels = &node["metadata"]["labels"];
    let wanted = pod["spec"]["nodeSelector"].as_object();
    let mut wanted = wanted.into_iter().flatten();
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let matches = wanted.all(|(key, value)| labels[key] == *value)
        && (required.is_null() || selector::selects_node(required, node));
    (!matches).then_some("node(s) didn't match Pod's node affinity/selector")
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let any_effect = text(&toleration["effect"]).is_empty();
    let key = text(&toleration["key"]);
    let exists = toleration["operator"] == "Exists";
    (any_effect || toleration["effect"] == taint["effect"])
        && (key.is_empty() && exists || key == text(&taint["key"]))
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
}
