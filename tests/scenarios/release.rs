//! `release --finalizers`: PVs that are released without the provisioner, and those that must not be.

mod faults;
mod installed;
mod others;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control_plane::requests::Verb;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use local_volume_provisioner::names::ANNOTATION_INSTALLATION;
use serde_json::{Value, json};
use support::Stage;
use support::skip;
use support::stage::is_terminating;

use crate::kit::*;
use crate::stage;

const DAEMON_SET: &str = "provisioner";
const PVS: &str = "persistentvolumes";
/// With a limit on each wait, so that no failure takes minutes.
const UNINSTALL: [&str; 6] = uninstall("--absent-for=1s", "--timeout=30s");
/// The same, for a wait that times out.
const UNINSTALL_TIMES_OUT: [&str; 6] = uninstall("--absent-for=0s", "--timeout=2s");

const fn uninstall<'a>(absent_for: &'a str, timeout: &'a str) -> [&'a str; 6] {
    ["release", "--finalizers", "--daemonset", DAEMON_SET, absent_for, timeout]
}

/// A stage with the class `fast` in a cluster of its own.
fn own_cluster() -> Option<Stage> {
    let stage = stage()?;
    if stage.embedded().is_none() {
        skip("the controller of a real cluster would run Pods of its own for the DaemonSet");
        return None;
    }
    stage.class("fast", &json!({}));
    Some(stage)
}

/// Starts the command, and does not wait for its end.
fn start(stage: &Stage, args: &[&str]) -> Child {
    spawn(stage.command().args(args))
}

fn spawn(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the end of a command, which must have this exit code; what it printed.
fn ended(running: Child, code: i32) -> String {
    let output = running.wait_with_output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

fn run(stage: &Stage, args: &[&str], code: i32) -> String {
    ended(start(stage, args), code)
}

fn daemon_sets(stage: &Stage) -> Api<DaemonSet> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

fn pods(stage: &Stage) -> Api<Pod> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

/// The container of a provisioner, as far as it is visible.
fn container() -> Value {
    json!({ "name": "provisioner", "image": "none" })
}

/// Deletes the DaemonSet; what becomes of its Pods is in the policy.
fn delete_daemon_set(stage: &Stage, policy: PropagationPolicy) {
    let stays = policy == PropagationPolicy::Foreground;
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    stage.request(daemon_sets(stage).delete(DAEMON_SET, &params));
    if !stays {
        stage.eventually("the DaemonSet is gone", || !is_installed(stage));
    }
}

/// The DaemonSet of an installation, with one Pod on our node.
fn install(stage: &Stage) {
    let labels = json!({ "app": "provisioner" });
    let container = container();
    let set = json!({
        "metadata": { "name": DAEMON_SET },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    let set = stage.create(&daemon_sets(stage), set);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": DAEMON_SET,
        "uid": set.metadata.uid, "controller": true, "blockOwnerDeletion": true,
    });
    let pod = json!({
        "metadata": { "name": "provisioner-1", "labels": labels, "ownerReferences": [owner] },
        "spec": {
            "nodeName": stage.node(), "terminationGracePeriodSeconds": 1, "containers": [container],
        },
    });
    stage.create(&pods(stage), pod);
    stage.pod_in_phase("provisioner-1", "Running");
}

fn is_installed(stage: &Stage) -> bool {
    stage.request(daemon_sets(stage).get_opt(DAEMON_SET)).is_some()
}

/// A PV with our finalizer, in a phase, of another node, whose provisioner does not run.
fn held(stage: &Stage, base: &str, phase: &str) -> String {
    let pv = stage.named(base);
    let path = format!("/mnt/elsewhere/{base}");
    let mut object = pv_by_hand(stage, &pv, "fast", path.as_ref(), "20Mi");
    let term = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    let elsewhere = stage.named("elsewhere");
    *object.pointer_mut(term).unwrap() = json!([elsewhere]);
    object["metadata"]["labels"] = json!({ "kubernetes.io/hostname": elsewhere });
    object["metadata"]["finalizers"] = json!(["local-volume-provisioner/cleanup"]);
    let installation = format!("{}/{DAEMON_SET}", stage.namespace());
    object["metadata"]["annotations"][ANNOTATION_INSTALLATION] = json!(installation);
    stage.create_pv(object);
    stage.in_phase(&pv, "Available");
    if phase != "Available" {
        stage.claim(base, "fast", Some(&pv));
        stage.in_phase(&pv, "Bound");
    }
    if phase == "Released" {
        stage.delete_claim(base);
        stage.in_phase(&pv, "Released");
    }
    pv
}

fn is_held(stage: &Stage, pv: &str) -> bool {
    is_protected(&stage.pv(pv).unwrap())
}

#[test]
fn without_its_provisioner_a_pv_is_released_if_nothing_is_to_be_cleaned() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let free = held(&stage, "free", "Available");
    let bound = held(&stage, "bound", "Bound");
    let gone = held(&stage, "gone", "Available");
    stage.delete_pv(&gone);
    assert!(is_held(&stage, &gone));

    delete_daemon_set(&stage, PropagationPolicy::Background);
    run(&stage, &UNINSTALL, 0);
    for pv in [free, bound] {
        assert!(!is_held(&stage, &pv), "{pv}");
        assert!(!is_terminating(&stage.pv(&pv).unwrap()), "{pv}");
    }
    stage.eventually("the one that was never used is gone", || stage.pv(&gone).is_none());

    let text = run(&stage, &UNINSTALL, 0);
    assert!(text.contains("from 0 Pers"), "{text}");
}

#[test]
fn data_that_was_not_cleaned_keeps_its_finalizer_and_is_listed() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let free = held(&stage, "free", "Available");
    let released = held(&stage, "released", "Released");
    let deleted = held(&stage, "deleted", "Released");
    stage.delete_pv(&deleted);
    let marked = held(&stage, "marked", "Released");
    // One whose wipe has not begun, and one that may be half wiped.
    let paused = held(&stage, "paused", "Released");
    annotate(&stage, &paused, "local-volume-provisioner/paused", "true");
    let wiped = held(&stage, "wiped", "Released");
    for pv in [&marked, &paused, &wiped] {
        annotate(&stage, pv, "local-volume-provisioner/offer", "token");
    }
    for pv in [&paused, &wiped] {
        stage.delete_pv(pv);
    }

    delete_daemon_set(&stage, PropagationPolicy::Background);
    let text = run(&stage, &UNINSTALL, 1);
    assert!(text.contains(&format!("MARKED: PV {marked} ")), "{text}");
    assert!(!is_held(&stage, &marked));
    stage.eventually("the paused one is gone", || stage.pv(&paused).is_none());
    assert!(text.contains("--abandon-unmarked"), "{text}");
    for (base, why) in
        [("released", "released, not"), ("deleted", "deleted, not"), ("wiped", "deleted, not")]
    {
        let (path, claim) =
            (format!("/mnt/elsewhere/{base}"), format!("{}/{base}", stage.namespace()));
        let unclean = format!("UNCLEAN: PV {} ", stage.named(base));
        let row = text.lines().find(|line| line.starts_with(&unclean));
        let row = row.unwrap_or_default();
        for words in [&stage.named("elsewhere"), &path, &claim, why] {
            assert!(row.contains(words), "{words:?} in {row:?} of:\n{text}");
        }
    }
    assert!(!is_held(&stage, &free));
    assert!([&released, &deleted, &wiped].iter().all(|pv| is_held(&stage, pv)));

    let abandon = [&UNINSTALL[..], &["--abandon-unmarked"]].concat();
    let text = run(&stage, &abandon, 0);
    let loud = text.lines().filter(|line| line.starts_with("ABANDONED")).collect::<Vec<_>>();
    assert_eq!(loud.len(), 2, "{text}");
    let line = loud.iter().find(|line| line.contains(&released)).unwrap();
    assert!(line.contains("/mnt/elsewhere/released"), "{text}");
    assert!(!is_held(&stage, &released));
    assert!(text.contains(&format!("MARKED: PV {wiped} ")), "{text}");
    for pv in [&deleted, &wiped] {
        stage.eventually("the deleted one is gone", || stage.pv(pv).is_none());
    }
}

