//! Deleting, and what holds a volume until then.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use serde_json::{Value, json};

use super::reclaim::{annotated, host_path, messages};
use crate::{
    controllers::{
        ControllerOptions,
        object::Volume,
        tests::{World, but, claim, volume},
    },
    host_paths::HostPaths,
    pv_controller::{
        MIGRATED_TO, PROVISIONED_BY, delete,
        operations::FIRST_BACK_OFF,
        reclaim::{Reclaims, reclaim},
    },
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::Part,
};

const IN_TREE_DELETION: &str = "kubernetes.io/pv-controller";

#[test]
fn a_directory_is_deleted_where_that_is_allowed_only() {
    let root = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let inside = root.path().join("v").display().to_string();
    let below = || Some(HostPaths::below(root.path()).unwrap());
    for (path, host_paths, why) in [
        (
            "/var/x",
            below(),
            "host_path deleter only supports /tmp/.+ but received provided /var/x",
        ),
        (
            "/tmp/",
            below(),
            "host_path deleter only supports /tmp/.+ but received provided /tmp/",
        ),
        (&inside, None, "--host-paths"),
    ] {
        std::fs::create_dir_all(&inside).unwrap();
        let mut world = World::with(ControllerOptions {
            host_paths,
            ..ControllerOptions::default()
        });
        world.create(
            &VOLUMES,
            but(host_path("Delete"), |v| {
                v["spec"]["hostPath"]["path"] = json!(path);
            }),
        );
        world.create(&CLAIMS, claim("c", "1Gi"));
        world.delete(&CLAIMS, "c");
        assert_eq!(world.phase(&VOLUMES, "v"), "Failed", "{path}");
        let [message] = &messages(&world, "VolumeFailedDelete")[..] else {
            panic!("{path}")
        };
        assert!(message.contains(why), "{path}: {message}");
        assert!(Path::new(&inside).exists(), "{path}");
    }
}

#[test]
fn failed_deletions_say_what_kind_of_plug_in_is_missing() {
    for (source, provisioner, message) in [
        (
            json!({"local": {"path": "/mnt/v"}}),
            None,
            "error getting deleter volume plugin for volume \"v\": no volume plugin matched",
        ),
        (
            json!({"nfs": {"server": "s", "path": "/p"}}),
            None,
            "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched",
        ),
        (
            json!({"local": {"path": "/mnt/v"}}),
            Some("kubernetes.io/rbd"),
            "no volume plugin matched name: kubernetes.io/rbd",
        ),
        (
            json!({"local": {"path": "/mnt/v"}}),
            Some("kubernetes.io/host-path"),
            "failed to create deleter for volume \"v\": spec.PersistentVolumeSource.HostPath is nil",
        ),
    ] {
        let mut world = World::new();
        let mut pv = volume("v", "1Gi");
        let spec = pv["spec"].as_object_mut().unwrap();
        spec.remove("local");
        spec.extend(source.as_object().unwrap().clone());
        spec.insert("persistentVolumeReclaimPolicy".into(), json!("Delete"));
        if let Some(provisioner) = provisioner {
            pv["metadata"]["annotations"] = json!({PROVISIONED_BY: provisioner});
        }
        world.create(&VOLUMES, pv);
        world.create(&CLAIMS, claim("c", "1Gi"));
        world.delete(&CLAIMS, "c");
        assert_eq!(world.volume("v")["status"]["message"], message);
    }
}

#[test]
fn finalizers_and_annotations_by_provisioner_and_policy() {
    const EXTERNAL: &str = "external-provisioner.volume.kubernetes.io/finalizer";
    const PROTECTION: &str = "kubernetes.io/pv-protection";
    for (provisioner, policy, given, finalizers, migrated) in [
        (None, "Delete", vec![], vec![], None),
        (None, "Delete", vec![EXTERNAL], vec![EXTERNAL], None),
        (
            Some("example.com/x"),
            "Delete",
            vec![EXTERNAL],
            vec![EXTERNAL],
            None,
        ),
        (
            Some("kubernetes.io/host-path"),
            "Delete",
            vec![],
            vec![IN_TREE_DELETION],
            None,
        ),
        (
            Some("kubernetes.io/host-path"),
            "Delete",
            vec![EXTERNAL],
            vec![IN_TREE_DELETION],
            None,
        ),
        (
            Some("kubernetes.io/host-path"),
            "Retain",
            vec![IN_TREE_DELETION],
            vec![],
            None,
        ),
        (
            Some("kubernetes.io/host-path"),
            "Recycle",
            vec![IN_TREE_DELETION],
            vec![],
            None,
        ),
        (
            Some("kubernetes.io/gce-pd"),
            "Delete",
            vec![IN_TREE_DELETION],
            vec![],
            Some("pd.csi.storage.gke.io"),
        ),
    ] {
        let mut world = World::new();
        let what = format!("{provisioner:?} {policy} {given:?}");
        let mut pv = host_path(policy);
        if let Some(provisioner) = provisioner {
            pv["metadata"]["annotations"] = json!({PROVISIONED_BY: provisioner});
        }
        pv["metadata"]["finalizers"] = json!(given);
        world.create(&VOLUMES, pv);
        let volume = world.volume("v");
        let present = volume["metadata"]["finalizers"].as_array().unwrap();
        let mut present: Vec<_> = present.iter().map(|f| f.as_str().unwrap()).collect();
        present.retain(|finalizer| *finalizer != PROTECTION);
        assert_eq!(present, finalizers, "{what}");
        let driver = volume["metadata"]["annotations"][MIGRATED_TO].as_str();
        assert_eq!(driver, migrated, "{what}");
    }
}

