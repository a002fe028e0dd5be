//! `status`, in the provisioner's container and outside the cluster.

use serde_json::{Value, json};
use support::stage::name;
use support::{Program, Stage, skip};

use super::kit::{
    CommandResult, fast_stage, provisioner_on, provisioner_pod, ready, run_as_operator, stage_with,
    status, status_of,
};
use super::stage;

fn ask(stage: &Stage, args: &[&str]) -> CommandResult {
    let mut command = stage.command();
    command.arg("status").args(args);
    CommandResult::of(&mut command)
}

/// A status without the number of passes, which can change at any time.
fn without_pass(mut document: Value) -> Value {
    document["pass"].take();
    document
}

/// Plain HTTP needs no certificates.
#[test]
fn status_requires_no_ca_bundle() {
    let (stage, []) = or_skip!(fast_stage([]));
    let mut provisioner = stage.provisioner();
    let address = provisioner.http_address().unwrap();
    let mut command = stage.command();
    command.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere");
    command.args(["status", "--listen-address", &address]);
    let output = command.output().unwrap();
    assert!(output.stdout.starts_with(stage.node().as_bytes()), "{output:?}");
}

/// A harmless entry comes first by the alphabet, and last by what it requires.
#[test]
fn dirty_volume_is_a_problem_of_a_ready_node() {
    let (stage, []) = or_skip!(fast_stage([]));
    let volume = stage.sandbox.tmpfs("disks/fast/vol", "size=1m").unwrap();
    stage.sandbox.dir("disks/fast/a-directory").unwrap();
    let mut provisioner = stage.provisioner();
    let pv = stage.used(&stage.bind("claim", &volume));
    stage.eventually("the mark is used", || {
        status_of(&mut provisioner, &volume)["state"] == "Bound"
    });
    std::fs::write(volume.join("file"), "data").unwrap();
    stage.delete_pv(&name(&pv));
    stage.patch_pv(&name(&pv), &json!({ "metadata": { "finalizers": null } }));
    ready(&stage, &mut provisioner);
    let address = provisioner.http_address().unwrap();
    let said = stage.eventually("it is skipped", || {
        let said = ask(&stage, &["--listen-address", &address]);
        said.out.contains("Dirty").then_some(said)
    });
    assert_eq!(said.code, Some(1), "{}", said.out);
    let heading = format!("{}: ready, 1 volume with a problem\n", stage.node());
    assert!(said.out.starts_with(&heading), "{}", said.out);
    let at = |text: &str| said.out.find(text).unwrap();
    assert!(at("\nvol ") < at("\na-directory "), "{}", said.out);
}

