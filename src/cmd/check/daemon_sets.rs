//! The DaemonSets of provisioners: whether each has a ready pod on every node that it selects, and whether two of them
//! serve the same directories.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::findings::Findings;
use crate::cluster::{ApiError, Cluster, JOB_IMAGE_VARIABLE};
use crate::cmd::status::show::{list, text};
use crate::errors::chain;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::some_of;
use crate::view::Partial;

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
    let is_provisioner = |it: &Object<DaemonSet>| {
        let mut containers = list(pod_of(it), "containers");
        containers.any(|it| list(it, "env").any(|it| text(it, "name") == JOB_IMAGE_VARIABLE))
    };
    let keep = |it| Some(it).filter(is_provisioner);
    cluster
        .list_pages("daemonsets", api, ListParams::default(), keep)
        .await
}

fn pod_of(daemon_set: &Object<DaemonSet>) -> &Value {
    &daemon_set.spec["template"]["spec"]
}

fn name_of(daemon_set: &Object<DaemonSet>) -> String {
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
        if let Err(error) = rollout(cluster, daemon_set, findings).await {
            findings.bad(
                &chain(&error),
                "allow list on pods and nodes (docs/status.md)",
            );
        }
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
    let [desired, ready, updated] = [
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
    ]
    .map(number);
    if desired == 0 {
        let remedy = "label the nodes that it selects, or correct nodeSelector and tolerations in the chart's values (docs/install.md)";
        findings.bad(&format!("DaemonSet {name} selects no node"), remedy);
    } else if ready == desired && updated == desired {
        findings.good(format!(
            "DaemonSet {name}: {ready} of {desired} pods are ready"
        ));
    } else {
        let text = format!(
            "DaemonSet {name}: {ready} of {desired} pods are ready, {updated} have its newest template"
        );
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
    unserved(cluster, daemon_set, findings).await
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
    let pods = cluster.list_pages("pods", api, ListParams::default(), |pod| {
        Some(pod).filter(is_of)
    });
    Ok(pods.await?.iter().filter_map(cause).collect())
}

/// Why a pod is not ready, with the command that says more.
fn cause(pod: &Object<Pod>) -> Option<String> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let node = text(&pod.spec, "nodeName");
    let statuses = ["initContainerStatuses", "containerStatuses"].into_iter();
    let waiting = statuses
        .flat_map(|key| list(&pod.status, key))
        .map(|it| &it["state"]["waiting"])
        .find(|it| it.is_object());
    let condition = |kind: &str, status: &str| {
        let mut conditions = list(&pod.status, "conditions");
        conditions.find(|it| text(it, "type") == kind && text(it, "status") == status)
    };
    if let Some(waiting) = waiting {
        let (reason, message) = (text(waiting, "reason"), text(waiting, "message"));
        let log = if reason == "CrashLoopBackOff" {
            "logs --previous"
        } else {
            "describe pod"
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

/// Reports the nodes that have the labels of the DaemonSet, but a taint that it does not tolerate.
async fn unserved(
    cluster: &Cluster,
    daemon_set: &Object<DaemonSet>,
    findings: &mut Findings,
) -> Result<(), ApiError> {
    let pod = pod_of(daemon_set);
    let selector = pod["nodeSelector"].as_object().cloned().unwrap_or_default();
    // Without a selector, the taint of a control plane keeps it away on purpose.
    if selector.is_empty() {
        return Ok(());
    }
    let api: Api<Object<Node>> = Api::all(cluster.client.clone());
    let labels = selector
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let params = ListParams::default().labels(&labels.collect::<Vec<_>>().join(","));
    let tainted = |node: Object<Node>| {
        // The DaemonSet controller adds tolerations of what it knows.
        let is_hard = |it: &&Value| {
            text(it, "effect") != "PreferNoSchedule"
                && !text(it, "key").starts_with("node.kubernetes.io/")
        };
        let mut taints = list(&node.spec, "taints").filter(is_hard);
        let taint =
            taints.find(|taint| !list(pod, "tolerations").any(|it| tolerates(it, taint)))?;
        Some(format!("{} ({})", node.name_any(), text(taint, "key")))
    };
    let nodes = cluster.list_pages("nodes", api, params, tainted).await?;
    if !nodes.is_empty() {
        let text = format!(
            "DaemonSet {} does not tolerate a taint of {}",
            name_of(daemon_set),
            some_of(&nodes)
        );
        findings.bad(
            &text,
            "add the toleration to the chart's values (tolerations), or remove the taint",
        );
    }
    Ok(())
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

/// Reports directories of the host that two DaemonSets serve.
fn shared_directories(found: &[Object<DaemonSet>], findings: &mut Findings) {
    let mut served: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for daemon_set in found {
        let pod = pod_of(daemon_set);
        let selector = format!("{}{}", pod["nodeSelector"], pod["affinity"]["nodeAffinity"]);
        for volume in list(pod, "volumes") {
            let path = text(&volume["hostPath"], "path").trim_end_matches('/');
            // These show the host to each provisioner.
            let is_of_host = ["/dev", "/run", "/proc", "/sys", "/var/lib/kubelet"];
            let is_of_host = is_of_host.iter().any(|dir| path.starts_with(dir));
            if path.is_empty() || is_of_host || path.contains(PROVISIONER_PREFIX) {
                continue;
            }
            let key = (path, selector.clone());
            served.entry(key).or_default().insert(name_of(daemon_set));
        }
    }
    for ((path, _), names) in served.iter().filter(|(_, names)| names.len() > 1) {
        let names: Vec<_> = names.iter().collect();
        let text = format!("{path} is served by {}", some_of(&names));
        findings.bad(&text, "uninstall one of them, or give each its own directory or nodes (docs/migrate-60-nodes.md)");
    }
}
