//! Recycling.

use serde_json::{Value, json};

use crate::{
    controllers::{
        object::Volume,
        tests::{World, but, claim, volume},
    },
    resource::{EVENTS, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS},
    store::Part,
};

const POD: &str = "recycler-for-v";

fn host_path(policy: &str) -> Value {
    but(volume("v", "1Gi"), |v| {
        let spec = v["spec"].as_object_mut().unwrap();
        spec.remove("local");
        spec.remove("nodeAffinity");
        spec.insert("hostPath".into(), json!({"path": "/tmp/v"}));
        spec.insert("persistentVolumeReclaimPolicy".into(), json!(policy));
    })
}

/// A volume whose claim is gone, and whose recycler pod waits: there is no node.
fn released() -> World {
    let mut world = World::new();
    world.create(&VOLUMES, host_path("Recycle"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.bound("c").as_deref(), Some("v"));
    world.delete(&CLAIMS, "c");
    world
}

/// Ends the recycler pod as a kubelet would.
fn end_pod(world: &mut World, phase: &str, message: &str) {
    world.edit(&PODS, POD, Part::Status, |pod| {
        pod["status"]["phase"] = json!(phase);
        if !message.is_empty() {
            pod["status"]["message"] = json!(message);
        }
    });
    world.settle();
}

fn messages(world: &World, reason: &str) -> Vec<String> {
    let events = world.store.list(&EVENTS, Some("default")).items;
    let about = events.iter().filter(|event| {
        event["reason"] == reason && event["involvedObject"]["kind"] == "PersistentVolume"
    });
    let messages = about.map(|event| event["message"].as_str().unwrap().to_owned());
    messages.collect()
}

#[test]
fn a_recycler_pod_that_does_not_succeed_fails_the_volume() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, &str); 3] = [
        (
            "failed",
            |world| end_pod(world, "Failed", ""),
            "Recycle failed: failed to recycle volume: pod failed, pod.Status.Message unknown",
        ),
        (
            "failed, and says why",
            |world| end_pod(world, "Failed", "out of time"),
            "Recycle failed: failed to recycle volume: out of time",
        ),
        (
            "deleted by a client",
            |world| world.delete(&PODS, POD),
            "Recycle failed: failed to recycle volume: recycler pod was deleted",
        ),
    ];
    for (what, change, message) in cases {
        let mut world = released();
        let first = world.pod(POD)["metadata"]["uid"].clone();
        change(&mut world);
        let volume = world.volume("v");
        assert_eq!(volume["status"]["phase"], "Failed", "{what}");
        assert_eq!(volume["status"]["message"], message, "{what}");
        assert_eq!(messages(&world, "VolumeFailedRecycle"), [message], "{what}");

        // It is not given up.
        world.resync();
        assert_ne!(world.pod(POD)["metadata"]["uid"], first, "{what}");
        end_pod(&mut world, "Succeeded", "");
        assert_eq!(world.phase(&VOLUMES, "v"), "Available", "{what}");
        assert!(world.volume("v")["status"]["message"].is_null(), "{what}");
    }
}

#[test]
fn many_reconciles_of_a_volume_create_one_pod() {
    let mut world = released();
    let made = world.pod(POD);
    for round in 0..3 {
        world.change(&VOLUMES, "v", |v| {
            v["metadata"]["labels"] = json!({"round": round.to_string()});
        });
        world.resync();
    }
    assert_eq!(world.pod(POD)["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(world.phase(&VOLUMES, "v"), "Released");
    assert_eq!(messages(&world, "VolumeFailedRecycle"), [""; 0]);

    // The volume that was freed must be the one that was looked at, so it is emptied once more.
    end_pod(&mut world, "Succeeded", "");
    assert_eq!(world.phase(&VOLUMES, "v"), "Released");
    world.resync();
    end_pod(&mut world, "Succeeded", "");
    assert_eq!(world.phase(&VOLUMES, "v"), "Available");
}

#[test]
fn an_existing_pod_is_deleted_first() {
    let mut world = released();
    let old = world.pod(POD);
    // The next controller knows nothing of the pod that the one before it has made.
    world.restart();
    world.resync();
    assert_eq!(world.phase(&VOLUMES, "v"), "Failed");
    assert_eq!(
        messages(&world, "VolumeFailedRecycle"),
        ["Recycle failed: old recycler pod found, will retry later"]
    );
    world.resync();
    assert_ne!(world.pod(POD)["metadata"]["uid"], old["metadata"]["uid"]);
    end_pod(&mut world, "Succeeded", "");
    assert_eq!(world.phase(&VOLUMES, "v"), "Available");
}

#[test]
fn the_claim_is_looked_for_again_before_anything_is_done() {
    let mut world = World::new();
    world.create(&VOLUMES, host_path("Recycle"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    let bound = Volume(world.volume("v"));
    // As if the volume had been queued when it was released, and was taken back since.
    let cx = &mut world.manager.cx;
    super::super::reclaim::reclaim(cx, bound).unwrap();
    world.settle();
    assert!(world.get(&PODS, POD).is_none());
    assert_eq!(world.phase(&VOLUMES, "v"), "Bound");
}
