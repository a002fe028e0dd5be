//! The API server does what it is asked, and its answer is lost: what was done is told all the same,
//! once and for what it was.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use support::names::DEFAULT_TAINT_KEY;

use super::*;
use crate::kit::*;

/// A stage with one class, whose answers to one such request will be lost.
fn deaf(verb: Verb, resource: &str) -> Option<(Stage, Fault)> {
    let mut stage = stage()?;
    stage.add_arg("--discovery-period=1s");
    let settings = json!({ "missingVolumePolicy": "Delete" });
    stage.class("fast", &settings).unwrap();
    let unheard = stage.faults().on(verb).resource(resource).times(1);
    let unheard = unheard.reset_after();
    Some((stage, unheard))
}

fn volume(stage: &Stage, entry: &str) -> PathBuf {
    let dir = format!("disks/fast/{entry}");
    stage.sandbox.tmpfs(&dir, "size=20m").unwrap()
}

#[test]
fn a_pv_that_is_withdrawn_is_told_of_with_the_reason() {
    for protected in ["true", "false"] {
        let (stage, unheard) = or_skip!(deaf(Verb::Delete, PVS));
        stage.configure("protectReleasedData", protected).unwrap();
        let [lost, _] = ["lost", "other"].map(|entry| volume(&stage, entry));
        let mut provisioner = stage.provisioner().unwrap();
        let pv = stage.available(&lost, None);
        stage.sandbox.umount(&lost).unwrap();
        is_gone(&stage, &pv);
        stage.event("VolumeNotMounted", "");
        let told = stage.event("VolumeMissing", "so the PV is deleted");
        assert_eq!(unheard.hits(), 1);
        provisioner.stop(stage.patience()).unwrap();
        assert_eq!(stage.events("VolumeMissing"), [told]);
        assert_eq!(stage.events("VolumeDelete"), [""; 0]);
    }
}

#[test]
fn a_pv_that_is_let_go_is_told_of() {
    let (stage, unheard) = or_skip!(deaf(Verb::Patch, PVS));
    let volume = volume(&stage, "vol");
    let mut provisioner = stage.provisioner().unwrap();
    let unused = stage.available(&volume, None);
    stage.delete_pv(&name(&unused)).unwrap();
    offered_anew(&stage, &volume, &unused);
    assert_eq!(unheard.hits(), 1);
    let told = stage.event("VolumeDelete", "never used");
    provisioner.stop(stage.patience()).unwrap();
    assert_eq!(stage.events("VolumeDelete"), [told]);
}

#[test]
fn a_pv_that_is_adopted_is_told_of() {
    let (stage, unheard) = or_skip!(deaf(Verb::Patch, PVS));
    let volume = volume(&stage, "vol");
    let pv = pv_by_hand(&stage, &stage.named("old"), "fast", &volume, "20Mi");
    let pv = stage.create_pv(pv).unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let told = stage.event("VolumeAdopted", "without a hostname label");
    assert_eq!(unheard.hits(), 1);
    provisioner.stop(stage.patience()).unwrap();
    assert_eq!(stage.events("VolumeAdopted"), [told]);
    assert!(is_protected(&stage.pv(&name(&pv)).unwrap()));
}

#[test]
fn a_pv_that_is_made_is_counted() {
    let (stage, unheard) = or_skip!(deaf(Verb::Create, PVS));
    let volume = volume(&stage, "vol");
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    stage.eventually("it is counted", || {
        let made = "persistentvolume_discovery_total{mode=\"Filesystem\"}";
        (metric(&mut provisioner, made) == Some(1)).then_some(())
    });
    assert_eq!(unheard.hits(), 1);
}

#[test]
fn a_startup_taint_that_was_taken_off_is_not_told_to_stay() {
    let (stage, unheard) = or_skip!(deaf(Verb::Patch, "nodes"));
    stage.configure("removeNodeNotReadyTaint", "true").unwrap();
    let taint = json!({ "key": DEFAULT_TAINT_KEY, "effect": "NoSchedule" });
    let change = Patch::Merge(json!({ "spec": { "taints": [taint] } }));
    let (nodes, params): (Api<Node>, _) = (Api::all(stage.client.clone()), PatchParams::default());
    let node = stage.node();
    let tainted = nodes.patch(&node, &params, &change);
    stage.block_on(tainted).unwrap();
    let _provisioner = stage.provisioner().unwrap();
    stage.event("StartupTaintRemoved", DEFAULT_TAINT_KEY);
    assert_eq!(unheard.hits(), 1);
    assert_eq!(stage.events("StartupTaintStays"), [""; 0]);
}
