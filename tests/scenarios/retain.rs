//! Volumes whose data is kept, and reclaim policies that change on the way.

use support::stage::name;

use crate::kit::*;

/// Waits until the PV, which nothing is to be cleaned for, has no finalizer of ours.
fn is_unprotected(volume: &mut Occupied) {
    let name = name(&volume.pv);
    volume.pv = volume.stage.eventually("the finalizer is off", || {
        volume.stage.pv(&name).filter(|pv| !is_protected(pv))
    });
}

/// The data of the deleted PV stays, and is handed to no other tenant.
fn is_dirty(volume: &mut Occupied) {
    let Occupied { stage, provisioner, path, .. } = volume;
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
fn a_terminating_pv_whose_volume_is_gone_is_abandoned_by_retain() {
    let volume = or_skip!(occupied());
    let stage = &volume.stage;
    stage.sandbox.umount(&volume.path).unwrap();
    std::fs::remove_dir(&volume.path).unwrap();
    volume.delete_pv();
    stage.delete_claim("claim");
    let text = stage.event("VolumeFailedDelete", "set the PV's reclaim policy to Retain");
    assert!(text.contains(&volume.path.display().to_string()), "{text}");
    set_policy(stage, &volume.pv, "Retain");
    is_gone(stage, &volume.pv);
}
