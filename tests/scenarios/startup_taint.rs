//! The startup taint: it is removed when the node is ready, not before, and no other taint is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use support::Stage;
use support::names::DEFAULT_TAINT_KEY;

use crate::kit::*;
use crate::stage;

const OTHER: &str = "example.com/dedicated";

/// A stage with one volume, whose provisioner takes the taint off.
fn tainted() -> Option<(Stage, PathBuf)> {
    let stage = stage()?;
    stage.configure("removeNodeNotReadyTaint", "true");
    let [volume] = fast_volumes(&stage, ["vol"]);
    let ours = ["NoSchedule", "NoExecute"].map(|effect| taint(DEFAULT_TAINT_KEY, effect));
    let other = taint(OTHER, "NoSchedule");
    let spec = json!({ "spec": { "taints": [&ours[0], &other, &ours[1]] } });
    change(&stage, &Patch::Merge(spec));
    Some((stage, volume))
}

fn taint(key: &str, effect: &str) -> Value {
    json!({ "key": key, "effect": effect, "value": "some" })
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

fn change(stage: &Stage, change: &Patch<Value>) {
    let (node, params) = (stage.node(), PatchParams::default());
    let nodes = nodes(&stage.client);
    stage.request(nodes.patch(&node, &params, change));
}

/// A JSON patch.
fn operations(operations: Value) -> Patch<Value> {
    Patch::Json(serde_json::from_value(operations).unwrap())
}

fn keys_of(node: &Node) -> BTreeSet<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(|taint| taint.key.clone()).collect()
}

fn keys(stage: &Stage) -> BTreeSet<String> {
    let node = nodes(&stage.client);
    keys_of(&stage.request(node.get(&stage.node())))
}

fn is_tainted(stage: &Stage) -> bool {
    keys(stage).contains(DEFAULT_TAINT_KEY)
}

fn is_freed(stage: &Stage) {
    stage.eventually("the startup taint is gone", || !is_tainted(stage));
    assert!(keys(stage).contains(OTHER), "the other one stays: {:?}", keys(stage));
}

#[test]
fn fault_10_the_startup_taint_is_removed_when_the_node_is_ready_and_not_before() {
    let (stage, volume) = or_skip!(tainted());
    let refusal =
        stage.faults().on(Verb::Create).resource("persistentvolumes").answer(Answer::code(500));
    let mut provisioner = stage.provisioner();
    stage.eventually("a PV is tried", || refusal.hits() > 0);
    stage.still(&mut provisioner, "the taint, while a PV is missing", || is_tainted(&stage));
    refusal.clear();
    is_freed(&stage);
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    let event = stage.event("StartupTaintRemoved", DEFAULT_TAINT_KEY);
    assert!(event.contains(&stage.node()), "{event}");
}

#[test]
fn without_the_option_or_the_taint_nothing_is_written() {
    let (stage, volume) = or_skip!(tainted());
    stage.configure("removeNodeNotReadyTaint", "false");
    let mut provisioner = stage.provisioner();
    stage.available(&volume, None);
    stage.still(&mut provisioner, "the taint", || is_tainted(&stage));
    provisioner.stop(stage.timeout()).unwrap();

    stage.configure("removeNodeNotReadyTaint", "true");
    stage.configure("provisionerNotReadyNodeTaintKey", "example.com/another");
    let mark = stage.requests().mark();
    let mut provisioner = stage.provisioner();
    ready(&stage, &mut provisioner);
    stage.still(&mut provisioner, "the taint", || is_tainted(&stage));
    let asked = stage.requests().since(mark);
    let written = asked.iter().filter(|it| it.resource == "nodes" && it.writes());
    assert_eq!(written.count(), 0, "{asked:?}");
}

#[test]
fn failed_requests_are_retried() {
    let (mut stage, _volume) = or_skip!(tainted());
    // A missing permission is reported at the next read.
    stage.add_arg("--discovery-period=1s");
    let fault = |code| {
        let patches = stage.faults().on(Verb::Patch).resource("nodes").times(1);
        patches.answer(Answer::code(code))
    };
    let faults = [500, 422, 409].map(fault);
    let denied = stage.faults().on(Verb::Patch).resource("nodes").forbid();
    let mut provisioner = stage.provisioner();
    stage.event("PermissionMissing", "patch nodes");
    let right = "missing_permission{resource=\"nodes\",verb=\"patch\"}";
    stage.eventually("the right is missed", || metric(&mut provisioner, right) == Some(1));
    assert!(is_tainted(&stage));
    denied.clear();
    stage.within(Duration::from_secs(30), "the taint is gone", || !is_tainted(&stage));
    assert!(keys(&stage).contains(OTHER));
    assert!(faults.iter().all(|fault| fault.hits() == 1));
    stage.eventually("the right is there", || metric(&mut provisioner, right) == Some(0));
}

