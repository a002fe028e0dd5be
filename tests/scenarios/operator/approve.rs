//! `approve`, on a node without a disk to take in.

use super::*;

#[test]
fn node_without_blank_disks_has_nothing_to_approve() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    stage.available(&path, None);
    let (node, class) = (stage.node(), stage.named("fast"));
    let nothing = [
        format!("no such disk of node {node} waits for an approval"),
        format!("status --node {node} shows its disks"),
    ];
    for args in [
        &[][..],
        &["--yes"],
        &["--dry-run"],
        &["--class", &class],
        &["--class", &class, "--plan", "6c1d2a305f0e4b8e"],
    ] {
        let result = run_as_operator(&stage, &[&["approve", &node], args].concat());
        answers(&result, 2, &[&nothing[0], &nothing[1]]);
        let annotations = annotations_of(&stage, &node).to_string();
        assert!(!annotations.contains("approve."), "{args:?}: {annotations}");
    }
    answers(&run_as_operator(&stage, &["approve"]), 2, &["<NODE>"]);
    let result = run_as_operator(&stage, &["approve", "no-such-node"]);
    answers(&result, 1, &["no provisioner's pod was found on node \"no-such-node\""]);
    // Whether a disk waits is not known then.
    assert!(provisioner.stop(stage.timeout()).unwrap().success());
    let result = run_as_operator(&stage, &["approve", &node, "--yes"]);
    let silent = format!("the provisioner of node {node} does not answer");
    answers(&result, 1, &[&silent]);
}
