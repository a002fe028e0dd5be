//! Placement and late binding, on a real store.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, class, pod, volume},
    resource::{
        NODES, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS,
        STORAGE_CLASSES as CLASSES,
    },
};

fn world(nodes: &[&str]) -> World {
    let mut world = World::new();
    for node in nodes {
        world.add_node(node);
    }
    world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
    world
}

fn node_of(world: &World, pod: &str) -> Value {
    world.pod(pod)["spec"]["nodeName"].clone()
}

#[test]
fn a_restart_between_reservation_and_placement_loses_nothing() {
    let mut world = world(&["n1"]);
    for (volume_name, claim_name) in [("a", "c"), ("b", "d")] {
        world.create(&VOLUMES, volume(volume_name, "1Gi"));
        world.create(&CLAIMS, claim(claim_name, "1Gi"));
    }
    world.put(&PODS, pod("p", &["c", "d"]));
    while world.volume("a")["spec"]["claimRef"].is_null() {
        assert!(world.manager.work());
    }
    assert_eq!(world.bound("c"), None, "only reserved yet");
    world.restart();
    world.settle();
    assert!(world.bound("c").is_some() && world.bound("d").is_some());
    assert_eq!(world.phase(&PODS, "p"), "Running");
}

#[test]
fn what_else_keeps_a_pod_from_a_node() {
    let taint = || json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let tolerations = |one: Value| json!({"tolerations": [one]});
    let by_key = json!({"key": "k", "operator": "Exists"});
    let other_effect = json!({"key": "k", "operator": "Exists", "effect": "NoExecute"});
    for (what, node, wanted, placed) in [
        ("nothing", json!({}), json!({}), true),
        ("cordoned", json!({"unschedulable": true}), json!({}), false),
        ("a taint", taint(), json!({}), false),
        ("tolerated", taint(), tolerations(json!({"key": "k", "value": "v"})), true),
        ("tolerated by key", taint(), tolerations(by_key), true),
        ("another value", taint(), tolerations(json!({"key": "k", "value": "w"})), false),
        ("another effect", taint(), tolerations(other_effect), false),
        ("a node selector", json!({}), json!({"nodeSelector": {"zone": "z"}}), false),
        ("another scheduler", json!({}), json!({"schedulerName": "mine"}), false),
    ] {
        let mut world = world(&["n1"]);
        world.change(&NODES, "n1", |n| n["spec"] = node);
        let pod = but(pod("p", &[]), |p| {
            for (field, value) in wanted.as_object().unwrap() {
                p["spec"][field] = value.clone();
            }
        });
        world.create(&PODS, pod);
        assert_eq!(node_of(&world, "p").is_string(), placed, "{what}");
    }
}
