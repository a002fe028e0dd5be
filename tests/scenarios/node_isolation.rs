//! `--node-isolation`: where the admission policy, which goes by the node's name, is not enough, there
//! is no start. And what the downward API gives the pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use support::{Program, Stage};

use crate::kit::{fast, stage_with};
use crate::stage;

const AT_ONCE: Duration = Duration::from_secs(10);

/// The end of a provisioner that must not run: exit code and log.
fn refusal(stage: &Stage) -> (Option<i32>, String) {
    let mut provisioner = stage.provisioner();
    let ended = provisioner.wait(stage.at_most(AT_ONCE)).unwrap();
    (ended.code(), provisioner.log())
}

fn isolated() -> Option<Stage> {
    stage_with(&["--node-isolation"])
}

#[test]
fn a_hostname_label_that_is_not_the_nodes_name_is_refused() {
    let stage = or_skip!(isolated());
    let dir = stage.class("fast", &json!({}));
    let volume = fast(&stage, "vol");
    let label = |hostname: &str| {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(stage.client.clone());
        let labels = json!({ "metadata": { "labels": { "kubernetes.io/hostname": hostname } } });
        let (node, params) = (stage.node(), PatchParams::default());
        stage.request(nodes.patch(&node, &params, &Patch::Merge(labels)));
    };
    label("another-name");
    let (code, log) = refusal(&stage);
    assert_eq!(code, Some(2), "{log}");
    for words in ["another-name", &stage.node(), "nodeIsolation.enabled=false"] {
        assert!(log.contains(words), "{words:?} in {log}");
    }
    assert_eq!(stage.pvs_at(&volume).len(), 0);

    label(&stage.node());
    let _provisioner = stage.provisioner();
    stage.available(&dir.join("vol"), None);
}

#[test]
fn a_class_with_a_selector_is_refused_by_name() {
    let stage = or_skip!(isolated());
    let zone =
        json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }]);
    stage.class("open", &json!({ "selector": zone }));
    let (code, log) = refusal(&stage);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains(&stage.named("open")) && log.contains("selector"), "{log}");
}

/// Without the UID `kubectl describe pod` does not show them.
#[test]
fn events_on_the_pod_carry_its_name_and_uid() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({ "accessMode": "Nonsense" }));
    stage.pod_with_host_path("provisioner-abcde", "/dev/null");
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let uid = stage.request(pods.get("provisioner-abcde")).metadata.uid;
    let mut command = stage.command();
    command
        .env("POD_NAME", "provisioner-abcde")
        .env("POD_UID", uid.as_ref().unwrap())
        .arg("--config")
        .arg(stage.config_dir())
        .arg("--kubelet-dir")
        .arg(stage.kubelet_dir())
        .args(["--listen-address", "127.0.0.1:0"]);
    let log = stage.sandbox.path().join("named.log");
    let _provisioner = Program::start(command, log).unwrap();
    stage.event("ClassInvalid", "Nonsense");
    let events: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let events = stage.request(events.list(&ListParams::default()));
    let mut about = events.items.into_iter().map(|event| event.involved_object);
    let pod = about.find(|about| about.kind.as_deref() == Some("Pod")).unwrap();
    assert_eq!(pod.name.as_deref(), Some("provisioner-abcde"));
    assert_eq!(pod.uid, uid);
}