#[test]
fn a_node_must_be_gone_by_name_and_by_label() {
    let (stage, []) = or_skip!(fast_stage([]));
    let theirs = held(&stage, "theirs", "Available");
    let (node, another) = (stage.named("elsewhere"), stage.named("another"));
    let args = ["release", "--finalizers", "--node", &node];
    let nodes: Api<Node> = Api::all(stage.client.clone());
    for (name, label) in [(&node, &another), (&another, &node)] {
        stage.register_node(name, Some(label));
        let text = run(&stage, &args, 2);
        assert!(text.contains(&format!("there is the Node {name}")), "{text}");
        assert!(is_held(&stage, &theirs));
        stage.request(nodes.delete(name, &DeleteParams::default()));
    }
    let ours = stage.named("ours");
    let mut of_ours = pv_by_hand(&stage, &ours, "fast", "/mnt/elsewhere/ours".as_ref(), "20Mi");
    of_ours["metadata"]["finalizers"] = json!(["local-volume-provisioner/cleanup"]);
    stage.create_pv(of_ours);
    run(&stage, &args, 0);
    assert!(!is_held(&stage, &theirs));
    assert!(is_held(&stage, &ours), "of a node that is there");
}

#[test]
fn a_node_without_volumes_is_reported() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let text = run(&stage, &["release", "--finalizers", "--node=typo"], 1);
    assert!(text.contains("No PersistentVolume names node \"typo\""), "{text}");
    assert!(is_held(&stage, &free));
    let text = run(&stage, &["release", "--finalizers", "--node="], 2);
    assert!(text.contains("--node"), "{text}");
}
