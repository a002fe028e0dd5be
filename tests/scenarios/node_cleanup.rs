//! `node-cleanup`: what becomes of claims and PVs when their nodes are gone, and of those that are not.

mod bad_input;
mod csi;
mod doubts;
mod lost_answers;
mod scale;

use std::time::{Duration, Instant};

use control_plane::requests::{Request, Verb};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use support::stage::{is_terminating, name};
use support::{Program, Stage};

use crate::kit::*;
use crate::stage;

const PVS: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
/// How long the deletion of something may take: the longest delay of these tests, and a margin.
const DELAY_AND_MORE: Duration = Duration::from_secs(25);

/// The delay until a claim is deleted: in a real cluster, some checks take a while.
fn delay(stage: &Stage) -> Duration {
    Duration::from_secs(if stage.embedded().is_some() { 10 } else { 20 })
}

fn delay_flag(stage: &Stage) -> String {
    format!("--pvc-deletion-delay={:?}", delay(stage))
}

/// Starts the controller for the class `fast`.
fn cleanup(stage: &Stage, log: &str, args: &[&str]) -> Program {
    let mut command = stage.command();
    command
        .args(["node-cleanup", "--listen-address=127.0.0.1:0", "--v=4"])
        .args(["--stale-pv-discovery-interval=200ms", "--requests-per-second=200"])
        .arg(format!("--storageclass-names={}", stage.named("fast")))
        .args(args);
    let log = stage.sandbox.path().join(format!("{log}.log"));
    Program::start(command, log).unwrap()
}

/// The same, once it has listed all.
fn synced(stage: &Stage, log: &str, args: &[&str]) -> Program {
    let mut program = cleanup(stage, log, args);
    stage.eventually("it has listed all", || {
        (program.http_get("/ready").ok()? == (200, "ok\n".into())).then_some(())
    });
    program
}

/// A PV on a node by label, made by a provisioner of the node.
fn pv(stage: &Stage, base: &str, node: &str, change: impl FnOnce(&mut Value)) -> String {
    let pv = new_pv(stage, base, node, change);
    stage.in_phase(&pv, "Available");
    pv
}

fn new_pv(stage: &Stage, base: &str, node: &str, change: impl FnOnce(&mut Value)) -> String {
    name(&stage.create_pv(pv_object(stage, base, node, change)))
}

fn pv_object(stage: &Stage, base: &str, node: &str, change: impl FnOnce(&mut Value)) -> Value {
    let pv = stage.named(base);
    let path = format!("/mnt/elsewhere/{base}");
    let mut object = pv_by_hand(stage, &pv, "fast", path.as_ref(), "20Mi");
    let uid = "01234567-89ab-cdef-0123-456789abcdef";
    object["metadata"]["annotations"] = json!({
        "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{node}-{uid}"),
    });
    *object.pointer_mut(HOSTS).unwrap() = json!([node]);
    change(&mut object);
    object
}

/// Waits until all PVs were reconciled again: it deletes one without data, of a node that
/// never was, and would delete claims first.
fn reconciles_again(stage: &Stage) {
    let marker = new_pv(stage, "marker", &stage.named("nowhere"), |_| {});
    pv_goes(stage, &marker);
}

const HOSTS: &str = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";

fn bound(stage: &Stage, base: &str, node: &str) -> String {
    let pv = pv(stage, base, node, |_| {});
    stage.claim(base, "fast", Some(&pv));
    stage.claim_in_phase(base, "Bound");
    stage.in_phase(&pv, "Bound");
    pv
}

fn released(stage: &Stage, base: &str, node: &str, change: impl FnOnce(&mut Value)) -> String {
    let pv = pv(stage, base, node, change);
    bind_and_release(stage, base, &pv, "fast");
    pv
}

/// A stage with the StorageClass `fast` and a node that can be lost.
fn stage_with_node() -> Option<(Stage, String)> {
    let stage = stage()?;
    stage.storage_class("fast", "Delete", "Immediate");
    let node = node(&stage, "elsewhere");
    Some((stage, node))
}

