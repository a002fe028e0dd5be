//! Placement and late binding, on a real store.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, class, on_node, pod, volume},
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
fn a_pod_binds_its_late_claim_to_the_smallest_volume_of_its_node() {
    let mut world = world(&["n1", "n2"]);
    world.create(&VOLUMES, on_node(volume("elsewhere", "1Gi"), "n9"));
    world.create(&VOLUMES, on_node(volume("large", "5Gi"), "n2"));
    world.create(&VOLUMES, on_node(volume("small", "2Gi"), "n2"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.bound("c"), None);
    world.create(&PODS, pod("p", &["c"]));
    assert_eq!(world.bound("c").as_deref(), Some("small"));
    assert_eq!(node_of(&world, "p"), "n2");
    assert_eq!(world.phase(&PODS, "p"), "Running");
    assert_eq!(world.reasons("p"), ["Scheduled"]);
}

#[test]
fn a_pod_waits_visibly_and_is_placed_when_a_volume_comes() {
    let mut world = world(&["n1"]);
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.create(&PODS, pod("p", &["c"]));
    assert_eq!(world.phase(&PODS, "p"), "Pending");
    assert_eq!(world.reasons("p"), ["FailedScheduling"]);
    assert_eq!(
        world.pod("p")["status"]["conditions"][0]["reason"],
        "Unschedulable"
    );
    world.create(&VOLUMES, volume("v", "1Gi"));
    assert_eq!(world.bound("c").as_deref(), Some("v"));
    assert_eq!(world.phase(&PODS, "p"), "Running");
    assert_eq!(world.pod("p")["status"]["conditions"][0]["status"], "True");
}

#[test]
fn all_claims_or_none() {
    let mut world = world(&["n1", "n2"]);
    world.create(&VOLUMES, on_node(volume("a", "1Gi"), "n1"));
    world.create(&VOLUMES, on_node(volume("b", "1Gi"), "n2"));
    for name in ["c", "d"] {
        world.create(&CLAIMS, claim(name, "1Gi"));
    }
    world.create(&PODS, pod("p", &["c", "d"]));
    assert_eq!([world.bound("c"), world.bound("d")], [None, None]);
    for name in ["a", "b"] {
        assert!(world.volume(name)["spec"]["claimRef"].is_null());
    }
    world.create(&VOLUMES, on_node(volume("e", "1Gi"), "n2"));
    let mut bound = [world.bound("c").unwrap(), world.bound("d").unwrap()];
    bound.sort();
    assert_eq!(bound, ["b", "e"]);
    assert_eq!(node_of(&world, "p"), "n2");
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
fn many_pods_never_share_a_volume() {
    let mut world = world(&["n1"]);
    for i in 0..10 {
        world.put(&VOLUMES, volume(&format!("v{i}"), "1Gi"));
    }
    for i in 0..12 {
        world.put(&CLAIMS, claim(&format!("c{i}"), "1Gi"));
        world.put(&PODS, pod(&format!("p{i}"), &[&format!("c{i}")]));
    }
    world.settle();
    let mut bound: Vec<_> = (0..12)
        .filter_map(|i| world.bound(&format!("c{i}")))
        .collect();
    bound.sort();
    bound.dedup();
    assert_eq!(bound.len(), 10);
    let running = (0..12)
        .filter(|i| world.phase(&PODS, &format!("p{i}")) == "Running")
        .count();
    assert_eq!(running, 10);
}

#[test]
fn a_bound_volume_decides_about_the_node() {
    let mut world = world(&["n1", "n2"]);
    let reserved = but(on_node(volume("v", "1Gi"), "n2"), |v| {
        v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
    });
    world.create(&VOLUMES, reserved);
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.create(&PODS, pod("p", &["c"]));
    assert_eq!(node_of(&world, "p"), "n2");

    world.delete(&NODES, "n2");
    world.create(&PODS, pod("nowhere", &["c"]));
    assert_eq!(
        world.messages("nowhere"),
        ["0/1 nodes are available: none suits the pod and has its volumes"]
    );
    world.add_node("n2");
    assert_eq!(node_of(&world, "nowhere"), "n2");
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
        (
            "tolerated",
            taint(),
            tolerations(json!({"key": "k", "value": "v"})),
            true,
        ),
        ("tolerated by key", taint(), tolerations(by_key), true),
        (
            "another value",
            taint(),
            tolerations(json!({"key": "k", "value": "w"})),
            false,
        ),
        ("another effect", taint(), tolerations(other_effect), false),
        (
            "a node selector",
            json!({}),
            json!({"nodeSelector": {"zone": "z"}}),
            false,
        ),
        (
            "another scheduler",
            json!({}),
            json!({"schedulerName": "mine"}),
            false,
        ),
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
