//! What happens to a volume.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    controllers::{
        object::Key,
        tests::{World, but, claim, provisioned, volume},
    },
    pv_controller::{MIGRATED_TO, PROVISIONED_BY, volume as rule},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::Part,
};

#[test]
fn free_and_reserved_volumes_are_available() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("free", "1Gi"));
    world.create(
        &VOLUMES,
        but(volume("reserved", "1Gi"), |v| {
            v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
        }),
    );
    assert_eq!(world.phase(&VOLUMES, "free"), "Available");
    assert_eq!(world.phase(&VOLUMES, "reserved"), "Available");
}

#[test]
fn a_released_volume_is_reclaimed_by_its_policy() {
    let policy = |policy: &str| {
        but(volume("v", "1Gi"), |v| {
            v["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        })
    };
    let by = |provisioner: &str| {
        but(policy("Delete"), |v| {
            v["metadata"]["annotations"] = json!({PROVISIONED_BY: provisioner});
        })
    };
    let host_path = |chosen: &str| {
        but(policy(chosen), |v| {
            let spec = v["spec"].as_object_mut().unwrap();
            spec.remove("local");
            spec.insert("hostPath".into(), json!({"path": "/tmp/somewhere"}));
        })
    };
    let migrated = but(by("kubernetes.io/gce-pd"), |v| {
        v["metadata"]["annotations"][MIGRATED_TO] = json!("pd.csi.storage.gke.io");
    });
    let said_to_be_migrated = but(policy("Delete"), |v| {
        v["metadata"]["annotations"] = json!({MIGRATED_TO: "pd.csi.storage.gke.io"});
    });
    let falsely_migrated = but(by("kubernetes.io/rbd"), |v| {
        v["metadata"]["annotations"][MIGRATED_TO] = json!("rbd.csi.ceph.com");
    });
    let csi = but(policy("Delete"), |v| {
        let spec = v["spec"].as_object_mut().unwrap();
        spec.remove("local");
        spec.insert("csi".into(), json!({"driver": "d", "volumeHandle": "h"}));
    });
    for case in [
        ("kept", policy("Retain"), "Released", vec![]),
        (
            "its provisioner deletes it",
            provisioned("v", "1Gi"),
            "Released",
            vec![],
        ),
        ("its driver deletes it", migrated, "Released", vec![]),
        ("a CSI volume", csi, "Released", vec![]),
        (
            "nobody provisioned it, so nobody doubts its migration",
            said_to_be_migrated,
            "Released",
            vec![],
        ),
        (
            "a migration that cannot be",
            falsely_migrated,
            "Failed",
            vec!["VolumeFailedDelete"],
        ),
        (
            "nobody can delete it",
            policy("Delete"),
            "Failed",
            vec!["VolumeFailedDelete"],
        ),
        (
            "a plug-in that is not there",
            by("kubernetes.io/rbd"),
            "Failed",
            vec!["VolumeFailedDelete"],
        ),
        (
            "nobody can recycle it",
            policy("Recycle"),
            "Failed",
            vec!["VolumeFailedRecycle"],
        ),
        (
            "no test root to delete it below",
            host_path("Delete"),
            "Failed",
            vec!["VolumeFailedDelete"],
        ),
        (
            "no node for its recycler pod",
            host_path("Recycle"),
            "Released",
            vec!["RecyclerPod"],
        ),
    ] {
        check(case);
    }
}

fn check((what, volume, phase, reasons): (&str, Value, &str, Vec<&str>)) {
    let mut world = World::new();
    world.create(&VOLUMES, volume);
    world.create(&CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.bound("c").as_deref(), Some("v"), "{what}");
    world.delete(&CLAIMS, "c");
    assert!(world.get(&CLAIMS, "c").is_none(), "{what}");
    assert_eq!(world.phase(&VOLUMES, "v"), phase, "{what}");
    assert_eq!(world.reasons("v"), reasons, "{what}");
    assert_eq!(
        world.volume("v")["spec"]["claimRef"]["name"],
        "c",
        "{what}: the trace stays"
    );

    // Neither a resync nor a new claim of that name changes it.
    world.resync();
    world.create(&CLAIMS, claim("c", "1Gi"));
    assert_eq!(world.phases("c", "v"), ["Pending", phase], "{what}");
}

#[test]
fn a_failure_says_why_until_it_is_over() {
    let mut world = World::new();
    world.create(
        &VOLUMES,
        but(volume("v", "1Gi"), |v| {
            v["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        }),
    );
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&CLAIMS, "c");
    let message = world.volume("v")["status"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("no volume plugin matched"), "{message}");
    world.change(&VOLUMES, "v", |v| {
        v["spec"].as_object_mut().unwrap().remove("claimRef");
    });
    assert_eq!(world.volume("v")["status"]["phase"], "Available");
    assert!(world.volume("v")["status"]["message"].is_null());
}

#[test]
fn a_mode_mismatch_is_told_on_both_sides() {
    let mut world = World::new();
    world.create(&CLAIMS, claim("c", "1Gi"));
    let uid = world.claim("c")["metadata"]["uid"].clone();
    world.create(
        &VOLUMES,
        but(volume("v", "1Gi"), |v| {
            v["spec"]["volumeMode"] = json!("Block");
            v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": uid});
        }),
    );
    assert!(world.reasons("c").contains(&"VolumeMismatch".to_owned()));
    assert_eq!(world.reasons("v"), ["VolumeMismatch"]);
    assert_eq!(world.bound("c"), None);
}

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

#[test]
fn protection_holds_and_is_put_back() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    assert_eq!(
        finalizers(&world.volume("v")),
        json!(["kubernetes.io/pv-protection"])
    );
    assert_eq!(
        finalizers(&world.claim("c")),
        json!(["kubernetes.io/pvc-protection"])
    );
    world.change(&VOLUMES, "v", |v| v["metadata"]["finalizers"] = json!([]));
    world.change(&CLAIMS, "c", |c| {
        c["metadata"]["finalizers"] = json!(["example.com/other"]);
    });
    assert_eq!(
        finalizers(&world.volume("v")),
        json!(["kubernetes.io/pv-protection"])
    );
    assert_eq!(
        finalizers(&world.claim("c")),
        json!(["example.com/other", "kubernetes.io/pvc-protection"])
    );
    world.delete(&VOLUMES, "v");
    assert_eq!(
        world.phase(&VOLUMES, "v"),
        "Bound",
        "it stays while it is bound"
    );
    world.delete(&CLAIMS, "c");
    assert_eq!(
        finalizers(&world.claim("c")),
        json!(["example.com/other"]),
        "unused, so not held"
    );
    world.change(&CLAIMS, "c", |c| c["metadata"]["finalizers"] = json!([]));
    assert!(world.get(&CLAIMS, "c").is_none());
    assert!(world.get(&VOLUMES, "v").is_none(), "released, so not held");
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
