//! Several installations on one node: each manages its own PVs, and one that is gone is succeeded by another.

use std::time::Duration;

use control_plane::requests::{Request, Verb};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::DeleteParams;
use local_volume_provisioner::names::ANNOTATION_INSTALLATION;
use serde_json::json;
use support::stage::{annotation, name};
use support::{Program, Stage};

use crate::kit::*;

/// Long enough for a DaemonSet to be read some times.
const TAKEN_OVER: Duration = Duration::from_mins(1);

fn daemon_sets(stage: &Stage) -> Api<DaemonSet> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

/// The DaemonSet of an installation, whose Pods are the programs of this test.
fn install(stage: &Stage, name: &str) {
    let labels = json!({ "app": name });
    let containers = json!([{ "name": "provisioner", "image": "none" }]);
    let set = json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                // No node of a real cluster.
                "spec": { "containers": containers, "nodeSelector": { "installation": name } },
            },
        },
    });
    stage.create(&daemon_sets(stage), set);
}

/// A provisioner of an installation.
fn provisioner(stage: &Stage, installation: &str) -> Program {
    stage.provisioner_with(&[("MY_DAEMONSET", installation)])
}

fn installation(stage: &Stage, name: &str) -> String {
    format!("{}/{name}", stage.namespace())
}

fn recorded(pv: &PersistentVolume) -> &str {
    annotation(pv, ANNOTATION_INSTALLATION).unwrap_or_default()
}

fn reads_daemon_set(request: &Request) -> bool {
    request.verb == Verb::Get && request.resource == "daemonsets"
}

#[test]
fn pv_of_another_installation_is_left_alone_until_its_daemon_set_is_gone() {
    let (mut stage, [volume]) = or_skip!(fast_stage(["vol"]));
    stage.add_arg("--takeover-after=3s");
    install(&stage, "a");
    let mut a = provisioner(&stage, "a");
    let bound = stage.used(&stage.bind("claim", &volume));
    assert_eq!(recorded(&bound), installation(&stage, "a"));
    keep_secret(&volume);
    a.kill();
    stage.delete_claim("claim");
    let released = stage.in_phase(&name(&bound), "Released");

    let denied = stage.faults().on(Verb::Get).resource("daemonsets").forbid();
    let mut b = provisioner(&stage, "b");
    stage.event("PermissionMissing", "get daemonsets");
    let is_left = || has_secret(&volume) && is_untouched(&stage, &released, "Released");
    stage.still(&mut b, "without the permission it is left alone", is_left);
    let status = status_of(&mut b, &volume);
    assert_eq!(status["reason"], "PathClaimedByOtherPV", "{status}");
    denied.clear();
    let mark = stage.requests().mark();
    is_asked(&stage, mark, "the DaemonSet", reads_daemon_set);
    stage.still(&mut b, "while the DaemonSet exists, too", is_left);

    let sets = daemon_sets(&stage);
    stage.request(sets.delete("a", &DeleteParams::background()));
    stage.within(TAKEN_OVER, "the PV is taken over and cleaned", || {
        stage.pvs_at(&volume).iter().all(|pv| pv.metadata.uid != released.metadata.uid)
    });
    stage.event("VolumeAdopted", "is gone");
    let fresh = offered_again(&stage, &volume, &released);
    assert_eq!(recorded(&fresh), installation(&stage, "b"));
    assert!(entries(&volume).is_empty());
}
