//! `explain`.

use super::*;

fn explain(stage: &Stage, volume: &str) -> CommandResult {
    run_as_operator(stage, &["explain", volume])
}

/// The lines of the checks with this sign.
fn signed(result: &CommandResult, sign: char) -> Vec<&str> {
    let lines = result.out.lines();
    lines.filter(|line| line.starts_with(sign)).collect()
}

#[test]
fn available_volume_passes_each_check() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = name(&stage.available(&path, None));
    in_state(&stage, &mut provisioner, &path, "Available");
    let place = place(&stage, &path);
    let heading = format!("{pv} at {place} of class {}\n", stage.named("fast"));
    for volume in [&pv, &format!("persistentvolume/{pv}"), &place] {
        let result = explain(&stage, volume);
        answers(&result, 0, &[&heading, "next: a claim can bind to it"]);
        assert!(!signed(&result, '✔').is_empty(), "{}", result.out);
        assert!(signed(&result, '✘').is_empty(), "{}", result.out);
        assert!(signed(&result, '-').is_empty(), "{}", result.out);
    }
}

#[test]
fn dirty_volume_is_explained_with_the_commands_that_decide() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    lose_pv(&stage, &mut provisioner, &path);
    let place = place(&stage, &path);
    let result = explain(&stage, &place);
    let commands = ["accept", "wipe"];
    let commands =
        commands.map(|verb| format!("$ kubectl local-volume consent {place} --{verb}\n"));
    answers(&result, 1, &[&commands[0], &commands[1], "next: it is not offered until you consent"]);
    let failed = signed(&result, '✘');
    assert_eq!(failed.len(), 1, "{}", result.out);
    assert!(failed[0].contains("its mark names no tenant"), "{}", failed[0]);
    assert!(!result.out.contains("--forget"), "{}", result.out);
}

#[test]
fn entry_that_is_not_mounted_is_explained() {
    let (stage, []) = or_skip!(reachable([]));
    let path = stage.sandbox.dir("disks/fast/a-directory").unwrap();
    let mut provisioner = provisioner(&stage);
    skipped(&stage, &mut provisioner, &path, "NotMounted");
    let result = explain(&stage, &place(&stage, &path));
    answers(&result, 0, &["next: it is offered as soon as it is mounted"]);
    let failed = signed(&result, '✘');
    assert_eq!(failed.len(), 1, "{}", result.out);
    assert!(failed[0].contains("it is a mount point"), "{}", failed[0]);
}

#[test]
fn unknown_volume_is_an_error_with_the_next_step() {
    let (stage, []) = or_skip!(reachable([]));
    let _provisioner = provisioner(&stage);
    let node = stage.node();
    for (volume, texts) in [
        ("no-such-pv".to_owned(), ["there is no PersistentVolume no-such-pv", "list shows all"]),
        (
            format!("{node}:/no/path"),
            ["has no volume or entry /no/path", &format!("list --node {node}")],
        ),
        (
            "no-node:/no/path".to_owned(),
            ["no provisioner's pod was found on node \"no-node\"", "check the node's name"],
        ),
    ] {
        let result = explain(&stage, &volume);
        answers(&result, 1, &texts);
        assert_eq!(result.out, "");
    }
}
