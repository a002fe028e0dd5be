//! The DaemonSets of provisioners: whether each has a ready pod on every node that it selects, and whether two of them
//! serve the same directories.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde::Deserialize;
use serde_json::Value;

use super::findings::Findings;
use crate::cluster::{ApiError, Cluster, JOB_IMAGE_VARIABLE};
use crate::cmd::status::show::{list, text};
use crate::names::PROVISIONER_PREFIX;
use crate::plan::some_of;
use crate::view::{Affinity, NodeView, Partial};

const SELECT: &str = "label the nodes that it selects, or correct nodeSelector and tolerations in the chart's values (docs/install.md)";
/// The remedy when two provisioners serve one directory.
pub(super) const UNINSTALL: &str =
    "uninstall one of them, or give each its own directory or nodes (docs/migrate-60-nodes.md)";

/// An object with its spec and status as they are.
pub(super) type Object<K> = Partial<K, Value, Value>;

/// The DaemonSets with the pods of a provisioner, ours or the Go program.
pub(super) async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<Object<DaemonSet>>, ApiError> {
    let api: Api<Object<DaemonSet>> = match namespace {
        Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    };
    let keep = |it| Some(it).filter(is_provisioner);
    cluster.list_pages("daemonsets", api, ListParams::default(), keep).await
}

/// Whether its pods are provisioners, ours or the Go program.
pub(super) fn is_provisioner(daemon_set: &Object<DaemonSet>) -> bool {
    let mut containers = list(pod_of(daemon_set), "containers");
    containers.any(|it| list(it, "env").any(|it| text(it, "name") == JOB_IMAGE_VARIABLE))
}

pub(super) fn pod_of(daemon_set: &Object<DaemonSet>) -> &Value {
    &daemon_set.spec["template"]["spec"]
}

pub(super) fn name_of(daemon_set: &Object<DaemonSet>) -> String {
    let namespace = daemon_set.namespace().unwrap_or_default();
    format!("{namespace}/{}", daemon_set.name_any())
}

/// Checks the DaemonSets and their pods.
pub(super) async fn check(cluster: &Cluster, found: &[Object<DaemonSet>], findings: &mut Findings) {
    if found.is_empty() {
        let remedy = "install the chart (docs/install.md); if it is installed, check --namespace and the kubeconfig's context";
        findings.bad("there is no DaemonSet of a provisioner", remedy);
        return;
    }
    for daemon_set in found {
        let result = rollout(cluster, daemon_set, findings).await;
        findings.require(result, "list on pods and nodes (docs/status.md)");
    }
    shared_directories(found, findings);
}

/// Whether each selected node has a ready pod of the newest template.
async fn rollout(
    cluster: &Cluster,
    daemon_set: &Object<DaemonSet>,
    findings: &mut Findings,
) -> Result<(), ApiError> {
    let name = name_of(daemon_set);
    let number = |key: &str| daemon_set.status[key].as_u64().unwrap_or_default();
    let desired = number("desiredNumberScheduled");
    let (ready, updated) = (number("numberReady"), number("updatedNumberScheduled"));
    let numbers = format!("DaemonSet {name}: {ready} of {desired} pods");
    if desired == 0 {
        findings.bad(&format!("DaemonSet {name} selects no node"), SELECT);
    } else if ready == desired && updated == desired {
        findings.good(format!("{numbers} are ready"));
    } else {
        let text = format!("{numbers} are ready, {updated} have its newest template");
        let causes = causes(cluster, daemon_set).await?;
        let remedy = match &causes[..] {
            [] => format!(
                "wait for the rollout: kubectl --namespace {} rollout status daemonset {}",
                daemon_set.namespace().unwrap_or_default(),
                daemon_set.name_any()
            ),
            causes => some_of(causes),
        };
        findings.bad(&text, &remedy);
    }
    let nodes = selected(cluster, pod_of(daemon_set)).await?;
    if !nodes.is_empty() {
        untolerated(daemon_set, &nodes, findings);
    }
    Ok(())
}

/// Why pods are not ready.
async fn causes(
    cluster: &Cluster,
    daemon_set: &Object<DaemonSet>,
) -> Result<Vec<String>, ApiError> {
    let namespace = daemon_set.namespace().unwrap_or_default();
    let api: Api<Object<Pod>> = Api::namespaced(cluster.client.clone(), &namespace);
    let name = daemon_set.name_any();
    let is_of = |pod: &Object<Pod>| pod.owner_references().iter().any(|it| it.name == name);
    let pods =
        cluster.list_pages("pods", api, ListParams::default(), |pod| Some(pod).filter(is_of));
    Ok(pods.await?.iter().filter_map(cause).collect())
}

/// Why a pod is not ready, with the command that says more.
fn cause(pod: &Object<Pod>) -> Option<String> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let node = text(&pod.spec, "nodeName");
    let mut statuses =
        list(&pod.status, "initContainerStatuses").chain(list(&pod.status, "containerStatuses"));
    let waiting = statuses.find_map(|it| it["state"].get("waiting"));
    let condition = |kind: &str, status: &str| {
        let mut conditions = list(&pod.status, "conditions");
        conditions.find(|it| text(it, "type") == kind && text(it, "status") == status)
    };
    if let Some(waiting) = waiting {
        let (reason, message) = (text(waiting, "reason"), text(waiting, "message"));
        let log = match reason {
            "CrashLoopBackOff" => "logs --previous",
            _ => "describe pod",
        };
        return Some(format!(
            "node {node}: {reason} {message} (kubectl --namespace {namespace} {log} {name})"
        ));
    }
    if let Some(unscheduled) = condition("PodScheduled", "False") {
        return Some(format!("pod {name}: {}", text(unscheduled, "message")));
    }
    let is_unready = condition("Ready", "True").is_none();
    is_unready
        .then(|| format!("node {node}: not ready (kubectl --namespace {namespace} logs {name})"))
}

