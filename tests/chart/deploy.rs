//! `deploy/`: what `scripts/render` makes of the chart.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// It is what a provisioner that lacks a right points to: a second DaemonSet must not come of it.
#[test]
fn the_rights_can_be_applied_alone() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rbac.yaml");
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
    let kinds: BTreeSet<_> = objects
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    let rights = [
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ];
    assert_eq!(kinds, BTreeSet::from(rights));
}

#[test]
fn nothing_is_lost_when_helm_fails() {
    let project = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for part in ["scripts", "helm", "deploy"] {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(root.join(part)).arg(project.path());
        assert!(copy.status().unwrap().success());
    }
    let mut render = Command::new(project.path().join("scripts/render"));
    let output = render.env("HELM", "false").output().unwrap();
    assert!(!output.status.success());
    let mut compare = Command::new("diff");
    compare.arg("-r").arg(root.join("deploy"));
    compare.arg(project.path().join("deploy"));
    assert!(compare.status().unwrap().success());
}
