//! What happens to a claim.

use serde_json::json;

use crate::{
    controllers::{
        ControllerOptions, SyncError,
        object::Key,
        tests::{World, but, claim, class, volume},
    },
    pv_controller::{BIND_COMPLETED, BOUND_BY_CONTROLLER, claim as rule},
    resource::{
        PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES,
        STORAGE_CLASSES as CLASSES,
    },
    store::Part,
};

/// Version 1.14 took a claim with a selected node for one that binds at once, and bound it to
/// any volume of its class while the provisioner made another.
#[test]
fn the_class_alone_decides_about_late_binding() {
    let mut world = World::new();
    world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
    world.create(&VOLUMES, volume("v", "1Gi"));
    let selected = but(claim("c", "1Gi"), |c| {
        c["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
    });
    world.create(&CLAIMS, selected);
    world.resync();
    assert_eq!(world.bound("c"), None);
    assert_eq!(world.phase(&VOLUMES, "v"), "Available");

    // Without the class object nothing says that the claim has to wait.
    world.delete(&CLASSES, "fast");
    world.resync();
    assert_eq!(world.bound("c").as_deref(), Some("v"));
}

#[test]
fn a_claim_that_names_its_volume() {
    let naming = |size: &str| but(claim("c", size), |c| c["spec"]["volumeName"] = json!("v"));
    let reserved = |name: &str| {
        but(volume("v", "1Gi"), |v| {
            v["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
        })
    };
    let with_selector = but(naming("1Gi"), |c| {
        c["spec"]["selector"] = json!({"matchLabels": {"no": "no"}});
    });
    let block = but(naming("1Gi"), |c| c["spec"]["volumeMode"] = json!("Block"));
    for (what, there, wanted, bound, reasons) in [
        ("free", volume("v", "1Gi"), naming("1Gi"), true, vec![]),
        (
            "its own selector does not matter",
            volume("v", "1Gi"),
            with_selector,
            true,
            vec![],
        ),
        (
            "too small",
            volume("v", "1Gi"),
            naming("2Gi"),
            false,
            vec!["VolumeMismatch"],
        ),
        (
            "reserved for it: the size does not matter, it may still grow",
            reserved("c"),
            naming("2Gi"),
            true,
            vec!["ExternalExpanding"],
        ),
        (
            "another mode",
            volume("v", "1Gi"),
            block,
            false,
            vec!["VolumeMismatch"],
        ),
        (
            "somebody else's",
            reserved("other"),
            naming("1Gi"),
            false,
            vec!["FailedBinding"],
        ),
        (
            "not there",
            volume("w", "1Gi"),
            naming("1Gi"),
            false,
            vec![],
        ),
    ] {
        let mut world = World::new();
        world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
        world.create(&VOLUMES, there);
        world.create(&CLAIMS, wanted);
        assert_eq!(world.phase(&CLAIMS, "c") == "Bound", bound, "{what}");
        assert_eq!(world.reasons("c"), reasons, "{what}");
        if bound {
            assert_eq!(world.bound("c").as_deref(), Some("v"), "{what}");
            assert!(
                world.claim("c")["metadata"]["annotations"][BOUND_BY_CONTROLLER].is_null(),
                "{what}"
            );
            assert_eq!(
                world.volume("v")["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes",
                what.starts_with("free") || what.starts_with("its own"),
                "{what}"
            );
        }
    }
}

#[test]
fn a_controller_bound_claim_whose_volume_belongs_to_another_is_an_error() {
    let mut world = World::new();
    let taken = but(volume("v", "1Gi"), |v| {
        v["spec"]["claimRef"] = json!({"namespace": "default", "name": "other"});
    });
    world.create(&VOLUMES, taken);
    let broken = but(claim("c", "1Gi"), |c| {
        c["spec"]["volumeName"] = json!("v");
        c["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    });
    world.create(&CLAIMS, broken);
    assert_eq!(world.phase(&CLAIMS, "c"), "Pending");
    assert_eq!(world.reasons("c"), ["FailedBinding"]);
    assert!(
        world.manager.cx.queues.claims.next_due().is_some(),
        "it is tried again, later"
    );
}

#[test]
fn lost_and_found() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&VOLUMES, "v");
    assert!(
        world.volume("v")["metadata"]["deletionTimestamp"].is_string(),
        "protected while bound"
    );
    world.change(&VOLUMES, "v", |v| v["metadata"]["finalizers"] = json!([]));
    assert!(world.get(&VOLUMES, "v").is_none());
    assert_eq!(world.phase(&CLAIMS, "c"), "Lost");
    assert_eq!(world.reasons("c"), ["ClaimLost"]);
    assert!(world.claim("c")["status"]["capacity"].is_null());

    world.create(&VOLUMES, volume("v", "3Gi"));
    world.resync();
    assert_eq!(world.bound("c").as_deref(), Some("v"));
    assert_eq!(world.claim("c")["status"]["capacity"]["storage"], "3Gi");
}

#[test]
fn a_bound_claim_that_no_longer_names_its_volume_is_lost() {
    let mut world = World::new();
    let orphan = but(claim("c", "1Gi"), |c| {
        c["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
    });
    world.create(&CLAIMS, orphan);
    assert_eq!(world.phase(&CLAIMS, "c"), "Lost");
    assert_eq!(world.reasons("c"), ["ClaimLost"]);
}

#[test]
fn a_bound_claim_whose_volume_is_not_bound_to_it_is_misbound() {
    for uid in [json!(null), json!("another")] {
        let mut world = World::new();
        world.create(
            &VOLUMES,
            but(volume("v", "1Gi"), |v| {
                v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
                if uid.is_string() {
                    v["spec"]["claimRef"]["uid"] = uid.clone();
                }
            }),
        );
        world.create(
            &CLAIMS,
            but(claim("c", "1Gi"), |c| {
                c["spec"]["volumeName"] = json!("v");
                c["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
            }),
        );
        assert_eq!(world.phase(&CLAIMS, "c"), "Lost", "{uid}");
        assert_eq!(world.reasons("c"), ["ClaimMisbound"], "{uid}");
    }
}

#[test]
fn the_newest_default_class_is_given_to_claims_that_leave_it_open() {
    let default = |name: &str| {
        but(class(name, "WaitForFirstConsumer"), |c| {
            c["metadata"]["annotations"] =
                json!({"storageclass.kubernetes.io/is-default-class": "true"});
        })
    };
    let open = |name: &str| {
        but(claim(name, "1Gi"), |c| {
            c["spec"]
                .as_object_mut()
                .unwrap()
                .remove("storageClassName");
        })
    };
    let mut world = World::new();
    world.create(&CLAIMS, open("early"));
    assert_eq!(world.reasons("early"), ["FailedBinding"]);
    world.create(&CLASSES, default("b"));
    world.create(&CLASSES, default("a"));
    world.create(&CLASSES, class("plain", "Immediate"));
    world.resync();
    world.create(&CLAIMS, open("late"));
    world.create(
        &CLAIMS,
        but(open("naming"), |c| c["spec"]["volumeName"] = json!("v")),
    );
    world.create(
        &CLAIMS,
        but(open("none"), |c| c["spec"]["storageClassName"] = json!("")),
    );
    let class_of = |name: &str| world.claim(name)["spec"]["storageClassName"].clone();
    assert_eq!(
        class_of("early"),
        "a",
        "retroactively; of two as new as each other the first by name"
    );
    assert_eq!(class_of("late"), "a");
    assert_eq!(class_of("naming"), json!(null));
    assert_eq!(class_of("none"), "");
}

#[test]
fn a_volume_that_becomes_available_waits_for_the_resync_unless_told_otherwise() {
    for eager_rebind in [false, true] {
        let mut world = World::with(ControllerOptions {
            eager_rebind,
            ..ControllerOptions::default()
        });
        world.create(&CLAIMS, claim("c", "1Gi"));
        world.create(&CLAIMS, claim("large", "5Gi"));
        world.create(&VOLUMES, volume("v", "1Gi"));
        assert_eq!(world.bound("c").is_some(), eager_rebind);
        world.resync();
        assert_eq!(world.bound("c").as_deref(), Some("v"));
        assert_eq!(world.bound("large"), None);
    }
}

#[test]
fn a_terminating_claim_still_binds() {
    let mut world = World::new();
    let held = but(claim("c", "1Gi"), |c| {
        c["metadata"]["finalizers"] = json!(["example.com/held"]);
    });
    world.create(&CLAIMS, held);
    world.delete(&CLAIMS, "c");
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.resync();
    assert_eq!(world.bound("c").as_deref(), Some("v"));
}

#[test]
fn a_conflict_ends_the_attempt_and_not_the_binding() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("v", "1Gi"));
    let made = world.put(&CLAIMS, claim("c", "1Gi"));
    world.edit(&VOLUMES, "v", Part::Main, |v| {
        v["metadata"]["labels"] = json!({"written": "by-another"});
    });
    // The controller knows the claim, but not the newest state of the volume.
    world.manager.cx.cache.store(&CLAIMS, &made);
    let attempt = rule::sync(&mut world.manager.cx, &Key::new("default", "c"));
    let Err(SyncError::Write { source, .. }) = attempt else {
        panic!("{attempt:?}")
    };
    assert!(source.is_conflict());
    assert_eq!(
        world.volume("v")["metadata"]["labels"]["written"],
        "by-another"
    );
    world.settle();
    assert_eq!(world.bound("c").as_deref(), Some("v"));
}
