//! `rebind`.

use support::stage::{annotation, is_terminating, uid};

use super::*;

fn rebind(stage: &Stage, args: &[&str]) -> CommandResult {
    run_as_operator(stage, &[&["rebind"], args].concat())
}

#[test]
fn claim_that_was_deleted_by_mistake_has_its_data_again() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let bound = stage.used(&stage.bind("claim", &path));
    let pv = name(&bound);
    stage.pod("app", "claim");
    keep_secret(&path);
    in_state(&stage, &mut provisioner, &path, "Bound");
    answers(&rebind(&stage, &[&pv]), 0, &["it is Bound to claim"]);

    // The claim stays while its pod runs.
    stage.delete_claim("claim");
    let result = rebind(&stage, &[&pv, "--dry-run"]);
    answers(&result, 0, &["the policy is set to Retain"]);
    // It waits for the pod, and can be run again.
    let claim = format!("{}/claim", stage.namespace());
    let result = rebind(&stage, &[&pv, "--timeout=2s"]);
    let pods = format!("claim {claim} was deleted, and ends with its pods; delete them to go on");
    answers(&result, 1, &[&pods, "/app", "run the command again"]);
    stage.delete_pod("app", false);
    let result = rebind(&stage, &[&pv]);
    let bound_again = format!("it is Bound to claim {claim}; its policy is Delete again");
    answers(
        &result,
        0,
        &[&format!("claim {claim} is created again"), &bound_again],
    );
    let again = stage.in_phase(&pv, "Bound");
    assert_eq!(uid(&again), uid(&bound));
    assert_eq!(annotation(&again, "local-volume-provisioner/retired"), None);
    assert!(has_secret(&path));
    in_state(&stage, &mut provisioner, &path, "Bound");

    // The new claim has a pod again, and the volume is cleaned after its end.
    stage.delete_claim("claim");
    stage.available(&path, Some(&uid(&bound)));
    assert!(entries(&path).is_empty());
}

#[test]
fn cleaning_of_a_pv_that_is_being_deleted_is_paused() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = name(&stage.used(&stage.bind("claim", &path)));
    stage.pod("app", "claim");
    keep_secret(&path);
    stage.delete_pv(&pv);
    stage.delete_claim("claim");
    let result = rebind(&stage, &[&pv]);
    answers(&result, 1, &["is being deleted", &format!("resume {pv}")]);
    stage.delete_pod("app", false);
    in_state(&stage, &mut provisioner, &path, "Paused");
    assert!(is_terminating(&stage.pv(&pv).unwrap()));
    stage.still(&mut provisioner, "nothing is wiped", || has_secret(&path));
}

#[test]
fn pv_without_a_claim_and_claim_with_another_pv_are_refused() {
    let (stage, [one, other]) = or_skip!(reachable(["one", "other"]));
    let mut provisioner = provisioner(&stage);
    let free = name(&stage.available(&other, None));
    let result = rebind(&stage, &[&free]);
    answers(
        &result,
        1,
        &["was bound to no claim", "nothing was changed"],
    );

    let pv = name(&stage.used(&stage.bind("claim", &one)));
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    stage.patch_pv(&pv, &retain);
    stage.delete_claim("claim");
    stage.in_phase(&pv, "Released");
    stage.bind("claim", &other);
    let result = rebind(&stage, &[&pv]);
    let why = format!("exists already and has PV {free}; delete that claim first");
    answers(&result, 1, &[&why]);
    in_state(&stage, &mut provisioner, &one, "Retained");
}

#[test]
fn claim_has_its_disk_again_after_that_was_moved_to_another_node() {
    let (stage, []) = or_skip!(reachable([]));
    let mut first = provisioner(&stage);
    let disk = ext4(&stage);
    let path = mount(&stage, &disk, "disks/fast/moved");
    let bound = stage.used(&stage.bind("claim", &path));
    let pv = name(&bound);
    keep_secret(&path);
    in_state(&stage, &mut first, &path, "Bound");

    // The server dies, and its disk is put into another one.
    drop(first);
    stage.sandbox.umount(&path).unwrap();
    let (node, mut second, disks) = other_node(&stage);
    let to = ["--to", &*node, "--yes"];
    let missing = format!("no volume of node {node} has the mark of PV {pv}");
    stage.pod("app", "claim");
    answers(
        &rebind(&stage, &[&[&*pv, "--timeout=1s"], &to[..]].concat()),
        1,
        &["delete the pods"],
    );
    stage.delete_pod("app", true);
    answers(
        &rebind(&stage, &[&[&*pv], &to[..]].concat()),
        1,
        &[&missing],
    );
    let at = disks.join("moved");
    let below = at.strip_prefix(stage.sandbox.path()).unwrap();
    mount(&stage, &disk, below.to_str().unwrap());
    skipped(&stage, &mut second, &at, "Dirty");
    let result = rebind(&stage, &[&pv, "--to", &node]);
    answers(&result, 2, &["there is no terminal"]);

    let result = rebind(&stage, &[&[&*pv], &to[..]].concat());
    answers(
        &result,
        0,
        &[&format!("its claim is Bound to the disk on node {node}")],
    );
    let again = stage.in_phase(&pv, "Bound");
    assert_ne!(uid(&again), uid(&bound));
    assert_eq!(stage.pvs_at(&at).len(), 1);
    assert_eq!(stage.claim_phase("claim"), "Bound");
    assert!(has_secret(&at));
    for key in ["retired", "moved-from"] {
        assert_eq!(
            annotation(&again, &format!("local-volume-provisioner/{key}")),
            None
        );
    }
    let spec = again.spec.unwrap();
    assert_eq!(
        spec.persistent_volume_reclaim_policy.as_deref(),
        Some("Delete")
    );
}
