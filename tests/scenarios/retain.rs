//! Volumes whose data is kept, and reclaim policies that change on the way.

use control_plane::requests::Verb;
use serde_json::json;
use support::stage::name;

use crate::kit::*;
use crate::stage;

/// Waits until the PV, which nothing is to be cleaned for, has no finalizer of ours.
fn is_unprotected(volume: &mut Occupied) {
    let name = name(&volume.pv);
    volume.pv = volume.stage.eventually("the finalizer is off", || {
        volume.stage.pv(&name).filter(|pv| !is_protected(pv))
    });
}

/// The data of the deleted PV stays, and is handed to no other tenant.
fn is_dirty(volume: &mut Occupied) {
    let Occupied {
        stage,
        provisioner,
        path,
        ..
    } = volume;
    stage.event("VolumeDirty", "vol-1");
    stage.still(provisioner, "it is not offered", || {
        has_secret(path) && stage.pvs_at(path).is_empty()
    });
    for entry in entries(path) {
        std::fs::remove_file(path.join(entry)).unwrap();
    }
    stage.available(path, None);
}

#[test]
fn retain_keeps_object_and_data_until_the_policy_changes() {
    let stage = or_skip!(stage());
    let dir = "/mnt/disks/kept";
    let map = json!({ stage.named("kept"): { "hostDir": dir, "mountDir": dir } }).to_string();
    stage.configure("storageClassMap", &map);
    stage.storage_class("kept", "Retain", "Immediate");
    let path = tmpfs(&stage, "disks/kept/vol-1");
    let mut volume = Occupied::at(stage, path);
    let spec = volume.pv.spec.clone().unwrap();
    let policy = spec.persistent_volume_reclaim_policy;
    assert_eq!(policy.as_deref(), Some("Retain"));
    assert!(!is_protected(&volume.pv), "nothing is to be cleaned for it");
    volume.release();
    volume.is_kept("Released", "it is retained");
    in_state(
        &volume.stage,
        &mut volume.provisioner,
        &volume.path,
        "Retained",
    );
    set_policy(&volume.stage, &volume.pv, "Delete");
    volume.is_cleaned();
}

#[test]
fn a_retained_pv_that_is_deleted_leaves_a_volume_that_is_not_offered_until_it_is_empty() {
    let mut volume = or_skip!(occupied());
    assert!(is_protected(&volume.pv));
    set_policy(&volume.stage, &volume.pv, "Retain");
    is_unprotected(&mut volume);
    volume.release();
    volume.delete_pv();
    is_dirty(&mut volume);
}

#[test]
fn a_policy_changed_to_retain_while_terminating_releases_it_unwiped() {
    let mut volume = or_skip!(occupied());
    volume.annotate(PAUSED, "true");
    volume.release();
    volume.delete_pv();
    volume.stage.event("CleaningPaused", "");
    set_policy(&volume.stage, &volume.pv, "Retain");
    volume
        .stage
        .event("VolumeDelete", "its reclaim policy is Retain");
    is_dirty(&mut volume);
}

#[test]
fn a_terminating_pv_whose_volume_is_gone_is_abandoned_by_retain() {
    let volume = or_skip!(occupied());
    let stage = &volume.stage;
    stage.sandbox.umount(&volume.path).unwrap();
    std::fs::remove_dir(&volume.path).unwrap();
    volume.delete_pv();
    stage.delete_claim("claim");
    let text = stage.event(
        "VolumeFailedDelete",
        "set the PV's reclaim policy to Retain",
    );
    assert!(text.contains(&volume.path.display().to_string()), "{text}");
    set_policy(stage, &volume.pv, "Retain");
    is_gone(stage, &volume.pv);
}

#[test]
fn a_policy_changed_to_retain_before_the_wipe_begins_is_in_time() {
    let mut volume = or_skip!(occupied());
    let mounted = mounted_by_kubelet(&volume.stage, &volume.pv);
    volume.release();
    volume.waits();
    // The watch is held back: only a fresh look shows the new policy.
    let held = volume.stage.faults().hold_watches("persistentvolumes");
    let mark = volume.stage.requests().mark();
    volume.pv = set_policy(&volume.stage, &volume.pv, "Retain");
    std::fs::remove_dir(&mounted).unwrap();
    let Occupied {
        stage,
        provisioner,
        pv,
        path,
        ..
    } = &mut volume;
    is_asked(stage, mark, "the PV, again", |it| {
        it.verb == Verb::Get && it.name == name(pv)
    });
    stage.still_unwatched(provisioner, "it is kept", || {
        has_secret(path) && is_untouched(stage, pv, "Released")
    });
    held.release();
    in_state(stage, provisioner, path, "Retained");
    is_unprotected(&mut volume);
}

#[test]
fn recycle_is_refused_with_its_own_reason() {
    let mut volume = or_skip!(occupied());
    volume.pv = set_policy(&volume.stage, &volume.pv, "Recycle");
    volume.stage.delete_claim("claim");
    volume
        .stage
        .event("VolumeUnsupportedReclaimPolicy", "Recycle");
    let Occupied {
        stage,
        provisioner,
        pv,
        path,
        ..
    } = &mut volume;
    // The cluster's own recycler has the PV's phase.
    stage.still(provisioner, "nothing is wiped", || {
        let now = stage.pv(&name(pv));
        has_secret(path) && now.is_some_and(|now| now.metadata.uid == pv.metadata.uid)
    });
}
