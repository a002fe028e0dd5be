//! What the claims of a pod demand, and how a refusal is worded.

use super::*;

/// A claim of class `late`, which binds late.
fn late(name: &str, size: &str) -> Value {
    but(claim(name, size), |c| {
        c["spec"]["storageClassName"] = json!("late");
    })
}

/// A class that binds late and whose volumes somebody makes.
fn made(name: &str) -> Value {
    but(class(name, "WaitForFirstConsumer"), |c| {
        c["provisioner"] = json!("example.com/p");
    })
}

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn selected(world: &World, claim: &str) -> Value {
    world.claim(claim)["metadata"]["annotations"][SELECTED_NODE].clone()
}

#[test]
fn refusals_name_the_first_thing_that_is_wrong_everywhere() {
    let mut world = world(&["n1"]);
    world.create(&CLASSES, class("now", "Immediate"));
    let of_class = |name: &str, class: &str| {
        but(claim(name, "1Gi"), |c| {
            c["spec"]["storageClassName"] = json!(class);
        })
    };
    world.create(&CLAIMS, of_class("unbound", "now"));
    world.create(&CLAIMS, of_class("no-class", "absent"));
    world.create(
        &CLAIMS,
        but(of_class("going", "fast"), |c| {
            c["metadata"]["finalizers"] = json!(["example.com/held"]);
        }),
    );
    world.delete(&CLAIMS, "going");
    world.create(&VOLUMES, volume("v", "9Gi"));
    world.create(
        &CLAIMS,
        but(of_class("lost", "fast"), |c| {
            c["spec"]["volumeName"] = json!("v");
        }),
    );
    world.change(&VOLUMES, "v", |v| v["metadata"]["finalizers"] = json!([]));
    world.delete(&VOLUMES, "v");
    world.change(&VOLUMES, "v", |v| v["metadata"]["finalizers"] = json!([]));
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    for (claims, why) in [
        (
            &["absent"][..],
            r#"persistentvolumeclaim "absent" not found"#,
        ),
        (&["unbound"], unbound),
        (&["no-class"], unbound),
        (
            &["going"],
            r#"persistentvolumeclaim "going" is being deleted"#,
        ),
        (
            &["lost"],
            r#"persistentvolumeclaim "lost" bound to non-existent persistentvolume "v""#,
        ),
        (
            &["unbound", "absent"],
            r#"persistentvolumeclaim "absent" not found"#,
        ),
        (
            &["unbound", "going"],
            r#"persistentvolumeclaim "going" is being deleted"#,
        ),
    ] {
        let name = format!("p-{}", claims.join("-"));
        world.create(&PODS, pod(&name, claims));
        let message = format!("0/1 nodes are available: {why}. not found");
        assert_eq!(world.messages(&name), [message.as_str()]);
        let condition = world.pod(&name)["status"]["conditions"][0].clone();
        assert_eq!(condition["message"], message);
        assert_eq!(condition["reason"], "Unschedulable");
    }
}

#[test]
fn a_node_can_be_refused_for_bound_and_unbound_claims_at_once() {
    let mut world = world(&["n1"]);
    world.create(&CLASSES, class("late", "WaitForFirstConsumer"));
    world.create(
        &VOLUMES,
        but(on_node(volume("v", "1Gi"), "elsewhere"), |v| {
            v["spec"]["claimRef"] = json!({"namespace": "default", "name": "bound"});
        }),
    );
    world.create(&CLAIMS, claim("bound", "1Gi"));
    world.create(&CLAIMS, late("open", "1Gi"));
    world.create(&PODS, pod("p", &["bound", "open"]));
    assert_eq!(
        world.messages("p"),
        [unhelpful(
            "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind, \
             1 node(s) didn't match PersistentVolume's node affinity."
        )]
    );
}

#[test]
fn who_makes_volumes_is_asked_when_none_is_there() {
    let mut world = world(&["n1", "n2"]);
    world.create(&CLASSES, made("late"));
    world.create(&VOLUMES, on_node(volume("v", "1Gi"), "n2"));
    world.create(&CLAIMS, claim("there", "1Gi"));
    world.create(&CLAIMS, late("made", "1Gi"));
    world.create(&PODS, pod("p", &["there", "made"]));
    assert_eq!(world.bound("there").as_deref(), Some("v"));
    assert_eq!(
        selected(&world, "made"),
        "n2",
        "the node of the volume that is there"
    );
    assert_eq!(selected(&world, "there"), json!(null));
    assert!(
        world
            .reasons("made")
            .contains(&"ExternalProvisioning".to_owned())
    );
    assert_eq!(world.reasons("p"), [""; 0], "it waits, and is not refused");
    // The provisioner makes the volume for the claim.
    world.create(
        &VOLUMES,
        but(on_node(volume("new", "1Gi"), "n2"), |v| {
            v["spec"]["storageClassName"] = json!("late");
            v["spec"]["claimRef"] = json!({
                "namespace": "default", "name": "made",
                "uid": world.claim("made")["metadata"]["uid"],
            });
        }),
    );
    assert_eq!(world.bound("made").as_deref(), Some("new"));
    assert_eq!(node_of(&world, "p"), "n2");
}

