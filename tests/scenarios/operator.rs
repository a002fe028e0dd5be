//! The commands of operators, from outside the cluster, with running provisioners.

mod accidents;
mod adopt;
mod approve;
mod bundle;
mod check;
mod consent;
mod explain;
mod intake;
mod list;
mod pause;
mod pre;
mod rebind;
mod retire;

use std::path::{Path, PathBuf};

use control_plane::resource;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use support::stage::name;
use support::{LoopDevice, Program, Stage, skip};

use crate::kit::*;

/// A stage whose pods can have the address of a provisioner, the class `fast`, and tmpfs mounts as these entries of it.
fn reachable<const N: usize>(entries: [&str; N]) -> Option<(Stage, [PathBuf; N])> {
    let (stage, volumes) = fast_stage(entries)?;
    Some((embedded(stage)?, volumes))
}

/// The stage, unless its API server is a real one, which connects to no loopback address.
fn embedded(stage: Stage) -> Option<Stage> {
    let is_embedded = stage.embedded().is_some();
    if !is_embedded {
        skip("a real API server connects to no loopback address");
    }
    is_embedded.then_some(stage)
}

/// Starts the provisioner of the stage's node, with its Pod.
fn provisioner(stage: &Stage) -> Program {
    with_pod(stage, provisioner_on(stage, &stage.node()), &stage.node())
}

/// Waits until a provisioner is ready, and creates its Pod.
fn with_pod(stage: &Stage, mut provisioner: Program, node: &str) -> Program {
    ready(stage, &mut provisioner);
    provisioner_pod(stage, &mut provisioner, node);
    provisioner
}

/// Registers another node, and starts its provisioner with its Pod. The class `fast` has its own directory there.
fn other_node(stage: &Stage) -> (String, Program, PathBuf) {
    let node = stage.named("other-node");
    stage.register_node(&node, Some(&node));
    let (provisioner, disks) = provisioner_of_other(stage, &node);
    (node.clone(), with_pod(stage, provisioner, &node), disks)
}

/// Starts the provisioner of another node. Returns it with the directory of the class `fast` there.
fn provisioner_of_other(stage: &Stage, node: &str) -> (Program, PathBuf) {
    let dir = |name| stage.sandbox.dir(&format!("{name}-of-{node}")).unwrap();
    let (disks, config) = (dir("disks"), dir("config"));
    let class = json!({ "hostDir": disks, "mountDir": disks });
    let map = json!({ stage.named("fast"): class }).to_string();
    std::fs::write(config.join("storageClassMap"), map).unwrap();
    let mut command = stage.command();
    command
        .envs([("MY_NODE_NAME", node)])
        .env("STATE_DIRECTORY", dir("state"))
        .arg("--config")
        .arg(config)
        .arg("--kubelet-dir")
        .arg(stage.kubelet_dir())
        .args(["--listen-address=127.0.0.1:0", "--config-sync-period=1s"]);
    let log = stage.sandbox.path().join(format!("{node}.log"));
    (Program::start(command, log).unwrap(), disks)
}

/// NODE:PATH on the stage's node.
fn place(stage: &Stage, path: &Path) -> String {
    format!("{}:{}", stage.node(), path.display())
}

/// A tenant writes the secret, and the PV is lost: the volume is dirty.
fn lose_pv(stage: &Stage, provisioner: &mut Program, path: &Path) {
    let claim = path.file_name().unwrap().to_str().unwrap();
    let pv = stage.used(&stage.bind(claim, path));
    in_state(stage, provisioner, path, "Bound");
    keep_secret(path);
    stage.delete_pv(&name(&pv));
    stage.patch_pv(&name(&pv), &json!({ "metadata": { "finalizers": null } }));
    is_gone(stage, &pv);
    stage.delete_claim(claim);
    skipped(stage, provisioner, path, "Dirty");
}

/// A volume of a tenant whose disk was replaced by one with the secret. The disks are kept until the stage ends.
fn replaced_disk(
    stage: &Stage,
    provisioner: &mut Program,
    entry: &str,
) -> (PathBuf, String, [LoopDevice; 2]) {
    let disks = [ext4(stage), ext4(stage)];
    let at = format!("disks/fast/{entry}");
    let path = mount(stage, &disks[0], &at);
    let pv = stage.used(&stage.bind(entry, &path));
    in_state(stage, provisioner, &path, "Bound");
    stage.sandbox.umount(&path).unwrap();
    mount(stage, &disks[1], &at);
    keep_secret(&path);
    in_state(stage, provisioner, &path, "IdentityMismatch");
    (path, name(&pv), disks)
}

/// Gives the cluster another UID, as one that was installed again has.
fn install_again(stage: &Stage, uid: &str) {
    let store = stage.embedded().unwrap().store();
    let namespace = store.get(&resource::NAMESPACES, "", "kube-system").unwrap();
    let mut namespace = json!(*namespace);
    namespace["metadata"]["uid"] = json!(uid);
    store.restore(&resource::NAMESPACES, namespace);
}

/// The annotations of a node.
fn annotations_of(stage: &Stage, node: &str) -> Value {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    json!(stage.request(nodes.get(node)).metadata.annotations)
}

/// Asserts the exit code and that the output, with the errors, has these texts.
#[track_caller]
fn answers(result: &CommandResult, code: i32, texts: &[&str]) {
    let shown = format!("{}{}", result.out, result.err);
    assert_eq!(result.code, Some(code), "{shown}");
    for text in texts {
        assert!(shown.contains(text), "no {text:?} in:\n{shown}");
    }
}