#[test]
fn a_node_that_is_registered_again_or_labelled_is_read_again() {
    let (stage, _volume) = or_skip!(tainted());
    let _provisioner = stage.provisioner();
    is_freed(&stage);
    // As a cloud controller does once the kubelet has registered a node.
    let late = json!({
        "metadata": { "labels": { "example.com/registered": "true" } },
        "spec": { "taints": [taint(OTHER, "NoSchedule"), taint(DEFAULT_TAINT_KEY, "NoSchedule")] },
    });
    change(&stage, &Patch::Merge(late.clone()));
    is_freed(&stage);

    delete_node(&stage);
    let mut node = late;
    node["metadata"] = json!({
        "name": stage.node(),
        "labels": { "kubernetes.io/hostname": stage.node() },
    });
    stage.create(&nodes(&stage.client), node);
    is_freed(&stage);
}

/// Adds taints of its own to the Node and removes them, as fast as it can, and never misses one.
fn write_without_end(stage: &Stage, stop: &Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    let (runtime, client) = stage.another_client().unwrap();
    let (node, stop) = (stage.node(), Arc::clone(stop));
    thread::spawn(move || {
        let nodes = nodes(&client);
        let params = PatchParams::default();
        let mut writes = 0;
        let mut mine = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let found = runtime.block_on(nodes.get(&node)).unwrap();
            let there = keys_of(&found);
            assert!(mine.is_subset(&there), "lost: {mine:?} in {there:?}");
            let key = format!("example.com/taint-{writes}");
            let append = json!([
                { "op": "add", "path": "/spec/taints/-", "value": taint(&key, "NoSchedule") },
            ]);
            let change = operations(append);
            runtime.block_on(nodes.patch(&node, &params, &change)).unwrap();
            mine.insert(key);
            writes += 1;
            // One is removed for each that is added, once there are a few.
            while mine.len() > 3 && !stop.load(Ordering::Relaxed) {
                let found = runtime.block_on(nodes.get(&node)).unwrap();
                let taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
                let there: BTreeSet<_> = taints.iter().map(|taint| taint.key.clone()).collect();
                assert!(mine.is_subset(&there), "lost: {mine:?} in {there:?}");
                let (at, gone) =
                    taints.iter().enumerate().find(|(_, taint)| mine.contains(&taint.key)).unwrap();
                let place = format!("/spec/taints/{at}");
                let remove = json!([
                    { "op": "test", "path": place, "value": gone },
                    { "op": "remove", "path": place },
                ]);
                let change = operations(remove);
                // Refused if the list has changed.
                if runtime.block_on(nodes.patch(&node, &params, &change)).is_ok() {
                    mine.remove(&gone.key);
                    writes += 1;
                }
            }
        }
        let there = keys_of(&runtime.block_on(nodes.get(&node)).unwrap());
        assert!(mine.is_subset(&there), "lost: {mine:?} in {there:?}");
        writes
    })
}

#[test]
fn fault_10_no_taint_of_a_writer_beside_it_is_lost() {
    let rounds = if support::slow() { 200 } else { 25 };
    let (stage, _volume) = or_skip!(tainted());
    let _provisioner = stage.provisioner();
    is_freed(&stage);
    let stop = Arc::new(AtomicBool::new(false));
    let beside = write_without_end(&stage, &stop);
    for round in 0..rounds {
        let again = json!([
            { "op": "add", "path": "/metadata/labels/round", "value": round.to_string() },
            { "op": "add", "path": "/spec/taints/-", "value": taint(DEFAULT_TAINT_KEY, "NoSchedule") },
        ]);
        change(&stage, &operations(again));
        is_freed(&stage);
        assert!(!beside.is_finished(), "the writer has missed a taint");
    }
    stop.store(true, Ordering::Relaxed);
    let writes = beside.join().unwrap();
    assert!(writes > rounds, "{writes} writes in {rounds} rounds");
}
