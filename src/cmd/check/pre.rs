//! `check --pre`: whether the cluster fits manifests that are not installed yet. It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::daemon_sets::{
    Object, UNINSTALL, directories, is_provisioner, name_of, pod_of, read, selected, untolerated,
};
use super::findings::{Findings, counted};
use super::{fleet, storage_classes};
use crate::cluster::{ApiError, Cluster};
use crate::cmd::manifests::Manifests;
use crate::cmd::status::show::text;
use crate::plan::some_of;

/// The label of a namespace by which the API server refuses pods.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The label with the release of an object, and the annotation that Helm adds.
const INSTANCE: &str = "app.kubernetes.io/instance";
const RELEASE: &str = "meta.helm.sh/release-name";

type Provisioner = Object<DaemonSet>;

/// Checks the manifests. `namespace` is that of DaemonSets without one.
pub(super) async fn check(
    cluster: &Cluster,
    namespace: &str,
    manifests: &Manifests,
    findings: &mut Findings,
) {
    for it in &manifests.configurations {
        let name = Some(&*it.name).filter(|it| !it.is_empty()).unwrap_or("the configuration");
        for fault in &it.faults {
            let remedy = "correct it in the values of the chart, or in the manifest";
            findings.bad(&format!("{name}: {fault}"), remedy);
        }
        if it.faults.is_empty() {
            findings.good(format!("{name} is valid"));
        }
    }
    let configs = manifests.configurations.iter().flat_map(|it| &it.config);
    let classes: BTreeMap<_, _> = configs.flat_map(|it| &it.classes).collect();
    if let Some(known) = storage_classes(cluster, findings).await {
        let planned: Vec<_> = manifests.of_kind("StorageClass").collect();
        for name in classes.keys() {
            storage_class(name, &known, &planned, findings);
        }
    }
    let mut ours: Vec<_> = manifests.of_kind("DaemonSet").filter(is_provisioner).collect();
    if ours.is_empty() {
        let text = "nodes and pod security are not checked: there is no DaemonSet of a provisioner";
        findings.not_checked(text);
    }
    let mut nodes = BTreeSet::new();
    for it in &mut ours {
        let namespace = it.metadata.namespace.get_or_insert(namespace.to_owned());
        let result = pod_security(cluster, namespace, findings).await;
        findings.require(result, "get on namespaces");
        let found = selection(cluster, it, findings).await;
        let found = findings.require(found, "list on nodes");
        nodes.extend(found.into_iter().flatten());
    }
    let dirs: Vec<_> = classes.values().map(|it| it.host_dir.as_str()).collect();
    let result = others(cluster, &ours, &nodes, &dirs, findings).await;
    findings.require(result, "list on daemonsets and nodes");
    let result = permissions(cluster, &manifests.objects, findings).await;
    findings.require(result, "create on selfsubjectaccessreviews");
}

/// Whether the StorageClass of a class exists and fits, or will be created.
fn storage_class(
    name: &str,
    known: &[StorageClass],
    planned: &[StorageClass],
    findings: &mut Findings,
) {
    let named = |them: &[StorageClass]| them.iter().find(|it| it.name_any() == name).cloned();
    let (found, planned) = (named(known), named(planned));
    let before = findings.failed();
    if let (Some(found), Some(planned)) = (&found, &planned) {
        let release = planned.labels().get(INSTANCE);
        if found.labels().get(INSTANCE) != release && found.annotations().get(RELEASE) != release {
            let text = format!("the StorageClass {name} exists, and is not of this release");
            let remedy = "keep it and remove storageClass from the class in the chart's values, or rename the class";
            findings.bad(&text, remedy);
        }
    }
    if found.is_some() || planned.is_none() {
        fleet::storage_class(name, found.as_ref(), findings);
    }
    if findings.failed() == before {
        let state = found.map_or("will be created", |_| "exists");
        findings.good(format!("the StorageClass {name} {state}"));
    }
}