fn node(stage: &Stage, base: &str) -> String {
    let node = stage.named(base);
    stage.register_node(&node, Some(&node));
    node
}

fn lose(stage: &Stage, node: &str) {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    stage.request(nodes.delete(node, &DeleteParams::default()));
}

fn claim(stage: &Stage, name: &str) -> Option<PersistentVolumeClaim> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(stage.client.clone(), &stage.namespace());
    stage.request(api.get_opt(name))
}

fn claim_goes(stage: &Stage, name: &str) {
    stage.within(DELAY_AND_MORE, &format!("claim {name} goes"), || claim(stage, name).is_none());
}

fn pv_goes(stage: &Stage, pv: &str) {
    stage.within(DELAY_AND_MORE, &format!("PV {pv} goes"), || stage.pv(pv).is_none());
}

fn stay(stage: &Stage, pvs: &[&String]) {
    for pv in pvs {
        let now = stage.pv(pv).unwrap();
        assert!(!is_terminating(&now), "{pv} goes");
    }
}

/// How often the timer of a PV was started.
fn timers(cleanup: &Program, pv: &str) -> usize {
    let line = format!("step=Announce pv=\"{pv}\"");
    cleanup.log().matches(&line).count()
}

fn timer_starts(stage: &Stage, cleanup: &Program, pv: &str) {
    stage.eventually(&format!("the timer of {pv} starts"), || {
        (timers(cleanup, pv) > 0).then_some(())
    });
}

/// Events on claims, with a reason.
fn events(stage: &Stage, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let params = ListParams::default().fields(&format!("reason={reason}"));
    stage.request(api.list(&params)).items
}

/// The writes that were requested and carried out.
fn writes(stage: &Stage, verb: Verb, resource: &str) -> usize {
    let carried_out = |r: &Request| r.verb == verb && r.resource == resource && r.status() < 300;
    stage.requests().count(carried_out)
}

/// Waits for a value of a series: the answer to a write follows its effect.
fn counts(stage: &Stage, program: &mut Program, series: &str, value: u64) {
    stage.eventually(&format!("{series} is {value}"), || metric(program, series) == Some(value));
}

