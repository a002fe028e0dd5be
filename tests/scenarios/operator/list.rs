//! `list`.

use serde_json::Value;

use super::*;

/// Two nodes. The stage's has a volume with each kind of problem and a healthy one, the other has a bound one.
struct Fleet {
    stage: Stage,
    _here: Program,
    other: (String, Program),
    dirty: PathBuf,
    wrong_pv: String,
    bound_pv: String,
    _disks: [LoopDevice; 2],
}

fn fleet() -> Option<Fleet> {
    let (stage, [_, dirty]) = reachable(["healthy", "dirty"])?;
    stage.class("slow", &json!({}));
    tmpfs(&stage, "disks/slow/other-class");
    let mut here = provisioner(&stage);
    let (_, wrong_pv, disks) = replaced_disk(&stage, &mut here, "wrong");
    lose_pv(&stage, &mut here, &dirty);
    let (node, mut other, dir) = other_node(&stage);
    let dir = dir.strip_prefix(stage.sandbox.path()).unwrap();
    let bound = tmpfs(&stage, dir.join("bound").to_str().unwrap());
    let bound_pv = name(&stage.used(&stage.bind("claim", &bound)));
    in_state(&stage, &mut other, &bound, "Bound");
    Some(Fleet {
        stage,
        _here: here,
        other: (node, other),
        dirty,
        wrong_pv,
        bound_pv,
        _disks: disks,
    })
}

/// The cells of the column ENTRY.
fn entries_in(table: &str) -> Vec<&str> {
    let mut lines = table.lines();
    let heading = lines.next().unwrap();
    assert!(heading.starts_with("NODE "), "{table}");
    lines.map(|line| line.split_whitespace().nth(2).unwrap()).collect()
}

#[test]
fn volumes_are_listed_with_problems_first() {
    let fleet = or_skip!(fleet());
    let stage = &fleet.stage;
    let list = |args: &[&str]| {
        let result = run_as_operator(stage, &[&["list"], args].concat());
        answers(&result, 0, &[]);
        assert_eq!(result.err, "");
        result.out
    };
    let table = list(&[]);
    let all = ["wrong", "dirty", "healthy", "other-class", "bound"];
    assert_eq!(entries_in(&table), all, "{table}");
    assert!(table.contains("Bound/IdentityMismatch"), "{table}");
    assert!(!table.contains("CLAIM"), "{table}");

    let (node, class) = (&fleet.other.0, stage.named("slow"));
    assert_eq!(entries_in(&list(&["--node", node])), ["bound"]);
    assert_eq!(entries_in(&list(&["--class", &class])), ["other-class"]);

    let wide = list(&["-o", "wide"]);
    assert_eq!(entries_in(&wide), all, "{wide}");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let heading = cells(wide.lines().next().unwrap());
    let row = cells(wide.lines().last().unwrap());
    let cell = |column: &str| row[heading.iter().position(|it| it == column).unwrap()].clone();
    assert_eq!(cell("CLAIM"), format!("{}/claim", stage.namespace()));
    assert_eq!((cell("POLICY"), cell("PV")), ("Delete".into(), fleet.bound_pv.clone()));
    let age = cell("AGE");
    assert!(age.ends_with(['s', 'm']) && age.starts_with(|it: char| it.is_ascii_digit()), "{wide}");

    let names = list(&["-o", "name"]);
    let names: Vec<_> = names.lines().collect();
    assert_eq!(names[0], format!("persistentvolume/{}", fleet.wrong_pv));
    assert_eq!(names[1], place(stage, &fleet.dirty));
    assert_eq!(names[4], format!("persistentvolume/{}", fleet.bound_pv));
    let document: Value = serde_json::from_str(&list(&["-o", "json"])).unwrap();
    let found = document["volumes"].as_array().unwrap();
    let found = found.iter().map(|it| it["entry"].as_str().unwrap());
    assert_eq!(found.collect::<Vec<_>>(), all, "{document}");
    assert_eq!(document["volumes"][4]["node"], *node);
    assert_eq!(document["volumes"][1]["reason"], "Dirty");
}

#[test]
fn volumes_are_listed_although_a_provisioner_does_not_answer() {
    let mut fleet = or_skip!(fleet());
    fleet.other.1.kill();
    let result = run_as_operator(&fleet.stage, &["list"]);
    let node = &fleet.other.0;
    let pod = format!("error: pod kube-system/provisioner-{node}: ");
    answers(&result, 1, &[]);
    assert!(result.err.starts_with(&pod), "{}", result.err);
    assert!(result.err.contains("503"), "{}", result.err);
    let place = format!("{node}:/no/path");
    let explained = run_as_operator(&fleet.stage, &["explain", &place]);
    let error = format!("the provisioner of node {node} does not answer: pod kube-system/");
    answers(&explained, 1, &[&error]);
    assert_eq!(entries_in(&result.out), ["wrong", "dirty", "healthy", "other-class"]);
}

/// A name that is not there is more often a typing error than an empty node.
#[test]
fn unknown_node_is_an_error() {
    let (stage, []) = or_skip!(reachable([]));
    let _provisioner = provisioner(&stage);
    let result = run_as_operator(&stage, &["list", "--node", "no-such-node"]);
    answers(
        &result,
        1,
        &["no provisioner's pod was found on node \"no-such-node\"", "--namespace"],
    );
}
