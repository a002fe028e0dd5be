//! `check --pre` and `check-config`, with the manifests that the chart renders.

use std::fs::{self, File};

use control_plane::requests::Verb;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use support::bare_command;

use super::*;
use crate::stage;

const MANIFESTS: &str = include_str!("../../../deploy/local-volume-provisioner.yaml");

/// A stage whose only node is one of Linux.
fn linux() -> Option<Stage> {
    let stage = stage()?;
    if stage.embedded().is_none() {
        skip("a real cluster has other nodes, namespaces and StorageClasses");
        return None;
    }
    label(&stage, "kubernetes.io/os", &json!("linux"));
    Some(stage)
}

fn patch_node(stage: &Stage, patch: &Value) {
    let api: Api<Node> = Api::all(stage.client.clone());
    stage.request(api.patch(&stage.node(), &PatchParams::default(), &Patch::Merge(patch)));
}

fn label(stage: &Stage, key: &str, value: &Value) {
    patch_node(stage, &json!({ "metadata": { "labels": { key: value } } }));
}

/// Creates the StorageClass of the manifests, with these fields.
fn storage_class(stage: &Stage, fields: &Value) {
    let mut class = json!({
        "metadata": { "name": "fast-disks" },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    class.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let api: Api<StorageClass> = Api::all(stage.client.clone());
    let _ = stage.block_on(api.delete("fast-disks", &DeleteParams::default()));
    stage.create(&api, class);
}

/// Creates the DaemonSet of another provisioner, with this directory of the host, and this selector of nodes.
fn other_provisioner(stage: &Stage, dir: &str, selector: &Value) {
    let api: Api<DaemonSet> = Api::namespaced(stage.client.clone(), "default");
    let _ = stage.block_on(api.delete("other", &DeleteParams::background()));
    let labels = json!({ "app": "other" });
    let variable = json!({ "name": "JOB_CONTAINER_IMAGE", "value": "a" });
    let container = json!({ "name": "a", "image": "a", "env": [variable] });
    let volume = json!({ "name": "disks", "hostPath": { "path": dir } });
    let pod = json!({ "nodeSelector": selector, "containers": [container], "volumes": [volume] });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    stage.create(&api, json!({ "metadata": { "name": "other" }, "spec": spec }));
}

/// Runs a command with a text as its standard input.
fn with_input(stage: &Stage, args: &[&str], input: &str) -> CommandResult {
    let path = stage.sandbox.path().join("manifests.yaml");
    fs::write(&path, input).unwrap();
    let kubeconfig = stage.sandbox.path().join("kubeconfig");
    let mut command = bare_command(crate::BINARY);
    let command = command.env("KUBECONFIG", kubeconfig).args(args);
    CommandResult::of(command.stdin(File::open(path).unwrap()))
}

/// Asserts that manifests pass, with these lines.
#[track_caller]
fn passes(stage: &Stage, manifests: &str, texts: &[&str]) {
    let result = with_input(stage, &["check", "--pre"], manifests);
    answers(&result, 0, texts);
    assert!(!result.out.contains('✘'), "{}", result.out);
}

/// Asserts that one check of manifests fails, with these texts in its line and its remedy.
#[track_caller]
fn fails(stage: &Stage, manifests: &str, text: &str, remedy: &str) {
    let result = with_input(stage, &["check", "--pre", "-f", "-"], manifests);
    let out = &result.out;
    answers(&result, 1, &["1 check failed."]);
    let mut lines = out.lines().skip_while(|line| !line.starts_with('✘'));
    let (failed, next) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(failed.contains(text), "no {text:?} in:\n{out}");
    assert!(next.contains(remedy), "no {remedy:?} in:\n{out}");
}

#[test]
fn manifests_of_the_chart_pass_and_nothing_is_written() {
    let stage = or_skip!(linux());
    let mark = stage.requests().mark();
    passes(
        &stage,
        MANIFESTS,
        &[
            "✔ the API server answers: v1.",
            "✔ ConfigMap kube-system/local-volume-provisioner-config is valid",
            "✔ the StorageClass fast-disks will be created",
            "✔ DaemonSet kube-system/local-volume-provisioner will run on 1 of 1 selected node",
            "✔ the namespace kube-system admits privileged pods",
            "✔ no other provisioner serves a directory of the classes",
            "✔ permission to create objects of 8 kinds",
            "No problems found.",
        ],
    );
    let requests = stage.requests().since(mark);
    let stored = requests.iter().filter(|it| it.writes() && !it.resource.is_empty());
    assert_eq!(stored.count(), 0);
    let elsewhere = MANIFESTS.replace("\"kube-system\"", "\"elsewhere\"");
    passes(&stage, &elsewhere, &["✔ the namespace elsewhere must be created"]);
}

#[test]
fn config_map_alone_is_checked_without_the_nodes() {
    let stage = or_skip!(linux());
    let config = MANIFESTS.split("---\n").find(|it| it.contains("kind: ConfigMap")).unwrap();
    storage_class(&stage, &json!({}));
    passes(
        &stage,
        config,
        &["- nodes and pod security are not checked", "✔ the StorageClass fast-disks exists"],
    );
}

#[test]
fn fault_of_the_configuration_names_key_and_value() {
    let stage = or_skip!(linux());
    let broken = MANIFESTS.replace("protectReleasedData: \"true\"", "protectReleasedData: perhaps");
    let fault =
        "ConfigMap kube-system/local-volume-provisioner-config: protectReleasedData is \"perhaps\"";
    fails(&stage, &broken, fault, "correct it in the values");
    let run = |text: &str| with_input(&stage, &["check-config", "-f", "-"], text);
    answers(&run(&broken), 1, &[&format!("fault: {fault}; write true or false")]);
    answers(&run(MANIFESTS), 0, &["Effective configuration of ConfigMap kube-system/"]);
    let missing = run("kind: ConfigMap\ndata: {}\n");
    answers(&missing, 2, &["-: there is no ConfigMap with the key storageClassMap"]);
    let directory = run_as_operator(&stage, &["check-config", "-f", "/nonexistent"]);
    answers(&directory, 2, &["/nonexistent"]);
}

#[test]
fn storage_class_that_exists_must_fit_and_be_of_this_release() {
    let stage = or_skip!(linux());
    let owned = json!({ "name": "fast-disks", "labels": { "app.kubernetes.io/instance": "local-volume-provisioner" } });
    let by_helm = json!({ "name": "fast-disks", "annotations": { "meta.helm.sh/release-name": "local-volume-provisioner" } });
    for metadata in [&owned, &by_helm] {
        storage_class(&stage, &json!({ "metadata": metadata }));
        passes(&stage, MANIFESTS, &["✔ the StorageClass fast-disks exists"]);
    }
    for (fields, text, remedy) in [
        (json!({}), "exists, and is not of this release", "remove storageClass from the class"),
        (
            json!({ "metadata": { "name": "fast-disks", "labels": { "app.kubernetes.io/instance": "a" } } }),
            "exists, and is not of this release",
            "rename the class",
        ),
        (
            json!({ "metadata": owned, "provisioner": "rancher.io/local-path" }),
            "has the provisioner rancher.io/local-path",
            "provisioner: kubernetes.io/no-provisioner",
        ),
        (
            json!({ "metadata": owned, "volumeBindingMode": "Immediate" }),
            "binds claims at once",
            "volumeBindingMode: WaitForFirstConsumer",
        ),
    ] {
        storage_class(&stage, &fields);
        fails(&stage, MANIFESTS, &format!("the StorageClass fast-disks {text}"), remedy);
    }
}

#[test]
fn class_without_storage_class_is_a_problem() {
    let stage = or_skip!(linux());
    let without: Vec<_> =
        MANIFESTS.split("---\n").filter(|it| !it.contains("kind: StorageClass")).collect();
    fails(&stage, &without.join("---\n"), "class fast-disks has no StorageClass", "create it");
}

#[test]
fn other_provisioner_of_the_same_directory_and_node_is_a_problem() {
    let stage = or_skip!(linux());
    let node = stage.node();
    for (dir, selector, is_problem) in [
        ("/mnt/fast-disks", json!({}), true),
        ("/mnt/fast-disks/nested", json!({}), true),
        ("/mnt", json!({}), true),
        ("/mnt/fast", json!({}), false),
        ("/mnt/fast-disks", json!({ "disks": "other" }), false),
    ] {
        other_provisioner(&stage, dir, &selector);
        if is_problem {
            let text = format!("DaemonSet default/other serves {dir} on {node} already");
            fails(&stage, MANIFESTS, &text, "uninstall one of them");
        } else {
            passes(&stage, MANIFESTS, &["✔ no other provisioner"]);
        }
    }
    label(&stage, "disks", &json!("other"));
    let text = format!("DaemonSet default/other serves /mnt/fast-disks on {node} already");
    fails(&stage, MANIFESTS, &text, "uninstall one of them");
    // A release that is upgraded is no other one.
    let same = MANIFESTS.replace("kube-system", "default");
    let same = same.replace("name: \"local-volume-provisioner\"", "name: \"other\"");
    passes(&stage, &same, &["✔ no other provisioner"]);
}

#[test]
fn daemon_set_must_select_a_node_whose_taints_it_tolerates() {
    let stage = or_skip!(linux());
    let selector = "kubernetes.io/os: linux\n";
    let narrow = MANIFESTS.replace(selector, "disks: local\n");
    let name = "DaemonSet kube-system/local-volume-provisioner";
    fails(&stage, &narrow, &format!("{name} selects no node"), "label the nodes");
    let required = "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disks, operator: Exists}]}]}}";
    let by_affinity = MANIFESTS
        .replace(selector, &format!("{selector}      affinity: {{nodeAffinity: {required}}}\n"));
    fails(&stage, &by_affinity, &format!("{name} selects no node"), "label the nodes");

    label(&stage, "disks", &json!("local"));
    let taint = json!({ "key": "storage", "effect": "NoSchedule" });
    patch_node(&stage, &json!({ "spec": { "taints": [taint] } }));
    let text = format!("{name} does not tolerate a taint of {} (storage)", stage.node());
    for manifests in [&narrow, &by_affinity, MANIFESTS] {
        fails(&stage, manifests, &text, "add the toleration");
    }
    let tolerant = narrow.replace(
        "disks: local\n",
        "disks: local\n      tolerations: [{key: storage, operator: Exists}]\n",
    );
    passes(&stage, &tolerant, &["will run on 1 of 1 selected node"]);
    let other = stage.named("other-node");
    stage.register_node(&other, Some(&other));
    let api: Api<Node> = Api::all(stage.client.clone());
    let patch = json!({ "metadata": { "labels": { "kubernetes.io/os": "linux" } } });
    stage.request(api.patch(&other, &PatchParams::default(), &Patch::Merge(patch)));
    // Without a selector, the taint of a control plane is no problem.
    passes(&stage, MANIFESTS, &["will run on 1 of 2 selected nodes"]);
}

#[test]
fn namespace_must_admit_privileged_pods() {
    let stage = or_skip!(linux());
    let api: Api<Namespace> = Api::all(stage.client.clone());
    let key = "pod-security.kubernetes.io/enforce";
    let namespace = |level: &str| {
        let metadata = json!({ "name": "disks", "labels": { key: level } });
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
    };
    stage.create(&api, namespace("restricted"));
    let manifests = MANIFESTS.replace("\"kube-system\"", "\"disks\"");
    fails(
        &stage,
        &manifests,
        &format!("the namespace disks refuses the provisioner ({key}: restricted)"),
        &format!("kubectl label --overwrite namespace disks {key}=privileged"),
    );
    let patch = Patch::Merge(namespace("privileged"));
    stage.request(api.patch("disks", &PatchParams::default(), &patch));
    passes(&stage, &manifests, &["✔ the namespace disks admits privileged pods"]);
}

#[test]
fn permission_to_create_each_kind_is_checked() {
    let stage = or_skip!(linux());
    for (resource, missing) in
        [("clusterroles", "clusterroles"), ("daemonsets", "daemonsets in kube-system")]
    {
        let fault = stage.faults().on(Verb::Create).resource(resource).forbid();
        let text = format!("permission to create is missing: {missing}");
        fails(&stage, MANIFESTS, &text, "install as an administrator");
        fault.clear();
    }
}

#[test]
fn what_cannot_be_read_is_a_problem_with_the_permission() {
    let stage = or_skip!(linux());
    for (verb, resource, remedy) in [
        (Verb::List, "storageclasses", "allow list on storageclasses"),
        (Verb::Get, "namespaces", "allow get on namespaces"),
        (Verb::List, "daemonsets", "allow list on daemonsets"),
        (Verb::List, "nodes", "allow list on nodes"),
    ] {
        let fault = stage.faults().on(verb).resource(resource).forbid();
        let text = format!("the API server denies permission to {verb} {resource}");
        fails(&stage, MANIFESTS, &text, remedy);
        fault.clear();
    }
}
