//! The permissions of operators: the roles of the chart permit what their commands request, and nothing else.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use support::stage::{name, uid};
use support::{Stage, bare_command, skip};

use crate::kit::*;

/// `deploy/` has the roles as the chart renders them.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/operator-role.yaml");
const OPERATOR: &str = "operator";

/// The API group, the resource, and the verb.
type Permission = [String; 3];

fn permitted() -> BTreeSet<Permission> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&fs::read_to_string(MANIFEST).unwrap()).unwrap();
    let words = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
    let mut permitted = BTreeSet::new();
    let rules = documents.iter().map(|role| role["rules"].as_array().unwrap());
    for rule in rules.flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                let verbs = words(&rule["verbs"]).into_iter();
                permitted.extend(verbs.map(|verb| [group.clone(), resource.clone(), verb]));
            }
        }
    }
    permitted
}

/// What operators have requested of the embedded control plane, without discovery, which every user may read.
fn requested(stage: &Stage) -> BTreeSet<Permission> {
    let requests = stage.requests().all().into_iter();
    let of_operators = requests.filter(|it| it.user == OPERATOR && !it.resource.is_empty());
    let permissions = of_operators.map(|it| {
        let group = it.path.strip_prefix("/apis/").unwrap_or_default();
        let group = group.split('/').next().unwrap_or_default();
        let resource = [&*it.resource, &*it.subresource].join("/");
        let resource = resource.trim_end_matches('/');
        [group.to_owned(), resource.to_owned(), it.verb.to_string()]
    });
    permissions.collect()
}

/// Runs the binary with a kubeconfig that impersonates the operator, so that its requests differ from those of the
/// provisioner.
fn run(stage: &Stage, args: &[&str], code: i32) {
    let file = fs::read_to_string(stage.sandbox.path().join("kubeconfig")).unwrap();
    let mut config: Value = serde_saphyr::from_str(&file).unwrap();
    config["users"][0]["user"]["as"] = OPERATOR.into();
    let path = stage.sandbox.path().join("kubeconfig-of-operator");
    fs::write(&path, config.to_string()).unwrap();
    let mut command = bare_command(crate::BINARY);
    let result = CommandResult::of(command.env("KUBECONFIG", path).args(args));
    let CommandResult { out, err, .. } = &result;
    assert_eq!(result.code, Some(code), "{args:?}: {out}{err}");
}

#[test]
fn operator_role_permits_what_the_commands_request_and_nothing_else() {
    let (stage, [path]) = or_skip!(fast_stage(["vol"]));
    if stage.embedded().is_none() {
        return skip("a real API server connects to no loopback address");
    }
    let node = stage.node();
    let mut provisioner = provisioner_on(&stage, &node);
    let pv = name(&stage.available(&path, None));
    ready(&stage, &mut provisioner);
    provisioner_pod(&stage, &mut provisioner, &node);
    // check reads the Nodes of a DaemonSet that selects some.
    let container = json!({
        "name": "a",
        "env": [{ "name": "JOB_CONTAINER_IMAGE", "value": "a" }],
        "volumeMounts": [{ "name": "config", "mountPath": "/etc/provisioner/config" }],
    });
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), "kube-system");
    stage.create(&maps, json!({ "metadata": { "name": "config" } }));
    let volume = json!({ "name": "config", "configMap": { "name": "config" } });
    let daemon_sets: Api<DaemonSet> = Api::namespaced(stage.client.clone(), "kube-system");
    stage.create(
        &daemon_sets,
        json!({
            "metadata": { "name": "provisioner" },
            "spec": {
                "selector": { "matchLabels": { "app": "a" } },
                "template": {
                    "metadata": { "labels": { "app": "a" } },
                    "spec": {
                        "nodeSelector": { "disks": "local" },
                        "containers": [container],
                        "volumes": [volume],
                    },
                },
            },
        }),
    );

    run(&stage, &["status", "--all"], 0);
    // The DaemonSet has no pod.
    run(&stage, &["check"], 1);
    // Without wide, no column requires the PVs.
    run(&stage, &["list", "-o", "wide"], 0);
    run(&stage, &["explain", &pv], 0);
    run(&stage, &["consent", &pv], 0);
    run(&stage, &["pause", &pv], 0);
    run(&stage, &["resume", &pv], 0);
    run(&stage, &["pause", "--node", &node], 0);
    run(&stage, &["resume", "--all"], 0);
    // No volume has a mark of that cluster.
    let former = ["--all", "--class=fast", "--from-cluster=former"];
    let former = [&["consent", "--wipe", "--yes"][..], &former].concat();
    run(&stage, &former, 2);
    run(&stage, &["adopt", "--from-cluster=former"], 2);
    // No disk waits for an approval, whose write would be that of pause --node.
    run(&stage, &["approve", &node], 2);
    stage.used(&stage.bind("claim", &path));
    let retained = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    stage.patch_pv(&pv, &retained);
    stage.delete_claim("claim");
    stage.in_phase(&pv, "Released");
    run(&stage, &["rebind", &pv], 0);
    stage.patch_pv(&pv, &json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } }));
    // The disk has another path now. It would be offered if it were empty.
    keep_secret(&path);
    let moved = stage.sandbox.bind(&path, "disks/fast/moved").unwrap();
    stage.sandbox.umount(&path).unwrap();
    let uid = uid(&stage.pv(&pv).unwrap());
    stage.eventually("the disk is found by its mark", || {
        status_of(&mut provisioner, &moved)["mark"]["pvUid"] == uid
            && status_of(&mut provisioner, &path)["state"] == "NotMounted"
    });
    run(&stage, &["rebind", &pv, "--to", &node, "--yes"], 0);
    let path = moved;
    stage.pod("pod", "claim");
    let timeout = ["retire", "--node", &node, "--yes", "--timeout=3s"];
    run(&stage, &timeout, 1);
    stage.available(&path, None);
    stage.sandbox.umount(&path).unwrap();
    run(&stage, &timeout[..4], 0);
    let archive = stage.sandbox.path().join("bundle.tar.gz");
    run(&stage, &["bundle", "-o", archive.to_str().unwrap()], 0);
    assert_eq!(requested(&stage), permitted());
}
