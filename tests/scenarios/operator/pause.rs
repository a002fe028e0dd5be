//! `pause` and `resume`.

use super::*;

/// A volume of a tenant whose provisioner has its Pod.
fn reachable_volume() -> Option<Occupied> {
    let mut volume = Occupied::fast(embedded(crate::stage()?)?);
    let (stage, provisioner) = (&volume.stage, &mut volume.provisioner);
    ready(stage, provisioner);
    provisioner_pod(stage, provisioner, &stage.node());
    in_state(stage, provisioner, &volume.path, "Bound");
    Some(volume)
}

fn run(stage: &Stage, args: &[&str], texts: &[&str]) {
    answers(&run_as_operator(stage, args), 0, texts);
}

/// The volume is released, and cleaned only after these arguments resume it.
fn is_cleaned_after(volume: &mut Occupied, args: &[&str], texts: &[&str]) {
    volume.release();
    in_state(&volume.stage, &mut volume.provisioner, &volume.path, "Paused");
    volume.pv = volume.stage.pv(&name(&volume.pv)).unwrap();
    volume.is_kept("Released", "cleaning is paused");
    run(&volume.stage, &[args, &["--dry-run"]].concat(), &["would be resumed"]);
    volume.is_kept("Released", "a dry run changes nothing");
    run(&volume.stage, args, texts);
    volume.is_cleaned();
}

#[test]
fn paused_pv_is_cleaned_after_resume() {
    let mut volume = or_skip!(reachable_volume());
    let pv = name(&volume.pv);
    run(&volume.stage, &["pause", &pv, "--dry-run"], &[&format!("PV {pv}: would be paused")]);
    volume.pv = volume.stage.pv(&pv).unwrap();
    volume.is_kept("Bound", "a dry run changes nothing");
    assert!(!json!(volume.pv.metadata.annotations).to_string().contains(PAUSED));
    run(&volume.stage, &["pause", &pv], &[&format!("PV {pv}: paused")]);
    let resumed = format!("PV {pv}: resumed");
    is_cleaned_after(&mut volume, &["resume", &pv], &[&resumed]);
}

#[test]
fn paused_node_cleans_after_resume() {
    let mut volume = or_skip!(reachable_volume());
    let node = volume.stage.node();
    run(
        &volume.stage,
        &["pause", "--node", &node, "--dry-run"],
        &[&format!("node {node}: would be paused")],
    );
    assert!(annotations_of(&volume.stage, &node)[PAUSED].is_null());
    run(&volume.stage, &["pause", "--node", &node], &[&format!("node {node}: paused")]);
    // The command returns when the provisioner has applied it.
    assert_eq!(status(&mut volume.provisioner)["paused"], true);
    let resumed = format!("node {node}: resumed");
    is_cleaned_after(&mut volume, &["resume", "--node", &node], &[&resumed]);
}

#[test]
fn all_nodes_are_paused_and_resumed() {
    let mut volume = or_skip!(reachable_volume());
    let (other, mut of_other, _) = other_node(&volume.stage);
    let nodes = [volume.stage.node(), other];
    let all = |what| [0, 1].map(|at| format!("node {}: {what}\n", nodes[at])).concat();
    run(&volume.stage, &["pause", "--all", "--dry-run"], &[&all("would be paused")]);
    assert!(nodes.iter().all(|node| annotations_of(&volume.stage, node)[PAUSED].is_null()));
    run(&volume.stage, &["pause", "--all"], &[&all("paused")]);
    for provisioner in [&mut volume.provisioner, &mut of_other] {
        assert_eq!(status(provisioner)["paused"], true);
    }
    let resumed = all("resumed");
    is_cleaned_after(&mut volume, &["resume", "--all"], &[&resumed]);
    volume
        .stage
        .eventually("the other node is resumed", || status(&mut of_other)["paused"] == false);
}

#[test]
fn unknown_pv_and_node_cannot_be_paused() {
    let (stage, []) = or_skip!(reachable([]));
    let _provisioner = provisioner(&stage);
    let result = run_as_operator(&stage, &["pause", "no-such-pv"]);
    answers(&result, 1, &["there is no PersistentVolume no-such-pv"]);
    let result = run_as_operator(&stage, &["pause", "--node=no-such-node"]);
    answers(&result, 1, &["no provisioner's pod was found on node \"no-such-node\""]);
    answers(&run_as_operator(&stage, &["pause"]), 2, &["<PV|--node <NAME>|--all>"]);
}