/// While the directory is there, so is the volume, whoever wants it gone.
#[test]
fn an_in_tree_volume_outlives_its_deletion_until_its_storage_is_deleted() {
    let mut world = World::new();
    let by = json!({PROVISIONED_BY: "kubernetes.io/host-path"});
    world.create(&VOLUMES, annotated(host_path("Delete"), by));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&VOLUMES, "v");
    assert_eq!(world.phase(&VOLUMES, "v"), "Bound");
    world.delete(&CLAIMS, "c");
    // Nobody named a test root, so its directory cannot be deleted.
    let volume = world.volume("v");
    assert_eq!(volume["status"]["phase"], "Failed");
    assert_eq!(volume["metadata"]["finalizers"], json!([IN_TREE_DELETION]));
}

/// Only an external deleter is left, though nothing says which.
#[test]
fn a_volume_migrated_to_nobody_is_left_alone() {
    let mut world = World::new();
    world.create(
        &VOLUMES,
        annotated(host_path("Delete"), json!({MIGRATED_TO: ""})),
    );
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&CLAIMS, "c");
    assert_eq!(world.phase(&VOLUMES, "v"), "Released");
}

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

/// A volume whose deletion runs. Nothing has taken in yet how it ends.
fn being_deleted(path: &Path, root: &Path) -> World {
    let mut world = World::with(ControllerOptions {
        host_paths: Some(HostPaths::below(root).unwrap()),
        ..ControllerOptions::default()
    });
    let kept = but(host_path("Retain"), |v| {
        v["spec"]["hostPath"]["path"] = json!(path);
    });
    world.create(&VOLUMES, kept);
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&CLAIMS, "c");
    world.edit(&VOLUMES, "v", Part::Main, |v| {
        v["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    });
    let volume = Volume(world.volume("v"));
    reclaim(&mut world.manager.cx, volume).unwrap();
    assert!(world.manager.cx.reclaims.is_busy());
    world
}

#[test]
fn the_end_of_a_deletion_is_heard_between_two_keys() {
    let root = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let path = root.path().join("v");
    std::fs::create_dir(&path).unwrap();
    let mut world = being_deleted(&path, root.path());
    let deleted = world.deletion();
    world.manager.cx.reclaims.deleted.send(deleted).unwrap();
    world.settle();
    assert!(world.get(&VOLUMES, "v").is_none());
}

/// Its end cannot be written into what somebody else has changed since, and that change was heard
/// while it still ran.
#[test]
fn a_volume_that_is_changed_while_its_deletion_fails_is_looked_at_again() {
    let root = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let mut world = being_deleted(Path::new("/tmp/v"), root.path());
    let deleted = world.deletion();
    world.change(&VOLUMES, "v", |v| {
        v["metadata"]["annotations"] = json!({"by": "somebody"});
    });
    let before = Instant::now();
    delete::finish(&mut world.manager.cx, deleted);
    assert_eq!(world.phase(&VOLUMES, "v"), "Released");
    let [due] = world.manager.cx.queues.volumes.appointments()[..] else {
        panic!("nothing looks at the volume again")
    };
    assert!(due >= before + FIRST_BACK_OFF);
    world.hurry();
    world.settle_outside();
    assert_eq!(world.phase(&VOLUMES, "v"), "Failed");
}

#[test]
fn deletions_end_with_their_controllers() {
    let (reclaims, _) = Reclaims::new(None);
    let stopped = Arc::clone(&reclaims.stopped);
    assert!(!stopped.load(Ordering::Relaxed));
    drop(reclaims);
    assert!(stopped.load(Ordering::Relaxed));
}

#[test]
fn the_errors_of_a_volume_are_forgotten_with_it() {
    let mut world = World::new();
    world.create(&VOLUMES, host_path("Delete"));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.delete(&CLAIMS, "c");
    assert_eq!(world.phase(&VOLUMES, "v"), "Failed");
    assert_eq!(world.manager.cx.reclaims.operations.len(), 1, "it waits");
    world.delete(&VOLUMES, "v");
    assert!(world.get(&VOLUMES, "v").is_none());
    assert_eq!(world.manager.cx.reclaims.operations.len(), 0);
}
