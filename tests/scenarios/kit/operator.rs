//! An operator outside the cluster, and the Pods by which the commands of operators find provisioners.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use support::{Program, Stage, bare_command};

/// The namespace of the Pods of provisioners.
const NAMESPACE: &str = "kube-system";

/// The exit code and the output of a command.
pub struct CommandResult {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandResult {
    /// Runs the command to its end.
    pub fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        Self {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }
}

/// Runs our binary as an operator outside the cluster does: with a kubeconfig, and without the environment of a pod.
pub fn run_as_operator(stage: &Stage, args: &[&str]) -> CommandResult {
    let kubeconfig = stage.sandbox.path().join("kubeconfig");
    let mut command = bare_command(crate::BINARY);
    CommandResult::of(command.env("KUBECONFIG", kubeconfig).args(args))
}

/// Starts a provisioner for a node, and registers the Node if it is not the stage's. It has the configuration of
/// the stage, and its own state directory.
pub fn provisioner_on(stage: &Stage, node: &str) -> Program {
    if node != stage.node() {
        stage.register_node(node, Some(node));
    }
    let dir = stage.sandbox.dir(&format!("state-of-{node}")).unwrap();
    let dir = dir.to_str().unwrap();
    stage.provisioner_with(&[("MY_NODE_NAME", node), ("STATE_DIRECTORY", dir)])
}

/// Creates the Pod of a provisioner that runs already, and waits until it has an address. The embedded control plane
/// only: the address is that of this machine.
pub fn provisioner_pod(stage: &Stage, provisioner: &mut Program, node: &str) {
    let address = provisioner.http_address().unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let name = format!("provisioner-{node}");
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "provisioner",
                "image": "none",
                "env": [{ "name": "JOB_CONTAINER_IMAGE", "value": "none" }],
                "ports": [{ "containerPort": port }],
            }],
        },
    });
    stage.create(&pods, pod);
    stage.eventually(&format!("the Pod {name} has an address"), || {
        let status = stage.request(pods.get(&name)).status?;
        (status.phase? == "Running" && status.pod_ip? == "127.0.0.1").then_some(())
    });
}
