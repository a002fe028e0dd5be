//! Invalid command lines, and unknown names.

use std::process::Output;

use super::*;

fn refused(stage: &Stage, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        stage.command().arg("node-cleanup").args(args).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn an_invalid_command_line_is_refused_with_a_sentence() {
    let stage = or_skip!(stage());
    let class = "--storageclass-names=a";
    for (args, words) in [
        (&["--v=0"][..], "--storageclass-names"),
        (&["-storageclass-names", ""], "name the StorageClasses"),
        (&["--storageclass-names= , "], "name the StorageClasses"),
        (&[class, "--pvc-deletion-delay=soon"], "--pvc-deletion-delay"),
        (&[class, "--requests-per-second=0"], "--requests-per-second"),
        (&[class, "--csi-drivers=a=label:b"], "invalid reference"),
        (&[class, "--csi-drivers=a,a=annotation:b"], "names a CSI driver twice"),
        (&[class, "--stale-pv-discovery-interval=0s"], "more than zero"),
        (&[class, "--listen-address=nowhere"], "--listen-address"),
        (&[class, "--kubeconfig=/nowhere/config"], "--kubeconfig /nowhere/config"),
        (&[class, "--kube-api-endpoint=no url"], "--kube-api-endpoint"),
    ] {
        let (code, said) = refused(&stage, args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn an_unknown_class_is_named() {
    let stage = or_skip!(stage());
    stage.storage_class("fast", "Delete", "Immediate");
    let _pv = pv(&stage, "free", &stage.node(), |_| {});
    let cleanup = synced(&stage, "cleanup", &["-storageclass-names=fsat"]);
    let log = cleanup.log();
    assert!(log.contains("no local PersistentVolume has this class yet"), "{log}");
    assert!(log.contains("class=\"fsat\""), "{log}");
    assert!(!log.contains(&format!("class={:?}", stage.named("fast"))), "{log}");
}
