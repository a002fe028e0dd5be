//! `adopt`: the tenants of a former cluster have their data again.

use rusqlite::Connection;
use support::killed_by;
use support::stage::{annotation, uid};

use super::*;

const FORMER: &str = "uid-of-former";

fn adopt(stage: &Stage, args: &[&str]) -> CommandResult {
    run_as_operator(stage, &[&["adopt", "--from-cluster", FORMER], args].concat())
}

/// The rows of a tenant's database, which SQLite has verified.
fn rows(volume: &Path) -> Vec<(i64, String)> {
    let database = Connection::open(volume.join("orders.db")).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let mut orders = database.prepare("SELECT id, what FROM orders ORDER BY id").unwrap();
    let rows = orders.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn write_rows(volume: &Path) {
    let mut database = Connection::open(volume.join("orders.db")).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    database
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL)")
        .unwrap();
    let orders = database.transaction().unwrap();
    for id in 0..1000 {
        let what = format!("order {id}");
        orders.execute("INSERT INTO orders VALUES (?1, ?2)", (id, what)).unwrap();
    }
    orders.commit().unwrap();
}

/// Whether a Node has an annotation of `adopt`.
fn is_annotated(stage: &Stage) -> bool {
    let annotations = annotations_of(stage, &stage.node()).to_string();
    annotations.contains("consent.local-volume-provisioner/")
}

#[test]
fn database_of_a_former_cluster_binds_to_its_claim_again() {
    let (stage, []) = or_skip!(reachable([]));
    let disk = ext4(&stage);
    let path = mount(&stage, &disk, "disks/fast/orders");
    install_again(&stage, FORMER);
    let mut former = provisioner_on(&stage, &stage.node());
    let lost = stage.used(&stage.bind("orders", &path));
    in_state(&stage, &mut former, &path, "Bound");
    write_rows(&path);
    let written = rows(&path);
    assert_eq!(written.len(), 1000);
    // The API server is lost with all PVs and claims.
    assert!(former.stop(stage.timeout()).unwrap().success());
    stage.delete_pv(&name(&lost));
    stage.patch_pv(&name(&lost), &json!({ "metadata": { "finalizers": null } }));
    is_gone(&stage, &lost);
    stage.delete_claim("orders");
    install_again(&stage, "uid-of-present");

    let mut provisioner = provisioner(&stage);
    skipped(&stage, &mut provisioner, &path, "Dirty");
    let node = stage.node();
    let shown = ["NODE", &*node, path.to_str().unwrap(), FORMER];
    answers(&adopt(&stage, &["--dry-run"]), 0, &shown);
    answers(&adopt(&stage, &[]), 2, &["there is no terminal"]);
    assert!(!is_annotated(&stage));
    skipped(&stage, &mut provisioner, &path, "Dirty");
    // A claim of another name waits for a volume.
    stage.claim("stranger", "fast", None);
    let result = adopt(&stage, &["--yes"]);
    let adopted = format!("{}: adopted: PV ", place(&stage, &path));
    answers(&result, 0, &[&adopted, "is Available", "1 of 1 volumes are adopted"]);
    let annotations = annotations_of(&stage, &node).to_string();
    assert!(!annotations.contains("salt:"), "{annotations}");
    let pv = stage.available(&path, None);
    assert_ne!(uid(&pv), uid(&lost));
    assert_eq!(annotation(&pv, "local-volume-provisioner/used"), Some("true"));
    stage.still(&mut provisioner, "no other claim gets it", || {
        stage.claim_phase("stranger") == "Pending" && is_same(&stage, &pv, "Available")
    });

    // The tenant's manifests name no volume.
    stage.claim("orders", "fast", None);
    stage.claim_in_phase("orders", "Bound");
    let bound = stage.in_phase(&name(&pv), "Bound");
    assert_eq!(uid(&bound), uid(&pv));
    assert_eq!(rows(&path), written);
    in_state(&stage, &mut provisioner, &path, "Bound");
    answers(&adopt(&stage, &["--yes"]), 2, &["no volume waits for a decision"]);

    // It is a volume as any other from here on.
    stage.delete_claim("stranger");
    stage.delete_claim("orders");
    offered_again(&stage, &path, &bound);
    assert!(entries(&path).is_empty());
}