#[test]
fn status_reports_a_healthy_node() {
    let (stage, []) = or_skip!(fast_stage([]));
    let volume = stage.sandbox.tmpfs("disks/fast/vol", "size=1m").unwrap();
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    stage.eventually("it knows that the PV is Available", || {
        status_of(&mut provisioner, &volume)["phase"] == "Available"
    });

    let address = provisioner.http_address().unwrap();
    let said = ask(&stage, &["--listen-address", &address]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let name = pv.metadata.name.unwrap();
    let heading = format!("{}: ready\n", stage.node());
    assert!(said.out.starts_with(&heading), "{}", said.out);
    let row = said.out.lines().find(|line| line.starts_with("vol "));
    let words: Vec<_> = row.unwrap().split_whitespace().collect();
    assert_eq!(words, ["vol", &name, "Available", "1Mi", "-"], "{}", said.out);
    assert!(!said.out.contains('\x1b'), "no colours in a pipe: {:?}", said.out);

    let said = ask(&stage, &["--listen-address", &address, "-o", "json"]);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    let served = without_pass(status(&mut provisioner));
    assert_eq!(without_pass(document.clone()), served);
    let said = ask(&stage, &["-listen-address", &address, "-output=yaml"]);
    let yaml: Value = serde_saphyr::from_str(&said.out).unwrap();
    assert_eq!(yaml["node"], document["node"]);
}

#[test]
fn a_node_that_is_not_ready_is_reported_with_the_reason_and_the_exit_code() {
    let stage = or_skip!(stage_with(&["--discovery-period=300ms"]));
    stage.class("fast", &json!({}));
    stage.class("broken", &json!({ "volumeMode": "Blok" }));
    let mut provisioner = stage.provisioner();
    let address = provisioner.http_address().unwrap();
    let said = stage.eventually("the fault is reported", || {
        let said = ask(&stage, &["--listen-address", &address]);
        said.out.contains("Blok").then_some(said)
    });
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(said.out.contains("NOT READY"), "{}", said.out);
    let broken = format!("class {}\nfault: ", stage.named("broken"));
    assert!(said.out.contains(&broken), "{}", said.out);
}

#[test]
fn a_provisioner_that_does_not_answer_is_reported_with_the_next_step() {
    let stage = or_skip!(stage());
    let said = ask(&stage, &["--listen-address=127.0.0.1:1"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("asking http://127.0.0.1:1 failed") && said.err.contains("--all"),
        "{}",
        said.err
    );
    for (args, words) in [
        (&["--namespace=a"][..], "--node <NAME>|--all"),
        (&["--all", "--node=a"], "cannot be used with"),
        (&["--nod=a"], "--node"),
    ] {
        let said = ask(&stage, args);
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        assert!(said.err.contains(words), "{args:?}: {}", said.err);
    }
    // The API server is no provisioner, and there is none in this cluster.
    let said = ask(&stage, &["--all", "--namespace", &stage.namespace()]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("no provisioner's pod was found"), "{}", said.err);
}

/// A stage whose pods can have the address of a provisioner, and two ready provisioners with their pods.
fn two_nodes() -> Option<(Stage, [(String, Program); 2])> {
    let (stage, []) = fast_stage([])?;
    if stage.embedded().is_none() {
        skip("a real API server connects to no loopback address");
        return None;
    }
    let provisioners = [stage.node(), stage.named("other-node")].map(|node| {
        let mut provisioner = provisioner_on(&stage, &node);
        ready(&stage, &mut provisioner);
        provisioner_pod(&stage, &mut provisioner, &node);
        (node, provisioner)
    });
    Some((stage, provisioners))
}

#[test]
fn nodes_are_shown_to_an_operator_outside_the_cluster() {
    let (stage, mut provisioners) = or_skip!(two_nodes());
    let shown = run_as_operator(&stage, &["status", "--all"]);
    assert_eq!(shown.code, Some(0), "{}{}", shown.out, shown.err);
    assert!(shown.out.starts_with("2 nodes: 2 ready\n"), "{}", shown.out);
    let shown = run_as_operator(&stage, &["status", "--all", "-o", "json"]);
    let list: Value = serde_json::from_str(&shown.out).unwrap();
    for (index, (node, provisioner)) in provisioners.iter_mut().enumerate() {
        let line = format!("{node}: ready\n");
        let one = run_as_operator(&stage, &["status", "--node", node]);
        assert_eq!(one.code, Some(0), "{}{}", one.out, one.err);
        assert!(one.out.starts_with(&line), "{}", one.out);
        let answer = &list["nodes"][index];
        assert_eq!(answer["node"], *node, "{list}");
        let served = without_pass(status(provisioner));
        assert_eq!(served["node"], *node);
        assert_eq!(without_pass(answer["status"].clone()), served);
    }
}

#[test]
fn a_node_whose_pod_cannot_be_reached_is_reported_as_not_ready() {
    let (stage, [(healthy, _running), (lost, mut provisioner)]) = or_skip!(two_nodes());
    provisioner.kill();
    let shown = run_as_operator(&stage, &["status", "--all"]);
    assert_eq!(shown.code, Some(1), "{}{}", shown.out, shown.err);
    assert!(shown.out.starts_with("2 nodes: 1 ready\n"), "{}", shown.out);
    let row = |node: &str| {
        let mut lines = shown.out.lines();
        lines.find(|line| line.starts_with(&format!("{node} ")))
    };
    let (healthy, lost_row) = (row(&healthy).unwrap(), row(&lost).unwrap());
    assert!(!healthy.contains("NOT READY"), "{}", shown.out);
    assert!(lost_row.contains("NOT READY"), "{}", shown.out);
    assert!(lost_row.contains("onnection refused"), "{}", shown.out);
    assert!(lost_row.contains("docs/status.md"), "{}", shown.out);
}
