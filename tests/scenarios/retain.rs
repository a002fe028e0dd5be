//! Volumes whose data is kept, and reclaim policies that change on the way.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use support::Stage;
use support::stage::name;

use crate::kit::*;
use crate::stage;

fn set_policy(stage: &Stage, pv: &PersistentVolume, policy: &str) {
    let patch = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    stage.patch_pv(&name(pv), &patch).unwrap();
}

#[test]
fn retain_keeps_object_and_data_until_somebody_says_otherwise() {
    let Some(stage) = stage() else { return };
    let dir = "/mnt/disks/kept";
    let map = json!({ stage.named("kept"): { "hostDir": dir, "mountDir": dir } });
    stage
        .configure("storageClassMap", &map.to_string())
        .unwrap();
    stage.storage_class("kept", "Retain", "Immediate").unwrap();
    let volume = stage.sandbox.tmpfs("disks/kept/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    let policy = bound
        .spec
        .as_ref()
        .unwrap()
        .persistent_volume_reclaim_policy
        .clone();
    assert_eq!(policy.as_deref(), Some("Retain"));
    assert!(
        !is_protected(&bound),
        "what is kept needs no protection from being forgotten"
    );
    keep_secret(&volume);
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.still(&mut provisioner, "it is kept", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    in_state(&stage, &mut provisioner, &volume, "Retained");

    set_policy(&stage, &bound, "Delete");
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn a_retained_pv_that_is_deleted_leaves_its_data_to_the_next_pv() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    assert!(is_protected(&bound));
    keep_secret(&volume);
    set_policy(&stage, &bound, "Retain");
    stage.eventually("the finalizer is off", || {
        stage.pv(&name(&bound)).filter(|pv| !is_protected(pv))
    });
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.delete_pv(&name(&bound)).unwrap();
    offered_anew(&stage, &volume, &bound);
    assert!(has_secret(&volume));
}

#[test]
fn a_policy_changed_to_retain_while_terminating_lets_it_go_unwiped() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    annotate(
        &stage,
        &name(&bound),
        "local-volume-provisioner/paused",
        "true",
    );
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.delete_pv(&name(&bound)).unwrap();
    stage.event("CleaningPaused", "");
    set_policy(&stage, &bound, "Retain");
    offered_anew(&stage, &volume, &bound);
    assert!(has_secret(&volume));
    stage.event("VolumeDelete", "its reclaim policy is Retain");
}

#[test]
fn a_terminating_pv_whose_volume_is_gone_is_given_up_by_retain() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.sandbox.umount(&volume).unwrap();
    std::fs::remove_dir(&volume).unwrap();
    stage.delete_pv(&name(&bound)).unwrap();
    stage.delete_claim("claim");
    stage.event("VolumeMissing", "set the PV's reclaim policy to Retain");
    set_policy(&stage, &bound, "Retain");
    is_gone(&stage, &bound);
}

#[test]
fn a_policy_changed_to_retain_before_the_wipe_begins_is_in_time() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    let mounted = mounted_by_kubelet(&stage, &bound);
    stage.delete_claim("claim");
    stage.eventually("the cleanup waits", || {
        (status_of(&mut provisioner, &volume)["cleanup"]["state"] == "Waiting").then_some(())
    });
    // The watch is held back: only a fresh look shows the new policy.
    let held = stage.faults().hold_watches("persistentvolumes");
    set_policy(&stage, &bound, "Retain");
    std::fs::remove_dir(&mounted).unwrap();
    stage.still_unwatched(&mut provisioner, "it is kept", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    held.release();
    stage.eventually("/status knows", || {
        (status_of(&mut provisioner, &volume)["state"] == "Retained").then_some(())
    });
    stage.eventually("the finalizer is off", || {
        stage.pv(&name(&bound)).filter(|pv| !is_protected(pv))
    });
}

#[test]
fn recycle_is_refused_with_its_own_reason() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    set_policy(&stage, &bound, "Recycle");
    stage.delete_claim("claim");
    stage.event("VolumeUnsupportedReclaimPolicy", "Recycle");
    stage.stays(Duration::from_millis(300), "nothing is wiped", || {
        has_secret(&volume)
            && stage
                .pv(&name(&bound))
                .is_some_and(|pv| pv.metadata.uid == bound.metadata.uid)
    });
}

#[test]
fn a_class_that_left_the_configuration_is_told_and_not_cleaned() {
    let Some(stage) = stage() else { return };
    let gone = stage.class("gone", &json!({})).unwrap();
    let stays = stage.class("stays", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/gone/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    assert!(provisioner.stop(stage.patience()).unwrap().success());
    let map = |dirs: &[(&str, &std::path::Path)]| -> Value {
        let class = |(name, dir): &(&str, &std::path::Path)| {
            (
                stage.named(name),
                json!({ "hostDir": dir, "mountDir": dir }),
            )
        };
        dirs.iter().map(class).collect()
    };
    stage
        .configure("storageClassMap", &map(&[("stays", &stays)]).to_string())
        .unwrap();
    let mut second = stage.provisioner().unwrap();
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "no longer in the configuration");
    stage.stays(Duration::from_millis(300), "nothing is wiped", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    assert_eq!(stage.events("VolumeFailedDelete").len(), 1, "told once");
    assert!(second.stop(stage.patience()).unwrap().success());

    let both = map(&[("gone", &gone), ("stays", &stays)]);
    stage
        .configure("storageClassMap", &both.to_string())
        .unwrap();
    let _third = stage.provisioner().unwrap();
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}