/// The stage after its cluster was built again, and a volume of each of two nodes that the same claim has used. The disk of
/// the first one was the claim's later.
fn two_of_one_claim() -> Option<(Stage, [Program; 2], [PathBuf; 2], String)> {
    let (stage, [here]) = reachable(["vol"])?;
    install_again(&stage, FORMER);
    let node = stage.node();
    let mut former = provisioner_on(&stage, &node);
    let other = stage.named("other-node");
    stage.register_node(&other, Some(&other));
    let (mut on_other, dir) = provisioner_of_other(&stage, &other);
    let dir = dir.strip_prefix(stage.sandbox.path()).unwrap();
    let there = tmpfs(&stage, dir.join("vol").to_str().unwrap());
    // The claim is named after the entry.
    lose_pv(&stage, &mut on_other, &there);
    lose_pv(&stage, &mut former, &here);
    for mut program in [former, on_other] {
        assert!(program.stop(stage.timeout()).unwrap().success());
    }
    install_again(&stage, "uid-of-present");
    let mut provisioner = provisioner(&stage);
    let (on_other, _) = provisioner_of_other(&stage, &other);
    let mut on_other = with_pod(&stage, on_other, &other);
    for (program, path) in [(&mut provisioner, &here), (&mut on_other, &there)] {
        skipped(&stage, program, path, "Dirty");
    }
    Some((stage, [provisioner, on_other], [here, there], other))
}

#[test]
fn volumes_of_several_nodes_whose_marks_name_the_same_claim_stay() {
    let (stage, mut programs, paths, other) = or_skip!(two_of_one_claim());
    let places = [place(&stage, &paths[0]), format!("{other}:{}", paths[1].display())];
    let result = adopt(&stage, &["--yes", "--node", &stage.node()]);
    let why = "not adopted: the marks of several volumes name its claim";
    let texts = [&*places[0], &*places[1], why, "0 of 1 volumes are adopted"];
    answers(&result, 1, &texts);
    for (program, path) in programs.iter_mut().zip(&paths) {
        skipped(&stage, program, path, "Dirty");
        assert!(has_secret(path));
    }
    assert!(!is_annotated(&stage));
    // The operator knows which one the claim has used last.
    let result = run_as_operator(&stage, &["consent", &places[0], "--adopt", "--yes"]);
    answers(&result, 0, &["to the claim that its mark names", "consent given"]);
    let pv = name(&stage.available(&paths[0], None));
    stage.claim("vol", "fast", None);
    stage.claim_in_phase("vol", "Bound");
    stage.in_phase(&pv, "Bound");
    assert!(has_secret(&paths[0]));

    // The other one cannot have the claim any more.
    let result = adopt(&stage, &["--yes"]);
    let why = format!("not adopted: Dirty: {}", paths[1].display());
    answers(&result, 1, &[&why, &format!("PV {pv} names the claim of its mark")]);
    skipped(&stage, &mut programs[1], &paths[1], "Dirty");
    assert!(has_secret(&paths[1]));
    let result = run_as_operator(&stage, &["consent", &places[1], "--wipe", "--yes"]);
    answers(&result, 0, &["consent given"]);
    stage.available(&paths[1], None);
    assert!(entries(&paths[1]).is_empty());
}

#[test]
fn adoption_that_a_crash_interrupts_continues_for_the_same_claim() {
    let (stage, [path]) = or_skip!(reachable(["vol"]));
    install_again(&stage, FORMER);
    let node = stage.node();
    let mut former = provisioner_on(&stage, &node);
    lose_pv(&stage, &mut former, &path);
    assert!(former.stop(stage.timeout()).unwrap().success());
    install_again(&stage, "uid-of-present");
    let dir = stage.sandbox.dir(&format!("state-of-{node}")).unwrap();
    let dies_at = |point| {
        let directory = ("STATE_DIRECTORY", dir.to_str().unwrap());
        stage.provisioner_with(&[("MY_NODE_NAME", &node), directory, ("CRASH_AT", point)])
    };
    let is_dead = |mut program: Program| {
        let status = program.wait(stage.timeout()).unwrap();
        assert_eq!(killed_by(status), Some(9), "{status}");
        assert!(stage.pvs_at(&path).is_empty());
    };
    // Before the mark, and between the mark, which makes the consent void, and the PV.
    let program = with_pod(&stage, dies_at("write-mark"), &node);
    let place = place(&stage, &path);
    let result = run_as_operator(&stage, &["consent", &place, "--adopt", "--yes"]);
    answers(&result, 0, &["consent given"]);
    is_dead(program);
    is_dead(dies_at("create-pv"));
    stage.claim("stranger", "fast", None);
    let mut provisioner = provisioner_on(&stage, &node);
    let pv = stage.available(&path, None);
    stage.still(&mut provisioner, "no other claim gets it", || {
        stage.claim_phase("stranger") == "Pending" && is_same(&stage, &pv, "Available")
    });
    stage.claim("vol", "fast", None);
    stage.claim_in_phase("vol", "Bound");
    in_state(&stage, &mut provisioner, &path, "Bound");
    assert!(has_secret(&path));
}
