//! Deleting, and what holds a volume until then.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reclaim::{host_path, messages};
use crate::{
    controllers::{
        object::Volume,
        tests::{World, but, claim},
    },
    pv_controller::{MIGRATED_TO, PROVISIONED_BY, reclaim::reclaim},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
};

/// The volume was edited since the controller has looked at it.
#[test]
fn what_was_read_before_does_not_decide() {
    type Edit = Box<dyn Fn(&mut Value)>;
    let annotate = |annotations: Value| {
        move |v: &mut Value| v["metadata"]["annotations"] = annotations.clone()
    };
    let retain = |v: &mut Value| v["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    let edits: [(&str, Edit); 3] = [
        ("kept", Box::new(retain)),
        (
            "external",
            Box::new(annotate(json!({PROVISIONED_BY: "example.com/x"}))),
        ),
        (
            "migrated",
            Box::new(annotate(json!({MIGRATED_TO: "example.com"}))),
        ),
    ];
    for (what, edit) in edits {
        // Without a test root the deletion fails at once, and that can be seen.
        let mut world = World::new();
        world.create(&VOLUMES, but(host_path("Delete"), |v| edit(v)));
        world.create(&CLAIMS, claim("c", "1Gi"));
        world.delete(&CLAIMS, "c");
        assert_eq!(world.phase(&VOLUMES, "v"), "Released", "{what}");
        let read_before = but((*world.volume("v")).clone(), |v| {
            v["metadata"]["annotations"] = json!({});
            v["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        });
        let cx = &mut world.manager.cx;
        reclaim(cx, Volume(Arc::new(read_before))).unwrap();
        assert_eq!(world.phase(&VOLUMES, "v"), "Released", "{what}");
        assert_eq!(messages(&world, "VolumeFailedDelete"), [""; 0], "{what}");
    }
}
