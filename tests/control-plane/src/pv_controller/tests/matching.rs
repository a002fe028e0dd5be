//! Which volume a claim gets.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, class, volume},
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES},
    store::DeleteOptions,
};

fn modes(object: Value, modes: &[&str]) -> Value {
    but(object, |o| o["spec"]["accessModes"] = json!(modes))
}

fn spec(object: Value, field: &str, value: Value) -> Value {
    but(object, |o| o["spec"][field] = value)
}

fn labelled(object: Value, value: &str) -> Value {
    but(object, |o| o["metadata"]["labels"] = json!({"disk": value}))
}

/// A volume of a CSI driver, with a VolumeAttributesClass.
fn gold(volume: Value) -> Value {
    but(volume, |v| {
        v["spec"].as_object_mut().unwrap().remove("local");
        v["spec"]["csi"] = json!({"driver": "d", "volumeHandle": "h"});
        v["spec"]["volumeAttributesClassName"] = json!("gold");
    })
}

const RWO: &str = "ReadWriteOnce";
const ROX: &str = "ReadOnlyMany";
const RWX: &str = "ReadWriteMany";

/// What is looked at, the volumes that there are, the claim `c`, and the volume that it gets.
type Case = (&'static str, Vec<Value>, Value, Option<&'static str>);

fn check<const N: usize>(cases: [Case; N]) {
    for (what, volumes, wanted, expected) in cases {
        let mut world = World::new();
        world.create(&STORAGE_CLASSES, class("fast", "Immediate"));
        for volume in volumes {
            world.create(&PERSISTENT_VOLUMES, volume);
        }
        world.create(&PERSISTENT_VOLUME_CLAIMS, wanted);
        assert_eq!(world.bound("c").as_deref(), expected, "{what}");
    }
}

#[test]
fn size_class_and_mode() {
    check([
        ("nothing there", vec![], claim("c", "1Gi"), None),
        (
            "exactly",
            vec![volume("v", "1Gi")],
            claim("c", "1Gi"),
            Some("v"),
        ),
        (
            "the same size in other words",
            vec![volume("v", "1024Mi")],
            claim("c", "1Gi"),
            Some("v"),
        ),
        (
            "too small by a byte",
            vec![volume("v", "1073741823")],
            claim("c", "1Gi"),
            None,
        ),
        (
            "the smallest that fits",
            vec![
                volume("a", "9Gi"),
                volume("b", "3Gi"),
                volume("c", "2Gi"),
                volume("d", "500Mi"),
            ],
            claim("c", "1Gi"),
            Some("c"),
        ),
        (
            "of equals the first by name",
            vec![volume("b", "1Gi"), volume("a", "1Gi")],
            claim("c", "1Gi"),
            Some("a"),
        ),
        (
            "another class",
            vec![spec(volume("v", "1Gi"), "storageClassName", json!("slow"))],
            claim("c", "1Gi"),
            None,
        ),
        (
            "no class is a class of its own",
            vec![volume("v", "1Gi")],
            spec(claim("c", "1Gi"), "storageClassName", json!("")),
            None,
        ),
        (
            "no class finds no class",
            vec![but(volume("v", "1Gi"), |v| {
                v["spec"]
                    .as_object_mut()
                    .unwrap()
                    .remove("storageClassName");
            })],
            spec(claim("c", "1Gi"), "storageClassName", json!("")),
            Some("v"),
        ),
        (
            "another mode",
            vec![volume("v", "1Gi")],
            spec(claim("c", "1Gi"), "volumeMode", json!("Block")),
            None,
        ),
        (
            "block",
            vec![
                volume("f", "1Gi"),
                spec(volume("b", "2Gi"), "volumeMode", json!("Block")),
            ],
            spec(claim("c", "1Gi"), "volumeMode", json!("Block")),
            Some("b"),
        ),
    ]);
}

