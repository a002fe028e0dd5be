//! Each story is told twice: by the right rule, and by the one that was wrong.

use serde_json::json;

use crate::{
    controllers::{
        object::Key,
        tests::{World, but, claim, class, on_node, provisioned, volume},
    },
    pv_controller::{BOUND_BY_CONTROLLER, old_bugs::OldBug, provision::SELECTED_NODE, volume},
    resource::{
        PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES,
        STORAGE_CLASSES as CLASSES,
    },
};

fn world_with(old_bug: Option<OldBug>) -> World {
    let mut world = World::new();
    world.manager.cx.old_bug = old_bug;
    world
}

/// The scheduler has chosen n1, where the provisioner is to make the volume. There is another one of
/// the class, on n2, where the pod will never be.
#[test]
fn late_binding_is_decided_by_the_class_alone() {
    let claim_and_volume = |old_bug| {
        let mut world = world_with(old_bug);
        let class = but(class("fast", "WaitForFirstConsumer"), |class| {
            class["provisioner"] = json!("example.com/disks");
        });
        world.create(&CLASSES, class);
        world.create(&VOLUMES, on_node(volume("v", "1Gi"), "n2"));
        let selected = but(claim("c", "1Gi"), |c| {
            c["metadata"]["annotations"] = json!({SELECTED_NODE: "n1"});
        });
        world.create(&CLAIMS, selected);
        world.resync();
        (world.phases("c", "v"), world.reasons("c"))
    };
    assert_eq!(
        claim_and_volume(None),
        (
            ["Pending", "Available"].map(str::to_owned),
            vec!["ExternalProvisioning".to_owned()]
        )
    );
    assert_eq!(
        claim_and_volume(Some(OldBug::AnnotationDecidesAboutLateBinding)),
        (["Bound", "Bound"].map(str::to_owned), vec![]),
        "the wrong rule binds it to the wrong node"
    );
}

/// A volume that was provisioned a moment ago comes to the controller before its claim does. Nobody
/// has bound it yet, so nothing says who did.
#[test]
fn a_claim_not_heard_of_yet_is_not_gone() {
    let phase = |old_bug| {
        let mut world = world_with(old_bug);
        let made = world.put(&CLAIMS, claim("c", "1Gi"));
        let pv = but(provisioned("v", "1Gi"), |v| {
            v["spec"]["claimRef"] = json!({
                "namespace": "default", "name": "c", "uid": made["metadata"]["uid"],
            });
        });
        let pv = world.put(&VOLUMES, pv);
        assert!(pv["metadata"]["annotations"][BOUND_BY_CONTROLLER].is_null());
        let cx = &mut world.manager.cx;
        cx.cache.store(&VOLUMES, &pv);
        volume::sync(cx, &Key::cluster("v")).unwrap();
        // From Released on its provisioner may delete it, with the data of a claim that lives.
        let first = world.phase(&VOLUMES, "v");
        world.settle();
        (first, world.phases("c", "v"))
    };
    let (first, settled) = phase(None);
    assert_ne!(first, "Released");
    assert_eq!(settled, ["Bound", "Bound"]);
    let (first, _) = phase(Some(OldBug::UnknownMeansGone));
    assert_eq!(first, "Released", "the wrong rule gives it up");
}

/// Where the controller bound the volume, the old rule asked, too.
#[test]
fn the_annotation_made_the_difference() {
    for (by_controller, released) in [(true, false), (false, true)] {
        let mut world = world_with(Some(OldBug::UnknownMeansGone));
        let made = world.put(&CLAIMS, claim("c", "1Gi"));
        let pv = but(volume("v", "1Gi"), |v| {
            v["spec"]["claimRef"] = json!({
                "namespace": "default", "name": "c", "uid": made["metadata"]["uid"],
            });
            if by_controller {
                v["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
        });
        let pv = world.put(&VOLUMES, pv);
        let cx = &mut world.manager.cx;
        cx.cache.store(&VOLUMES, &pv);
        volume::sync(cx, &Key::cluster("v")).unwrap();
        assert_eq!(world.phase(&VOLUMES, "v") == "Released", released);
    }
}