/// Whether the API server admits pods with directories of the host in a namespace.
async fn pod_security(
    cluster: &Cluster,
    name: &str,
    findings: &mut Findings,
) -> Result<(), ApiError> {
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let found = api.get_opt(name);
    let found = cluster.limited("namespaces", "get", found).await?;
    let level = found.as_ref().and_then(|it| it.labels().get(POD_SECURITY));
    if let Some(level) = level.filter(|it| *it != "privileged") {
        let text =
            format!("the namespace {name} refuses the provisioner ({POD_SECURITY}: {level})");
        let remedy =
            format!("kubectl label --overwrite namespace {name} {POD_SECURITY}=privileged");
        findings.bad(&text, &remedy);
        return Ok(());
    }
    let state = match found {
        Some(_) => "admits privileged pods",
        None => "must be created (helm install --create-namespace)",
    };
    findings.good(format!("the namespace {name} {state}"));
    Ok(())
}

/// Whether a DaemonSet would have pods. Returns the nodes that it selects.
async fn selection(
    cluster: &Cluster,
    daemon_set: &Provisioner,
    findings: &mut Findings,
) -> Result<Vec<String>, ApiError> {
    let nodes = selected(cluster, pod_of(daemon_set)).await?;
    untolerated(daemon_set, &nodes, findings);
    let served = nodes.iter().filter(|(_, taint)| taint.is_none()).count();
    if served > 0 {
        let (name, of) = (name_of(daemon_set), counted(nodes.len(), "selected node"));
        findings.good(format!("DaemonSet {name} will run on {served} of {of}"));
    }
    Ok(nodes.into_iter().map(|(node, _)| node).collect())
}

/// Reports other provisioners with the directory of a class on the same nodes.
async fn others(
    cluster: &Cluster,
    ours: &[Provisioner],
    nodes: &BTreeSet<String>,
    dirs: &[&str],
    findings: &mut Findings,
) -> Result<(), ApiError> {
    let before = findings.failed();
    let are_nested = |a: &str, b: &str| Path::new(a).starts_with(b) || Path::new(b).starts_with(a);
    for other in read(cluster, None).await? {
        let shared =
            directories(pod_of(&other)).filter(|it| dirs.iter().any(|dir| are_nested(it, dir)));
        let shared: Vec<_> = shared.collect();
        if shared.is_empty() || ours.iter().any(|it| name_of(it) == name_of(&other)) {
            continue;
        }
        let both = selected(cluster, pod_of(&other)).await?.into_iter();
        let both = both.filter(|(node, _)| ours.is_empty() || nodes.contains(node));
        let both: Vec<_> = both.map(|(node, _)| node).collect();
        if !both.is_empty() {
            let (name, shared, both) = (name_of(&other), some_of(&shared), some_of(&both));
            let text = format!("DaemonSet {name} serves {shared} on {both} already");
            findings.bad(&text, UNINSTALL);
        }
    }
    if findings.failed() == before {
        findings.good("no other provisioner serves a directory of the classes");
    }
    Ok(())
}

/// Whether the operator may create the objects.
async fn permissions(
    cluster: &Cluster,
    objects: &[Value],
    findings: &mut Findings,
) -> Result<(), ApiError> {
    let kinds: BTreeSet<_> = objects
        .iter()
        .map(|it| (text(it, "apiVersion"), text(it, "kind"), text(&it["metadata"], "namespace")))
        .collect();
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let mut missing = Vec::new();
    for (version, kind, namespace) in &kinds {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&kind).plural;
        let attributes = json!({ "group": group, "resource": resource, "verb": "create", "namespace": namespace });
        let mut review = SelfSubjectAccessReview::default();
        review.spec.resource_attributes = serde_json::from_value(attributes).ok();
        let params = PostParams::default();
        let answer = api.create(&params, &review);
        let answer = cluster.limited("selfsubjectaccessreviews", "create", answer);
        if !answer.await?.status.is_some_and(|it| it.allowed) {
            let place = [&*resource, namespace].join(" in ");
            missing.push(place.trim_end_matches(" in ").to_owned());
        }
    }
    if missing.is_empty() {
        let count = counted(kinds.len(), "kind");
        findings.good(format!("permission to create objects of {count}"));
    } else {
        let text = format!("permission to create is missing: {}", some_of(&missing));
        let remedy = "grant it to the user of the kubeconfig, or install as an administrator";
        findings.bad(&text, remedy);
    }
    Ok(())
}
