//! PVs that somebody takes out of our hands while a Job of theirs is at work.

use super::*;

fn take_finalizers_off(stage: &Stage, pv: &PersistentVolume) {
    let none = json!({ "metadata": { "finalizers": null } });
    stage.patch_pv(&name(pv), &none).unwrap();
    is_gone(stage, pv);
}

/// From then on a Job goes no more with its PV.
fn is_seen_at_work(stage: &Stage, pv: &PersistentVolume) {
    let owners = || job(stage, pv).unwrap()["metadata"]["ownerReferences"].clone();
    stage.eventually("it is seen at work", || owners().is_null().then_some(()));
}

fn is_seen_although_denied(stage: &Stage, provisioner: &mut Program) {
    let right = "missing_permission{resource=\"jobs.batch\",verb=\"patch\"}";
    stage.eventually("the metric names the right", || {
        (metric(provisioner, right) == Some(1)).then_some(())
    });
}

#[test]
fn a_job_at_work_comes_to_its_end_although_its_pv_is_gone() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    is_seen_at_work(&stage, &bound);
    take_finalizers_off(&stage, &bound);
    stage.eventually("the PV is seen to be gone", || {
        status_of(&mut provisioner, &path)["pv"]
            .is_null()
            .then_some(())
    });
    stage.still_cleaning(&mut provisioner, "it cleans on, unoffered", || {
        job(&stage, &bound).is_some() && stage.pvs_at(&path).is_empty()
    });
    held.go_on();
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((held.ran().len(), made_jobs(&stage)), (1, 1));
}

#[test]
fn a_job_that_is_stopped_together_with_its_pv_is_told_of() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    let _denied = stage.faults().on(Verb::Patch).resource("jobs").forbid();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    is_seen_although_denied(&stage, &mut provisioner);
    take_finalizers_off(&stage, &bound);
    let told = stage.event("VolumeFailedDelete", "only partly clean");
    assert!(told.contains(&job_name(&name(&bound))), "{told}");
    assert_eq!(secrets_on(device.path()).len(), 4);
}

#[test]
fn a_shutdown_after_a_job_has_cleaned_gives_no_data_up() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    is_seen_at_work(&stage, &bound);
    let reading = stage.faults().on(Verb::Get).resource("persistentvolumes");
    let unread = reading.answer(Answer::code(500));
    held.go_on();
    stage.eventually("it is seen done", || (unread.hits() > 0).then_some(()));
    assert!(provisioner.stop(stage.patience()).unwrap().success());
    unread.clear();
    let _successor = stage.provisioner().unwrap();
    offered_anew(&stage, &path, &bound);
    assert_eq!(held.ran().len(), 1);
}

/// An API server that is busy just then tells nothing about the PV.
#[test]
fn a_job_that_is_deleted_alone_is_made_anew_and_no_data_is_given_up() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    let _provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    is_seen_at_work(&stage, &bound);
    let reading = stage.faults().on(Verb::Get).resource("persistentvolumes");
    let unread = reading.times(1).answer(Answer::code(500));
    delete_job(&stage, &bound);
    held.go_on();
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((unread.hits(), held.ran().len()), (1, 2));
    assert_eq!(stage.events("VolumeFailedDelete"), [""; 0]);
}

/// It has done half of its work, or all of it, when its PV is let go.
#[test]
fn whoever_keeps_a_volume_after_its_job_has_begun_is_warned() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    provisioner.kill();
    let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    stage.patch_pv(&name(&bound), &keep).unwrap();
    let _successor = stage.provisioner().unwrap();
    stage.event("VolumeFailedDelete", "at least a part of the data is gone");
    offered_anew(&stage, &path, &bound);
}
