//! Placement and late binding, on a real store.

mod claims;

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

/// What a refusal ends with when no other pod is in the way, on the only node.
fn unhelpful(why: &str) -> String {
    format!(
        "{why} no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is \
         not helpful for scheduling."
    )
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
fn size_alone_counts_for_the_scheduler() {
    let mut world = world(&["n1"]);
    world.create(&VOLUMES, volume("few-modes", "2Gi"));
    world.create(
        &VOLUMES,
        but(volume("many-modes", "1Gi"), |v| {
            v["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]);
        }),
    );
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.create(&PODS, pod("p", &["c"]));
    assert_eq!(world.bound("c").as_deref(), Some("many-modes"));
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
    world.change(&CLAIMS, "c", |c| {
        c["metadata"]["labels"] = json!({"looked": "at"});
    });
    assert!(
        world
            .reasons("c")
            .contains(&"WaitForPodScheduled".to_owned())
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
fn claims_of_one_pod_get_the_smallest_each() {
    let mut world = world(&["n1"]);
    world.create(&VOLUMES, volume("v1", "1Gi"));
    world.create(&VOLUMES, volume("v2", "2Gi"));
    world.create(&CLAIMS, claim("large", "2Gi"));
    world.create(&CLAIMS, claim("small", "1Gi"));
    world.create(&PODS, pod("p", &["large", "small"]));
    assert_eq!(world.bound("small").as_deref(), Some("v1"));
    assert_eq!(world.bound("large").as_deref(), Some("v2"));
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
    world.create(&CLASSES, class("now", "Immediate"));
    world.create(
        &VOLUMES,
        but(on_node(volume("v", "1Gi"), "n2"), |v| {
            v["spec"]["storageClassName"] = json!("now");
        }),
    );
    let now = |name: &str| {
        but(claim(name, "1Gi"), |c| {
            c["spec"]["storageClassName"] = json!("now");
        })
    };
    world.create(&CLAIMS, now("c"));
    world.create(&PODS, pod("p", &["c"]));
    assert_eq!(node_of(&world, "p"), "n2");

    world.create(&CLAIMS, now("unbound"));
    world.create(&PODS, pod("waits", &["unbound"]));
    assert_eq!(world.reasons("waits"), ["FailedScheduling"]);
    world.create(&PODS, pod("no-claim", &["absent"]));
    assert_eq!(world.reasons("no-claim"), ["FailedScheduling"]);

    world.delete(&NODES, "n2");
    world.create(&PODS, pod("nowhere", &["c"]));
    let message = world.pod("nowhere")["status"]["conditions"][0]["message"].clone();
    assert_eq!(
        message,
        unhelpful(
            "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
        )
    );
    world.add_node("n2");
    assert_eq!(node_of(&world, "nowhere"), "n2");
}

#[test]
fn what_else_keeps_a_pod_from_a_node() {
    let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    let tolerating = |toleration: Value| {
        but(pod("p", &[]), |p| {
            p["spec"]["tolerations"] = json!([toleration]);
        })
    };
    for (what, node, wanted, placed) in [
        ("a taint", json!({"taints": taint}), pod("p", &[]), false),
        (
            "a taint tolerated",
            json!({"taints": taint}),
            tolerating(json!({"key": "k", "value": "v"})),
            true,
        ),
        (
            "a taint tolerated by key",
            json!({"taints": taint}),
            tolerating(json!({"key": "k", "operator": "Exists"})),
            true,
        ),
        (
            "all taints tolerated",
            json!({"taints": taint}),
            tolerating(json!({"operator": "Exists"})),
            true,
        ),
        (
            "another value tolerated",
            json!({"taints": taint}),
            tolerating(json!({"key": "k", "value": "w"})),
            false,
        ),
        (
            "another effect tolerated",
            json!({"taints": taint}),
            tolerating(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})),
            false,
        ),
        (
            "cordoned",
            json!({"unschedulable": true}),
            pod("p", &[]),
            false,
        ),
        (
            "a node selector",
            json!({}),
            but(pod("p", &[]), |p| {
                p["spec"]["nodeSelector"] = json!({"zone": "z"});
            }),
            false,
        ),
        (
            "a gate",
            json!({}),
            but(pod("p", &[]), |p| {
                p["spec"]["schedulingGates"] = json!([{"name": "g"}]);
            }),
            false,
        ),
        (
            "another scheduler",
            json!({}),
            but(pod("p", &[]), |p| {
                p["spec"]["schedulerName"] = json!("mine");
            }),
            false,
        ),
        ("nothing", json!({}), pod("p", &[]), true),
    ] {
        let mut world = world(&["n1"]);
        world.change(&NODES, "n1", |n| n["spec"] = node);
        world.create(&PODS, wanted);
        assert_eq!(node_of(&world, "p").is_string(), placed, "{what}");
    }
}

#[test]
fn read_write_once_pod_is_exclusive() {
    let mut world = world(&["n1"]);
    world.create(
        &VOLUMES,
        but(volume("v", "1Gi"), |v| {
            v["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        }),
    );
    world.create(
        &CLAIMS,
        but(claim("c", "1Gi"), |c| {
            c["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        }),
    );
    world.create(&PODS, pod("first", &["c"]));
    world.create(&PODS, pod("second", &["c"]));
    assert_eq!(world.phase(&PODS, "first"), "Running");
    assert_eq!(
        world.messages("second"),
        [
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with \
             ReadWriteOncePod access mode already in-use by another pod. no new claims to \
             deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for \
             incoming pod."
        ]
    );
    world.delete(&PODS, "first");
    assert_eq!(world.phase(&PODS, "second"), "Running");
}

#[test]
fn a_pod_whose_node_was_set_by_hand_binds_nothing() {
    let mut world = world(&["n1"]);
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.create(
        &PODS,
        but(pod("p", &["c"]), |p| p["spec"]["nodeName"] = json!("n1")),
    );
    world.resync();
    assert_eq!(world.bound("c"), None);
    assert_eq!(world.phase(&PODS, "p"), "Pending");
}