#[test]
fn a_claim_that_is_to_be_provisioned_gets_no_volume_that_is_there() {
    for (what, provisioned, node) in [
        ("nobody makes any", false, "n1"),
        ("for another node", true, "n2"),
    ] {
        let mut world = world(&["n1"]);
        let class = if provisioned {
            made("late")
        } else {
            class("late", "WaitForFirstConsumer")
        };
        world.create(&CLASSES, class);
        world.create(
            &VOLUMES,
            but(volume("v", "1Gi"), |v| {
                v["spec"]["storageClassName"] = json!("late");
            }),
        );
        world.create(
            &CLAIMS,
            but(late("c", "1Gi"), |c| {
                c["metadata"]["annotations"] = json!({SELECTED_NODE: node});
            }),
        );
        world.create(&PODS, pod("p", &["c"]));
        assert_eq!(world.bound("c"), None, "{what}");
        assert_eq!(
            world.messages("p"),
            [unhelpful(
                "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to \
                 bind."
            )],
            "{what}"
        );
    }
}

#[test]
fn a_class_says_where_its_volumes_can_be_made() {
    for (value, asked) in [("n1", true), ("n2", false)] {
        let mut world = world(&["n1"]);
        let limited = but(made("late"), |c| {
            c["allowedTopologies"] = json!([{"matchLabelExpressions": [
                {"key": "kubernetes.io/hostname", "values": [value]},
            ]}]);
        });
        world.create(&CLASSES, limited);
        world.create(&CLAIMS, late("c", "1Gi"));
        world.create(&PODS, pod("p", &["c"]));
        assert_eq!(selected(&world, "c") == "n1", asked, "{value}");
        assert_eq!(world.reasons("p").is_empty(), asked, "{value}");
    }
}

#[test]
fn a_volume_stays_in_its_zone() {
    let zone = |key: &str, value: &str| json!({key: value});
    let newer = "topology.kubernetes.io/zone";
    let older = "failure-domain.beta.kubernetes.io/zone";
    for (what, of_node, of_volume, placed) in [
        ("the same", zone(newer, "a"), zone(newer, "a"), true),
        ("another", zone(newer, "a"), zone(newer, "b"), false),
        (
            "one of several",
            zone(newer, "a"),
            zone(older, "b__a"),
            true,
        ),
        ("the node has none", json!({}), zone(newer, "b"), true),
        ("the volume has none", zone(newer, "a"), json!({}), true),
    ] {
        let mut world = world(&["n1"]);
        world.change(&NODES, "n1", |n| {
            for (key, value) in of_node.as_object().unwrap() {
                n["metadata"]["labels"][key] = value.clone();
            }
        });
        world.create(
            &VOLUMES,
            but(volume("v", "1Gi"), |v| {
                v["metadata"]["labels"] = of_volume;
                v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
            }),
        );
        world.create(&CLAIMS, claim("c", "1Gi"));
        world.create(&PODS, pod("p", &["c"]));
        assert_eq!(node_of(&world, "p").is_string(), placed, "{what}");
        let label = &world.pod("p")["metadata"]["labels"][newer];
        assert_eq!(*label == "a", placed && of_node[newer] == "a", "{what}");
        if !placed {
            let why = "0/1 nodes are available: 1 node(s) had no available volume zone.";
            assert_eq!(world.messages("p"), [unhelpful(why)]);
        }
    }
}

#[test]
fn a_gated_pod_says_so_and_binds_nothing() {
    let mut world = world(&["n1"]);
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    let gated = but(pod("p", &["c"]), |p| {
        p["spec"]["schedulingGates"] = json!([{"name": "example.com/g"}]);
    });
    world.create(&PODS, gated);
    world.resync();
    assert_eq!(world.bound("c"), None);
    let condition = world.pod("p")["status"]["conditions"][0].clone();
    assert_eq!(condition["reason"], "SchedulingGated");
    assert_eq!(
        condition["message"],
        "Scheduling is blocked due to non-empty scheduling gates"
    );
    assert!(
        world
            .messages("c")
            .contains(&"waiting for pod p to be scheduled".to_owned())
    );
    world.change(&PODS, "p", |p| p["spec"]["schedulingGates"] = json!([]));
    assert_eq!(world.bound("c").as_deref(), Some("v"));
    assert_eq!(world.pod("p")["status"]["conditions"][0]["status"], "True");
}