#[test]
fn access_modes_and_selector() {
    let ssd = json!({"matchLabels": {"disk": "ssd"}});
    check([
        (
            "access modes a superset",
            vec![modes(volume("v", "1Gi"), &[RWO, ROX])],
            modes(claim("c", "1Gi"), &[ROX]),
            Some("v"),
        ),
        (
            "access modes no superset",
            vec![modes(volume("v", "1Gi"), &[RWO])],
            modes(claim("c", "1Gi"), &[RWO, RWX]),
            None,
        ),
        (
            "fewer access modes count more than size",
            vec![
                modes(volume("many", "1Gi"), &[RWO, ROX, RWX]),
                modes(volume("few", "9Gi"), &[RWO, ROX]),
            ],
            claim("c", "1Gi"),
            Some("few"),
        ),
        (
            "selector",
            vec![
                labelled(volume("small", "1Gi"), "hdd"),
                labelled(volume("large", "2Gi"), "ssd"),
            ],
            spec(claim("c", "1Gi"), "selector", ssd.clone()),
            Some("large"),
        ),
        (
            "selector beside the fewest modes",
            vec![
                labelled(volume("plain", "1Gi"), "hdd"),
                labelled(modes(volume("ssd", "1Gi"), &[RWO, ROX]), "ssd"),
            ],
            spec(claim("c", "1Gi"), "selector", ssd),
            Some("ssd"),
        ),
        (
            "another attributes class",
            vec![gold(volume("v", "1Gi"))],
            claim("c", "1Gi"),
            None,
        ),
        (
            "the same attributes class",
            vec![volume("a", "1Gi"), gold(volume("b", "1Gi"))],
            spec(
                claim("c", "1Gi"),
                "volumeAttributesClassName",
                json!("gold"),
            ),
            Some("b"),
        ),
    ]);
}

#[test]
fn reserved_volumes() {
    let ssd = json!({"matchLabels": {"disk": "ssd"}});
    check([
        (
            "reserved for somebody else",
            vec![spec(
                volume("v", "1Gi"),
                "claimRef",
                json!({"namespace": "default", "name": "other"}),
            )],
            claim("c", "1Gi"),
            None,
        ),
        (
            "reserved for the same name in another namespace",
            vec![spec(
                volume("v", "1Gi"),
                "claimRef",
                json!({"namespace": "elsewhere", "name": "c"}),
            )],
            claim("c", "1Gi"),
            None,
        ),
        (
            "reserved for this one, before a better fit",
            vec![
                volume("a", "1Gi"),
                spec(
                    volume("b", "9Gi"),
                    "claimRef",
                    json!({"namespace": "default", "name": "c"}),
                ),
            ],
            claim("c", "1Gi"),
            Some("b"),
        ),
        (
            "but not before a free one with fewer access modes",
            vec![
                volume("a", "5Gi"),
                but(volume("b", "1Gi"), |v| {
                    v["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]);
                    v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
                }),
            ],
            claim("c", "1Gi"),
            Some("a"),
        ),
        (
            "a reserved one needs neither class nor selector",
            vec![but(volume("v", "1Gi"), |v| {
                v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
                v["spec"]["storageClassName"] = json!("slow");
            })],
            spec(claim("c", "1Gi"), "selector", ssd),
            Some("v"),
        ),
        (
            "a reserved one that is too small is passed over",
            vec![
                spec(
                    volume("a", "1Gi"),
                    "claimRef",
                    json!({"namespace": "default", "name": "c"}),
                ),
                volume("b", "2Gi"),
            ],
            claim("c", "2Gi"),
            Some("b"),
        ),
    ]);
}

#[test]
fn a_terminating_volume_is_passed_over() {
    let mut world = World::new();
    let held = but(volume("v", "1Gi"), |v| {
        v["metadata"]["finalizers"] = json!(["example.com/held"]);
    });
    world.create(&PERSISTENT_VOLUMES, held);
    world.delete_with(&PERSISTENT_VOLUMES, "v", &DeleteOptions::default());
    world.create(&PERSISTENT_VOLUME_CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.bound("c"), None);
    let naming = but(claim("naming", "1Gi"), |c| {
        c["spec"]["volumeName"] = json!("v");
    });
    world.create(&PERSISTENT_VOLUME_CLAIMS, naming);
    assert_eq!(world.phase(&PERSISTENT_VOLUME_CLAIMS, "naming"), "Pending");
    assert_eq!(world.volume("v")["spec"]["claimRef"], json!(null));
}

#[test]
fn a_volume_leaves_the_pools_with_its_last_trace() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.create(&PERSISTENT_VOLUMES, volume(name, "1Gi"));
    }
    let before = format!("{:?}", world.manager.cx.cache.pools);
    assert!(
        before.contains("\"a\"") && before.contains("\"b\""),
        "{before}"
    );
    world.delete(&PERSISTENT_VOLUMES, "a");
    world.create(&PERSISTENT_VOLUME_CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.bound("c").as_deref(), Some("b"));
    let after = format!("{:?}", world.manager.cx.cache.pools);
    assert_eq!(
        after,
        format!("{:?}", crate::pv_controller::pools::Pools::default())
    );
}
