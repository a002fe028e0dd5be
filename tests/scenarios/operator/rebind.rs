//! `rebind`.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use support::stage::{annotation, is_terminating, uid};

use super::*;

fn rebind(stage: &Stage, args: &[&str]) -> CommandResult {
    run_as_operator(stage, &[&["rebind"], args].concat())
}

const ORDERS: [(i64, &str); 3] = [(1, "table"), (2, "chair"), (3, "lamp")];

/// Writes a database as its server leaves it when it dies: the rows are in the log only.
fn write_orders(volume: &Path) {
    let database = Connection::open(volume.join("shop.db")).unwrap();
    let is_set = database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    assert!(is_set.unwrap());
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    let table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)";
    database.execute(table, ()).unwrap();
    for order in ORDERS {
        database.execute("INSERT INTO orders VALUES (?, ?)", order).unwrap();
    }
    drop(database);
    assert!(volume.join("shop.db-wal").metadata().unwrap().len() > 0);
}

/// The rows of the database, which is intact.
fn orders(volume: &Path) -> Vec<(i64, String)> {
    let database = Connection::open(volume.join("shop.db")).unwrap();
    let check = database.query_row("PRAGMA integrity_check", (), |row| row.get(0));
    assert_eq!(check, Ok("ok".to_owned()));
    let mut all = database.prepare("SELECT id, item FROM orders ORDER BY id").unwrap();
    let rows = all.query_map((), |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
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
    answers(&result, 0, &[&format!("claim {claim} is created again"), &bound_again]);
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
    answers(&result, 1, &["was bound to no claim", "nothing was changed"]);

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
fn claim_has_its_database_again_after_its_disk_was_moved_to_another_node() {
    let (stage, []) = or_skip!(reachable([]));
    let mut first = provisioner(&stage);
    let disk = ext4(&stage);
    let path = mount(&stage, &disk, "disks/fast/moved");
    let bound = stage.used(&stage.bind("claim", &path));
    let pv = name(&bound);
    in_state(&stage, &mut first, &path, "Bound");
    stage.pod("app", "claim");
    write_orders(&path);
    let (node, mut second, disks) = other_node(&stage);
    let move_to_node = |args: &[&str]| rebind(&stage, &[&[&*pv, "--to", &node], args].concat());
    let in_use = format!("{} reports the disk of PV {pv} as in use", place(&stage, &path));
    answers(&move_to_node(&["--yes"]), 1, &[&in_use]);

    // The server dies, and its disk is put into another one.
    first.kill();
    stage.sandbox.umount(&path).unwrap();
    let missing = format!("no volume has the mark of PV {pv} (of PV UID {})", uid(&bound));
    answers(&move_to_node(&["--yes"]), 1, &[&missing]);
    let at = disks.join("moved");
    let below = at.strip_prefix(stage.sandbox.path()).unwrap();
    mount(&stage, &disk, below.to_str().unwrap());
    skipped(&stage, &mut second, &at, "Dirty");
    answers(&move_to_node(&[]), 2, &["there is no terminal"]);
    let app = format!("{}/app", stage.namespace());
    let result = move_to_node(&["--yes", "--timeout=1s"]);
    answers(&result, 1, &["delete the pods of its claim", &app]);
    assert!(is_same(&stage, &bound, "Bound"));
    stage.delete_pod("app", true);
    let place = format!("{node}:{}: Skipped Dirty", at.display());
    let result = move_to_node(&["--dry-run"]);
    answers(&result, 0, &["not known: pod", &place, "the policy is set to Retain"]);
    assert!(is_same(&stage, &bound, "Bound"));

    // Each run takes one step, as if it were interrupted.
    let mut shown = String::new();
    stage.eventually("the claim has its disk", || {
        let result = move_to_node(&["--yes", "--timeout=0s"]);
        shown += &result.out;
        let is_done = result.code == Some(0);
        assert!(is_done || result.err.contains("run the command again"), "{}", result.err);
        is_done
    });
    let done = format!("claim {}/claim is Bound to its disk on node {node}", stage.namespace());
    for text in ["the PV is created again", "the disk is verified", &done] {
        assert!(shown.contains(text), "no {text:?} in:\n{shown}");
    }
    let again = stage.in_phase(&pv, "Bound");
    assert_ne!(uid(&again), uid(&bound));
    assert_eq!(stage.pvs_at(&at).len(), 1);
    assert_eq!(stage.claim_phase("claim"), "Bound");
    for key in ["retired", "moved-from"] {
        let key = format!("local-volume-provisioner/{key}");
        assert_eq!(annotation(&again, &key), None);
    }
    let policy = again.spec.unwrap().persistent_volume_reclaim_policy;
    assert_eq!(policy.as_deref(), Some("Delete"));
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let annotations = stage.request(nodes.get(&node)).metadata.annotations;
    let annotations = annotations.unwrap_or_default();
    assert!(annotations.keys().all(|key| !key.starts_with("rebind.")));
    in_state(&stage, &mut second, &at, "Bound");
    assert_eq!(orders(&at), ORDERS.map(|(id, item)| (id, item.to_owned())));
    answers(&move_to_node(&[]), 0, &[&done]);
}
