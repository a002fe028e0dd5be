//! `check`.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams};

use super::*;

/// Creates the DaemonSet of a provisioner that has this directory of the host.
pub(super) fn daemon_set(stage: &Stage, name: &str, dir: &str) {
    let api = daemon_sets(stage);
    let labels = json!({ "app": name });
    let object = json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [{
                        "name": "provisioner",
                        "image": "none",
                        "env": [{ "name": "JOB_CONTAINER_IMAGE", "value": "none" }],
                    }],
                    "volumes": [
                        { "name": "disks", "hostPath": { "path": dir } },
                        { "name": "dev", "hostPath": { "path": "/dev" } },
                    ],
                },
            },
        },
    });
    stage.create(&api, object);
    rollout(stage, name, 1, 1);
}

fn daemon_sets(stage: &Stage) -> Api<DaemonSet> {
    Api::namespaced(stage.client.clone(), "kube-system")
}

/// Sets the numbers of pods in the status, as the controller of DaemonSets does.
fn rollout(stage: &Stage, name: &str, desired: u32, ready: u32) {
    let status = json!({
        "currentNumberScheduled": desired,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": desired,
    });
    let patch = Patch::Merge(json!({ "status": status }));
    let api = daemon_sets(stage);
    stage.request(api.patch_status(name, &PatchParams::default(), &patch));
}

/// Creates the StorageClass of a class again, with this binding mode.
pub(super) fn bind_in_mode(stage: &Stage, class: &str, mode: &str) {
    let api: Api<StorageClass> = Api::all(stage.client.clone());
    stage.request(api.delete(&stage.named(class), &DeleteParams::default()));
    stage.storage_class(class, "Delete", mode);
}

/// An installation with one volume in which everything is right.
fn healthy() -> Option<(Stage, Program, PathBuf)> {
    let (stage, [path]) = reachable(["vol"])?;
    bind_in_mode(&stage, "fast", "WaitForFirstConsumer");
    daemon_set(&stage, "provisioner", "/mnt/fast");
    let mut provisioner = provisioner(&stage);
    stage.available(&path, None);
    in_state(&stage, &mut provisioner, &path, "Available");
    check(&stage, 0, &["No problems found."]);
    Some((stage, provisioner, path))
}

/// Asserts the exit code and the texts of the result.
#[track_caller]
fn check(stage: &Stage, code: i32, texts: &[&str]) -> String {
    let result = run_as_operator(stage, &["check"]);
    answers(&result, code, texts);
    result.out
}

/// Asserts that one check fails, with these texts in its line and its remedy.
#[track_caller]
fn fails(stage: &Stage, text: &str, remedy: &str) {
    let out = check(stage, 1, &["1 check failed."]);
    let mut lines = out.lines().skip_while(|line| !line.starts_with('✘'));
    let (failed, next) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(failed.contains(text), "no {text:?} in:\n{out}");
    assert!(next.starts_with("    ") && next.contains(remedy), "no {remedy:?} in:\n{out}");
}

#[test]
fn healthy_installation_has_no_problems() {
    let (stage, _provisioner, _) = or_skip!(healthy());
    let class = stage.named("fast");
    let out = check(
        &stage,
        0,
        &[
            "✔ the API server answers: v1.",
            "✔ DaemonSet kube-system/provisioner: 1 of 1 pods are ready",
            &format!("✔ class {class}: 1 volume found"),
            "No problems found.",
        ],
    );
    assert!(!out.contains('✘'), "{out}");
}

#[test]
fn daemon_sets_are_checked() {
    let (stage, _provisioner, _) = or_skip!(healthy());
    rollout(&stage, "provisioner", 2, 1);
    let command = "kubectl --namespace kube-system rollout status daemonset provisioner";
    fails(&stage, "DaemonSet kube-system/provisioner: 1 of 2 pods are ready", command);
    rollout(&stage, "provisioner", 0, 0);
    fails(&stage, "selects no node", "label the nodes");
    rollout(&stage, "provisioner", 1, 1);

    daemon_set(&stage, "second", "/mnt/fast/");
    let both = "/mnt/fast is served by kube-system/provisioner, kube-system/second";
    fails(&stage, both, "uninstall one of them");
    let api = daemon_sets(&stage);
    for name in ["provisioner", "second"] {
        stage.request(api.delete(name, &DeleteParams::background()));
    }
    fails(&stage, "there is no DaemonSet of a provisioner", "install the chart");
}

#[test]
fn silent_provisioner_is_a_problem() {
    let (stage, mut provisioner, _) = or_skip!(healthy());
    provisioner.kill();
    let pod = format!("provisioner-{}", stage.node());
    let text = format!("pod kube-system/{pod}: the request to the API server failed: 503");
    let remedy = format!("kubectl --namespace kube-system logs {pod}");
    fails(&stage, &text, &remedy);
}

#[test]
fn class_that_binds_immediately_is_a_problem() {
    let (stage, _provisioner, _) = or_skip!(healthy());
    bind_in_mode(&stage, "fast", "Immediate");
    let class = stage.named("fast");
    let text = format!("the StorageClass {class} binds claims at once");
    fails(&stage, &text, "volumeBindingMode: WaitForFirstConsumer");
}

#[test]
fn class_that_offers_no_entry_is_a_problem() {
    let (stage, mut provisioner, _) = or_skip!(healthy());
    stage.class("empty", &json!({}));
    bind_in_mode(&stage, "empty", "WaitForFirstConsumer");
    let entry = stage.sandbox.dir("disks/empty/not-mounted").unwrap();
    skipped(&stage, &mut provisioner, &entry, "NotMounted");
    let class = stage.named("empty");
    let text = format!("class {class} offers none of its 1 entry: NotMounted");
    fails(&stage, &text, &format!("kubectl local-volume list --class {class}"));
}

#[test]
fn dirty_volume_is_a_problem() {
    let (stage, mut provisioner, _) = or_skip!(healthy());
    let dirty = fast(&stage, "dirty");
    lose_pv(&stage, &mut provisioner, &dirty);
    let place = place(&stage, &dirty);
    fails(&stage, &place, &format!("kubectl local-volume explain {place}"));
}

#[test]
fn paused_node_is_a_problem() {
    let (stage, _provisioner, _) = or_skip!(healthy());
    let node = stage.node();
    answers(&run_as_operator(&stage, &["pause", "--node", &node]), 0, &[]);
    fails(
        &stage,
        &format!("cleaning is paused on {node}"),
        &format!("kubectl local-volume resume --node {node}"),
    );
    answers(&run_as_operator(&stage, &["resume", "--node", &node]), 0, &[]);
    stage.eventually("the node is resumed", || run_as_operator(&stage, &["check"]).code == Some(0));
}
