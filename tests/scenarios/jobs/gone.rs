//! PVs that are deleted by another client while their Job runs.

use super::*;

fn remove_finalizers(stage: &Stage, pv: &PersistentVolume) {
    let none = json!({ "metadata": { "finalizers": null } });
    stage.patch_pv(&name(pv), &none);
    is_gone(stage, pv);
}

/// From then on a Job is not deleted together with its PV.
fn is_seen_running(stage: &Stage, pv: &PersistentVolume) {
    let owners = || job(stage, pv).unwrap()["metadata"]["ownerReferences"].clone();
    stage.eventually("it is seen running", || owners().is_null());
}

#[test]
fn a_running_job_ends_although_its_pv_is_gone() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path, mut provisioner, bound) = held_job(&stage);
    is_seen_running(&stage, &bound);
    remove_finalizers(&stage, &bound);
    stage.eventually("the PV is seen to be gone", || {
        status_of(&mut provisioner, &path)["pv"].is_null()
    });
    stage.still_cleaning(&mut provisioner, "it cleans on, unoffered", || {
        job(&stage, &bound).is_some() && stage.pvs_at(&path).is_empty()
    });
    held.go_on();
    // Without the PV, nothing shows that it was this volume which the Job has cleaned.
    stage.event("VolumeDirty", "disk");
    assert!(stage.pvs_at(&path).is_empty());
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((held.ran().len(), made_jobs(&stage)), (1, 1));
}

#[test]
fn a_shutdown_after_a_job_has_cleaned_abandons_no_data() {
    let stage = or_skip!(stage_with_jobs());
    let (held, _device, path, mut provisioner, bound) = held_job(&stage);
    is_seen_running(&stage, &bound);
    let reading = stage.faults().on(Verb::Get).resource("persistentvolumes");
    let unread = reading.answer(Answer::code(500));
    held.go_on();
    stage.eventually("it is seen done", || unread.hits() > 0);
    assert!(provisioner.stop(stage.timeout()).unwrap().success());
    unread.clear();
    let _successor = stage.provisioner();
    offered_again(&stage, &path, &bound);
    assert_eq!(held.ran().len(), 1);
}

/// An API server that is busy just then does not show the state of the PV.
#[test]
fn a_job_that_is_deleted_alone_is_created_again_and_no_data_is_abandoned() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path, _provisioner, bound) = held_job(&stage);
    is_seen_running(&stage, &bound);
    let reading = stage.faults().on(Verb::Get).resource("persistentvolumes");
    let unread = reading.times(1).answer(Answer::code(500));
    delete_job(&stage, &bound);
    held.go_on();
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((unread.hits(), held.ran().len()), (1, 2));
    assert_eq!(stage.events("VolumeFailedDelete"), [""; 0]);
}

/// The Job has done half of its work, or all of it, when the finalizers of its PV are removed.
#[test]
fn retain_after_a_job_has_begun_is_warned_about() {
    let stage = or_skip!(stage_with_jobs());
    let (_held, _device, path, mut provisioner, bound) = held_job(&stage);
    provisioner.kill();
    let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    stage.patch_pv(&name(&bound), &keep);
    let _successor = stage.provisioner();
    stage.event("VolumeFailedDelete", "a part of the data may be gone");
    // What is left is the tenant's.
    stage.event("VolumeDirty", "disk");
    assert!(stage.pvs_at(&path).is_empty());
}
