//! `retire` and `replace`.

use std::thread;

use k8s_openapi::api::core::v1::PersistentVolume;
use support::stage::annotation;

use super::*;

const RETIRED: &str = "local-volume-provisioner/retired";

/// A volume with the secret of a claim and its pod.
fn in_use(stage: &Stage, provisioner: &mut Program, claim: &str, path: &Path) -> String {
    let pv = stage.used(&stage.bind(claim, path));
    stage.pod(&format!("pod-of-{claim}"), claim);
    keep_secret(path);
    in_state(stage, provisioner, path, "Bound");
    name(&pv)
}

/// Runs the command beside the steps of an operator on the node.
fn beside(stage: &Stage, args: &[&str], on_node: impl FnOnce()) -> CommandResult {
    let kubeconfig = stage.sandbox.path().join("kubeconfig");
    let mut command = support::bare_command(crate::BINARY);
    command.env("KUBECONFIG", kubeconfig).args(args);
    thread::scope(|scope| {
        let running = scope.spawn(|| CommandResult::of(command.arg("--timeout=2m")));
        on_node();
        running.join().unwrap()
    })
}

fn policy(pv: &PersistentVolume) -> String {
    let spec = pv.spec.as_ref().unwrap();
    spec.persistent_volume_reclaim_policy.clone().unwrap()
}

fn reserved_for(pv: &PersistentVolume) -> Option<String> {
    pv.spec.as_ref().unwrap().claim_ref.as_ref()?.name.clone()
}

/// Waits until a PV is withheld and in a phase.
fn withheld(stage: &Stage, pv: &str, phase: &str) {
    let found = stage.eventually("the PV is withheld", || {
        let found = stage.in_phase(pv, phase);
        (policy(&found) == "Retain").then_some(found)
    });
    assert_eq!(annotation(&found, RETIRED), Some("Delete"));
}

fn pv_is_deleted(stage: &Stage, pv: &str) {
    stage.eventually("the PV is deleted", || stage.pv(pv).is_none());
}

#[test]
fn failed_disk_is_replaced() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = in_use(&stage, &mut provisioner, "claim", &path);
    let result = beside(&stage, &["replace", &pv, "--yes"], || {
        withheld(&stage, &pv, "Released");
        assert!(has_secret(&path), "nothing is cleaned");
        let result = run_as_operator(&stage, &["retire", &pv, "--abort"]);
        answers(&result, 2, &["its claim is deleted, so nothing was changed"]);
        assert_eq!(policy(&stage.pv(&pv).unwrap()), "Retain");
        stage.sandbox.umount(&path).unwrap();
        pv_is_deleted(&stage, &pv);
        stage.sandbox.tmpfs("disks/fast/vol", "size=16m").unwrap();
    });
    let place = place(&stage, &path);
    answers(
        &result,
        0,
        &[
            "its data stays on the disk",
            "pod-of-claim",
            &format!("{place}: the old disk can be removed"),
            &format!("PV {pv} is Available"),
        ],
    );
    let fresh = stage.available(&path, None);
    assert_eq!(policy(&fresh), "Delete");
}

#[test]
fn disk_without_a_claim_is_taken_out_or_offered_again() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = name(&stage.available(&path, None));
    in_state(&stage, &mut provisioner, &path, "Available");
    let run = |args: &[&str]| run_as_operator(&stage, &[&["retire", &*pv], args].concat());

    let result = run(&["--dry-run"]);
    answers(&result, 0, &["next: no other claim can bind to it"]);
    assert_eq!(policy(&stage.pv(&pv).unwrap()), "Delete");
    answers(&run(&["--abort"]), 2, &["no PV can be offered again"]);

    let result = run(&["--timeout=3s"]);
    answers(&result, 1, &["umount", "run the command again to continue"]);
    withheld(&stage, &pv, "Available");
    assert_eq!(reserved_for(&stage.pv(&pv).unwrap()), Some("taken-out".into()));
    answers(&run(&["--abort"]), 0, &["offered again, policy Delete"]);
    let found = stage.pv(&pv).unwrap();
    assert_eq!((policy(&found).as_str(), reserved_for(&found)), ("Delete", None));
    assert_eq!(annotation(&found, RETIRED), None);

    let result = beside(&stage, &["retire", &pv], || {
        withheld(&stage, &pv, "Available");
        stage.sandbox.umount(&path).unwrap();
    });
    answers(&result, 0, &["deleting its PV"]);
    pv_is_deleted(&stage, &pv);
}

#[test]
fn node_is_retired_after_its_volumes_are_cleaned() {
    let (stage, [used, unused]) = or_skip!(reachable(["used", "unused"]));
    let mut provisioner = provisioner(&stage);
    let of_unused = name(&stage.available(&unused, None));
    let pv = in_use(&stage, &mut provisioner, "claim", &used);
    let node = stage.node();
    let result = beside(&stage, &["retire", "--node", &node, "--yes"], || {
        stage.eventually("the volume is clean and withheld", || {
            let found = stage.pv(&pv)?;
            (reserved_for(&found)? == "taken-out").then_some(())
        });
        withheld(&stage, &of_unused, "Available");
        assert!(entries(&used).is_empty());
        for path in [&used, &unused] {
            stage.sandbox.umount(path).unwrap();
        }
    });
    answers(
        &result,
        0,
        &[
            &format!("node {node}: cordoned"),
            "its data is wiped",
            &format!("kubectl delete node {node}"),
        ],
    );
    let result = run_as_operator(&stage, &["retire", "--node", &node, "--abort"]);
    answers(&result, 2, &["no PV can be offered again"]);
    assert!(stage.pvs().is_empty());
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let spec = stage.request(nodes.get(&node)).spec.unwrap();
    assert_eq!(spec.unschedulable, Some(true));
}

#[test]
fn without_an_answer_no_claim_is_deleted() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = in_use(&stage, &mut provisioner, "claim", &path);
    let node = stage.node();
    for command in [&["retire", &*pv][..], &["replace", &pv], &["retire", "--node", &node]] {
        let result = run_as_operator(&stage, &[command, &["--dry-run"]].concat());
        answers(&result, 0, &["claim", "pod-of-claim", "next: "]);
        let result = run_as_operator(&stage, command);
        answers(&result, 2, &["there is no terminal", "pod-of-claim"]);
    }
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let spec = stage.request(nodes.get(&node)).spec.unwrap();
    assert_eq!(spec.unschedulable, None, "it is not cordoned");
    let found = stage.pv(&pv).unwrap();
    assert_eq!((policy(&found).as_str(), annotation(&found, RETIRED)), ("Delete", None));
    assert_eq!(stage.claim_phase("claim"), "Bound");
    stage.still(&mut provisioner, "nothing is changed", || has_secret(&path));
}
