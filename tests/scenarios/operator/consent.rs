//! `consent`.

use support::stage::uid;

use super::*;

/// A stage with a dirty volume, and its NODE:PATH.
fn dirty() -> Option<(Stage, Program, PathBuf, String)> {
    let (stage, [path]) = reachable(["vol"])?;
    let mut provisioner = provisioner(&stage);
    lose_pv(&stage, &mut provisioner, &path);
    let place = place(&stage, &path);
    Some((stage, provisioner, path, place))
}

fn consent(stage: &Stage, args: &[&str]) -> CommandResult {
    run_as_operator(stage, &[&["consent"], args].concat())
}

/// Whether an annotation of the stage's node is a consent.
fn is_given(stage: &Stage) -> bool {
    let annotations = annotations_of(stage, &stage.node());
    annotations.to_string().contains("consent.local-volume-provisioner/")
}

#[test]
fn dirty_volume_is_wiped_with_consent() {
    let (stage, _provisioner, path, place) = or_skip!(dirty());
    let result = consent(&stage, &[&place, "--wipe", "--yes"]);
    let given = format!("{place}: consent given");
    answers(&result, 0, &["its data is lost", &given]);
    stage.available(&path, None);
    assert!(entries(&path).is_empty());
}

#[test]
fn dirty_volume_is_offered_with_its_data_with_consent() {
    let (stage, _provisioner, path, place) = or_skip!(dirty());
    let result = consent(&stage, &[&place, "--accept", "--yes"]);
    answers(&result, 0, &["the next tenant can read", "consent given"]);
    stage.available(&path, None);
    assert!(has_secret(&path));
}

#[test]
fn without_an_answer_nothing_is_changed() {
    let (stage, mut provisioner, path, place) = or_skip!(dirty());
    for (args, code, texts) in [
        (&[][..], 0, &["--wipe", "--accept", "cause"][..]),
        (&["--wipe", "--dry-run"], 0, &["the consent would be wipe:"]),
        (&["--wipe"], 2, &["there is no terminal", "--yes"]),
        (
            &["--forget", "--yes"],
            2,
            &["does not wait for a consent to forget", "nothing was changed"],
        ),
        (&["--wipe", "--accept", "--yes"], 2, &["cannot be used with"]),
    ] {
        let result = consent(&stage, &[&[&*place], args].concat());
        answers(&result, code, texts);
        assert!(!is_given(&stage), "{args:?}");
    }
    answers(&consent(&stage, &["--wipe"]), 2, &["<PV|NODE:PATH|--all>"]);
    stage.still(&mut provisioner, "it is as it was", || has_secret(&path));
    skipped(&stage, &mut provisioner, &path, "Dirty");
}

#[test]
fn volume_that_waits_for_no_consent_cannot_be_wiped() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    let mut provisioner = provisioner(&stage);
    let pv = stage.used(&stage.bind("claim", &path));
    keep_secret(&path);
    in_state(&stage, &mut provisioner, &path, "Bound");
    let name = name(&pv);
    let result = consent(&stage, &[&name]);
    answers(&result, 0, &["it waits for no consent"]);
    for verb in ["--wipe", "--accept", "--forget"] {
        let result = consent(&stage, &[&name, verb, "--yes"]);
        answers(
            &result,
            2,
            &["does not wait for a consent", "(state Bound)", &format!("see explain {name}")],
        );
    }
    let pv = stage.pv(&name).unwrap();
    stage.still(&mut provisioner, "nothing is wiped", || {
        has_secret(&path) && is_untouched(&stage, &pv, "Bound")
    });
}

/// A Released PV with another disk at its path, on which the secret is.
fn mismatch() -> Option<(Stage, Program, PathBuf, String, [LoopDevice; 2])> {
    let (stage, []) = reachable([])?;
    let mut provisioner = provisioner(&stage);
    let (path, pv, disks) = replaced_disk(&stage, &mut provisioner, "vol");
    stage.delete_claim("vol");
    stage.in_phase(&pv, "Released");
    stage.eventually("it waits for a consent", || {
        let cleanup = status_of(&mut provisioner, &path).to_string();
        cleanup.contains("wipe:")
    });
    Some((stage, provisioner, path, pv, disks))
}

#[test]
fn other_disk_is_wiped_with_consent() {
    let (stage, _provisioner, path, pv, _disks) = or_skip!(mismatch());
    let old = stage.pv(&pv).unwrap();
    let result = consent(&stage, &[&pv, "--wipe", "--yes"]);
    let given = format!("{pv}: consent given");
    answers(
        &result,
        0,
        &["IdentityMismatch", &identity(&old), "the disk that is there is wiped", &given],
    );
    offered_again(&stage, &path, &old);
    assert!(entries(&path).is_empty());
}

#[test]
fn pv_of_another_disk_is_forgotten_and_the_disk_keeps_its_data() {
    let (stage, mut provisioner, path, pv, _disks) = or_skip!(mismatch());
    let old = uid(&stage.pv(&pv).unwrap());
    let result = consent(&stage, &[&pv, "--forget", "--yes"]);
    answers(&result, 0, &["the PV is deleted and no disk is touched", "consent given"]);
    stage.eventually("the PV is deleted", || stage.pvs_at(&path).iter().all(|pv| uid(pv) != old));
    stage.still(&mut provisioner, "nothing is wiped", || has_secret(&path));
}

/// Volumes of two former clusters and of this one.
#[test]
fn volumes_of_one_former_cluster_are_wiped_together() {
    let (stage, []) = or_skip!(reachable([]));
    let node = stage.node();
    let paths = ["former", "third", "this"].map(|cluster| {
        install_again(&stage, &format!("uid-of-{cluster}"));
        let path = fast(&stage, cluster);
        let mut program = provisioner_on(&stage, &node);
        lose_pv(&stage, &mut program, &path);
        assert!(program.stop(stage.timeout()).unwrap().success());
        path
    });
    let mut provisioner = provisioner(&stage);
    for path in &paths {
        skipped(&stage, &mut provisioner, path, "Dirty");
    }
    let class = stage.named("fast");
    let all = |from: &str, others: &[&str]| {
        let args = ["--all", "--class", &class, "--from-cluster", from];
        consent(&stage, &[&args, others].concat())
    };
    let result = all("uid-of-this", &["--wipe", "--yes"]);
    answers(&result, 2, &["--from-cluster uid-of-this is this cluster"]);
    let result = all("uid-of-none", &["--wipe", "--yes"]);
    answers(&result, 2, &[&format!("no volume of class {class}"), "uid-of-none"]);
    answers(&all("uid-of-former", &["--wipe"]), 2, &["there is no terminal"]);
    answers(
        &all("uid-of-former", &["--forget", "--yes"]),
        2,
        &["--all requires --wipe or --accept"],
    );
    let place = place(&stage, &paths[0]);
    let result = all("uid-of-former", &["--wipe", "--dry-run"]);
    answers(&result, 0, &[&format!("{place}: the consent would be wipe:")]);
    assert!(!is_given(&stage));

    let result = all("uid-of-former", &["--wipe", "--yes"]);
    answers(&result, 0, &[&format!("{place}: consent given")]);
    stage.available(&paths[0], None);
    assert!(entries(&paths[0]).is_empty());
    stage.still(&mut provisioner, "the others are left", || {
        paths[1..].iter().all(|path| has_secret(path))
    });
    for path in &paths[1..] {
        skipped(&stage, &mut provisioner, path, "Dirty");
    }
}
