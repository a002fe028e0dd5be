//! What happens to a volume.

use std::sync::Arc;

use serde_json::json;

use crate::{
    controllers::{
        object::Key,
        tests::{World, but, claim, provisioned, volume},
    },
    pv_controller::volume as rule,
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::Part,
};

#[test]
fn a_claim_known_by_an_old_uid_is_looked_up_again() {
    let mut world = World::new();
    let old = world.create(&CLAIMS, claim("c", "1Gi"));
    world.edit(&CLAIMS, "c", Part::Main, |c| {
        c["metadata"]["finalizers"] = json!([]);
    });
    world
        .store
        .delete(
            &CLAIMS,
            "default",
            "c",
            &crate::store::DeleteOptions::default(),
        )
        .unwrap();
    let new = world.put(&CLAIMS, claim("c", "1Gi"));
    assert_ne!(old["metadata"]["uid"], new["metadata"]["uid"]);
    world.put(
        &VOLUMES,
        but(provisioned("v", "1Gi"), |v| {
            v["spec"]["claimRef"] =
                json!({"namespace": "default", "name": "c", "uid": new["metadata"]["uid"]});
        }),
    );
    let volume = world.volume("v");
    world.manager.cx.cache.store(&VOLUMES, &volume);
    rule::sync(&mut world.manager.cx, &Key::cluster("v")).unwrap();
    assert_eq!(world.phase(&VOLUMES, "v"), "Pending");
}

/// The API server lets no such policy in; a newer one might know more of them.
#[test]
fn a_policy_that_is_not_known_fails_the_volume_and_keeps_it() {
    let mut world = World::new();
    let gone = but(volume("v", "1Gi"), |v| {
        v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": "gone"});
    });
    let stored = world.put(&VOLUMES, gone);
    let strange = but((*stored).clone(), |v| {
        v["spec"]["persistentVolumeReclaimPolicy"] = json!("Shred");
        v["status"]["phase"] = json!("Released");
    });
    world.manager.cx.cache.store(&VOLUMES, &Arc::new(strange));
    rule::sync(&mut world.manager.cx, &Key::cluster("v")).unwrap();
    assert_eq!(world.phase(&VOLUMES, "v"), "Failed");
    assert_eq!(world.reasons("v"), ["VolumeUnknownReclaimPolicy"]);
    assert_eq!(
        world.messages("v"),
        ["Volume has unrecognized PersistentVolumeReclaimPolicy"]
    );
}
