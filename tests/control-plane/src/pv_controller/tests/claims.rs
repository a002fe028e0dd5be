//! What happens to a claim.

use serde_json::json;

use crate::{
    controllers::{
        ControllerOptions, SyncError,
        object::Key,
        tests::{World, but, claim, volume},
    },
    pv_controller::{BOUND_BY_CONTROLLER, claim as rule},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::Part,
};

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
