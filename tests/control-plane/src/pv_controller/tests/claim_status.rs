//! What the status of a bound claim says about its volume.

use serde_json::json;

use crate::{
    controllers::tests::{World, but, claim, volume},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
};

#[test]
fn status_follows_the_access_modes_but_not_the_capacity() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.change(&VOLUMES, "v", |v| {
        v["spec"]["capacity"]["storage"] = json!("5Gi");
        v["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]);
    });
    let status = world.claim("c")["status"].clone();
    assert_eq!(
        status["accessModes"],
        json!(["ReadWriteOnce", "ReadOnlyMany"])
    );
    assert_eq!(status["capacity"]["storage"], "1Gi");
}

#[test]
fn the_attributes_class_in_the_status_is_set_when_the_claim_is_bound() {
    let mut world = World::new();
    let csi = but(volume("v", "1Gi"), |v| {
        v["spec"].as_object_mut().unwrap().remove("local");
        v["spec"]["csi"] = json!({"driver": "d", "volumeHandle": "h"});
        v["spec"]["volumeAttributesClassName"] = json!("gold");
    });
    world.create(&VOLUMES, csi);
    world.create(
        &CLAIMS,
        but(claim("c", "1Gi"), |c| {
            c["spec"]["volumeAttributesClassName"] = json!("gold");
        }),
    );
    let current =
        |world: &World| world.claim("c")["status"]["currentVolumeAttributesClassName"].clone();
    assert_eq!(current(&world), "gold");
    world.change(&VOLUMES, "v", |v| {
        v["spec"]["volumeAttributesClassName"] = json!("silver");
    });
    world.resync();
    assert_eq!(current(&world), "gold", "from here on it is the resizer's");
}

#[test]
fn a_volume_that_has_yet_to_grow_counts_with_its_size_before() {
    for (before, capacity) in [("2Gi", "2Gi"), ("no size", "5Gi")] {
        let mut world = World::new();
        let growing = but(volume("v", "5Gi"), |v| {
            v["metadata"]["annotations"] =
                json!({"volume.alpha.kubernetes.io/pre-resize-capacity": before});
        });
        world.create(&VOLUMES, growing);
        world.create(&CLAIMS, claim("c", "1Gi"));
        assert_eq!(world.claim("c")["status"]["capacity"]["storage"], capacity);
    }
}