/// Reports a DaemonSet that selects no node, or none whose taints it tolerates; and each node with such a taint, if it
/// selects some of the nodes. Otherwise the taint of a control plane keeps it away on purpose.
pub(super) fn untolerated(
    daemon_set: &Object<DaemonSet>,
    nodes: &[Selected],
    findings: &mut Findings,
) {
    let (name, pod) = (name_of(daemon_set), pod_of(daemon_set));
    let tainted = |(node, taint): &Selected| Some(format!("{node} ({})", taint.as_ref()?));
    let tainted: Vec<_> = nodes.iter().filter_map(tainted).collect();
    let mut labels = pod["nodeSelector"].as_object().into_iter().flatten();
    let is_selective = !required_terms(pod).is_null()
        || labels.any(|(key, _)| key != "kubernetes.io/os" && key != "kubernetes.io/arch");
    if nodes.is_empty() {
        findings.bad(&format!("DaemonSet {name} selects no node"), SELECT);
    } else if tainted.len() == nodes.len() || (is_selective && !tainted.is_empty()) {
        let text = format!("DaemonSet {name} does not tolerate a taint of {}", some_of(&tainted));
        let remedy = "add the toleration to the chart's values (tolerations), or remove the taint";
        findings.bad(&text, remedy);
    }
}

fn required_terms(pod: &Value) -> &Value {
    let affinity = &pod["affinity"]["nodeAffinity"];
    &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
}

/// A node that a pod selects, and the key of a taint that the pod does not tolerate.
pub(super) type Selected = (String, Option<String>);

/// The nodes that a pod selects.
pub(super) async fn selected(cluster: &Cluster, pod: &Value) -> Result<Vec<Selected>, ApiError> {
    let api: Api<Object<Node>> = Api::all(cluster.client.clone());
    let selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let labels: Vec<_> = selector
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let params = ListParams::default().labels(&labels.join(","));
    let terms: Option<Vec<NodeSelectorTerm>> =
        Option::deserialize(required_terms(pod)).ok().flatten();
    let affinity = terms.map_or(Affinity::AnyNode, Affinity::Terms);
    let select = |node: Object<Node>| {
        let view = NodeView::from_metadata(&node.metadata);
        if !view.map_or(affinity == Affinity::AnyNode, |it| affinity.allows(&it)) {
            return None;
        }
        // The DaemonSet controller adds tolerations of what it knows.
        let is_hard = |it: &&Value| {
            text(it, "effect") != "PreferNoSchedule"
                && !text(it, "key").starts_with("node.kubernetes.io/")
        };
        let mut taints = list(&node.spec, "taints").filter(is_hard);
        let taint = taints.find(|taint| !list(pod, "tolerations").any(|it| tolerates(it, taint)));
        Some((node.name_any(), taint.map(|it| text(it, "key").to_owned())))
    };
    cluster.list_pages("nodes", api, params, select).await
}

/// Whether a toleration matches a taint.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let key = text(toleration, "key");
    let effect = text(toleration, "effect");
    let has_key = key.is_empty() || key == text(taint, "key");
    let has_effect = effect.is_empty() || effect == text(taint, "effect");
    let exists = text(toleration, "operator") == "Exists";
    let has_value = exists || text(toleration, "value") == text(taint, "value");
    has_key && has_effect && has_value
}

/// The directories of the host that a provisioner serves, by its volumes.
pub(super) fn directories(pod: &Value) -> impl Iterator<Item = &str> {
    let paths = list(pod, "volumes").map(|it| text(&it["hostPath"], "path").trim_end_matches('/'));
    paths.filter(|path| {
        // These show the host to each provisioner.
        let is_of_host = ["/dev", "/run", "/proc", "/sys", "/var/lib/kubelet"];
        let is_of_host = is_of_host.iter().any(|dir| path.starts_with(dir));
        !path.is_empty() && !is_of_host && !path.contains(PROVISIONER_PREFIX)
    })
}

/// Reports directories of the host that two DaemonSets serve.
fn shared_directories(found: &[Object<DaemonSet>], findings: &mut Findings) {
    let mut served: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for daemon_set in found {
        let pod = pod_of(daemon_set);
        let selector = format!("{}{}", pod["nodeSelector"], pod["affinity"]["nodeAffinity"]);
        for path in directories(pod) {
            let key = (path, selector.clone());
            served.entry(key).or_default().insert(name_of(daemon_set));
        }
    }
    for ((path, _), names) in served.iter().filter(|(_, names)| names.len() > 1) {
        let names: Vec<_> = names.iter().collect();
        let text = format!("{path} is served by {}", some_of(&names));
        findings.bad(&text, UNINSTALL);
    }
}
