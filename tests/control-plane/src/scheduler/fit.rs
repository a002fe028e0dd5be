//! Whether a node suits a pod, apart from volumes that are yet to be chosen.

use serde_json::{Value, json};

use crate::controllers::{
    object::{Node, Pod, Volume, items, text},
    selector,
};

/// Labels of a volume that its node has to have as well, with their older names.
const TOPOLOGY: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

/// Why the pod cannot run on the node, whatever its volumes.
pub(super) fn obstacle(pod: &Pod, node: &Node) -> Option<&'static str> {
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
    let mut wanted = pod["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten();
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let mismatch = wanted.any(|(key, value)| labels[key] != *value)
        || required.is_object() && !selector::selects_node(required, node);
    mismatch.then_some("node(s) didn't match Pod's node affinity/selector")
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let any_effect = text(&toleration["effect"]).is_empty();
    let key = text(&toleration["key"]);
    let exists = toleration["operator"] == "Exists";
    (any_effect || toleration["effect"] == taint["effect"])
        && (key.is_empty() && exists || key == text(&taint["key"]))
        && (exists || text(&toleration["value"]) == text(&taint["value"]))
}

/// Whether the zone and region that a volume is labelled with are the node's. A node that says
/// nothing about them will do: there may be a single zone only.
pub(super) fn is_in_zone(volume: &Volume, node: &Node) -> bool {
    let labels = &node["metadata"]["labels"];
    if TOPOLOGY.iter().all(|(key, _)| labels[key].is_null()) {
        return true;
    }
    TOPOLOGY.iter().all(|(key, newer)| {
        let Some(zones) = volume["metadata"]["labels"][key].as_str() else {
            return true;
        };
        let of_node = labels[key].as_str().or_else(|| labels[newer].as_str());
        // A volume may be in several.
        of_node.is_some_and(|zone| zones.split("__").any(|one| one == zone))
    })
}

/// Whether a class lets its volumes be made for this node (`allowedTopologies`): one of the terms
/// matches, or there is none.
pub(super) fn is_allowed(class: &Value, node: &Node) -> bool {
    let labels = &node["metadata"]["labels"];
    let matches = |expression: &Value| {
        let label = &labels[text(&expression["key"])];
        items(&expression["values"]).any(|value| value == label)
    };
    let mut terms = items(&class["allowedTopologies"]).peekable();
    terms.peek().is_none() || terms.any(|term| items(&term["matchLabelExpressions"]).all(matches))
}