fn metric(program: &mut Program, series: &str) -> Option<u64> {
    let (_, text) = program.http_get("/metrics").unwrap();
    let series = format!("local_volume_node_cleanup_{series} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

#[test]
fn a_claim_is_deleted_when_its_node_was_gone_for_the_delay() {
    let (stage, node) = or_skip!(stage_with_node());
    let pv = bound(&stage, "data", &node);
    let safe = bound(&stage, "safe", &stage.node());
    let mut cleanup = synced(&stage, "cleanup", &[&delay_flag(&stage)]);
    assert_eq!(metric(&mut cleanup, "synced"), Some(1));
    // Which it asks for once it has listed all.
    for resource in ["nodes", PVS] {
        stage.eventually("it watches", || {
            let watches = |r: &Request| r.verb == Verb::Watch && r.resource == resource;
            stage.requests().count(watches) > 0
        });
    }
    let mark = stage.requests().mark();
    reconciles_again(&stage);
    let marker = stage.named("marker");
    let of_others = |r: &Request| r.resource == CLAIMS || (r.resource == PVS && r.name != marker);
    let asked = stage.requests().since(mark);
    let asked = asked.iter().filter(|r| r.verb != Verb::Watch && of_others(r));
    assert_eq!(asked.count(), 0, "nothing is asked for without need");

    let (lost, delay) = (Timestamp::now(), delay(&stage));
    lose(&stage, &node);
    let event = stage.eventually("the claim's owner is warned", || {
        events(&stage, "ReferencedNodeDeleted").pop()
    });
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.name.as_deref(), Some("data"));
    let text = event.message.unwrap();
    let given = format!("is deleted in {delay:?} or later");
    for words in [&node, &pv, &given, "paused=true"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert!(claim(&stage, "data").is_some());
    assert_eq!(metric(&mut cleanup, "pending_persistentvolumeclaims"), Some(1));

    claim_goes(&stage, "data");
    let took = Timestamp::now().duration_since(lost).unsigned_abs();
    assert!(took >= delay, "too early: {took:?}");
    pv_goes(&stage, &pv);
    counts(&stage, &mut cleanup, "persistentvolumeclaim_delete_total", 1);
    let released = "persistentvolume_delete_total{phase=\"Released\"}";
    counts(&stage, &mut cleanup, released, 1);
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 1);
    assert_eq!(writes(&stage, Verb::Delete, PVS), 2, "with the marker");
    assert_eq!(events(&stage, "ReferencedNodeDeleted").len(), 1);
    stage.eventually("the log says that all is done", || {
        cleanup.log().contains("remaining objects of lost nodes claims=0 pvs=0")
    });
    assert_eq!(stage.claim_phase("safe"), "Bound", "its node is there");
    assert_eq!(timers(&cleanup, &safe), 0);
    let status = cleanup.stop(stage.timeout()).unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_node_that_comes_back_in_time_keeps_everything() {
    let (stage, node) = or_skip!(stage_with_node());
    let bound = bound(&stage, "data", &node);
    let free = released(&stage, "old", &node, |_| {});
    let other = self::node(&stage, "other");
    self::bound(&stage, "late", &other);
    let cleanup = synced(&stage, "cleanup", &[&delay_flag(&stage)]);
    lose(&stage, &node);
    timer_starts(&stage, &cleanup, &bound);
    timer_starts(&stage, &cleanup, &free);
    // Its delay is over later.
    lose(&stage, &other);
    // Registered again: another object, the same name.
    stage.register_node(&node, Some(&node));
    claim_goes(&stage, "late");
    assert_eq!(stage.claim_phase("data"), "Bound");
    assert!(stage.pv(&free).is_some());
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 1);
    let deletes = |r: &Request| r.verb == Verb::Delete && [&bound, &free].contains(&&r.name);
    assert_eq!(stage.requests().count(deletes), 0);
}

#[test]
fn a_restart_repeats_no_event_and_shortens_no_delay() {
    let (stage, node) = or_skip!(stage_with_node());
    bound(&stage, "data", &node);
    let args = [&*delay_flag(&stage)];
    let mut first = synced(&stage, "first", &args);
    lose(&stage, &node);
    stage.eventually("the claim's owner is warned", || {
        events(&stage, "ReferencedNodeDeleted").pop()
    });
    first.kill();
    let begun = Instant::now();
    let _second = cleanup(&stage, "second", &args);
    claim_goes(&stage, "data");
    assert!(begun.elapsed() >= delay(&stage), "counted by what it has seen");
    assert_eq!(events(&stage, "ReferencedNodeDeleted").len(), 1);
}

#[test]
fn two_processes_at_once_write_everything_once() {
    let (stage, node) = or_skip!(stage_with_node());
    let pvs = [0, 1, 2, 3].map(|number| bound(&stage, &format!("data-{number}"), &node));
    // The flags of the Go program, which waits for a lease by default.
    let args = ["--pvc-deletion-delay=3s", "--leader-elect=true"];
    let _first = synced(&stage, "first", &args);
    let _second = synced(&stage, "second", &args);
    lose(&stage, &node);
    for (number, pv) in pvs.iter().enumerate() {
        claim_goes(&stage, &format!("data-{number}"));
        pv_goes(&stage, pv);
    }
    // The slower process may still wait for the answer that it was too late.
    stage.eventually("every request is answered", || {
        let is_open = |r: &Request| r.writes() && r.status() == 0;
        stage.requests().count(is_open) == 0
    });
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 4);
    assert_eq!(writes(&stage, Verb::Delete, PVS), 4);
    assert_eq!(events(&stage, "ReferencedNodeDeleted").len(), 4);
}
