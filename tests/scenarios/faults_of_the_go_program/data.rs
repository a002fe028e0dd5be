//! Data that survives a release, or dies without one.

use std::fs;

use serde_json::json;
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::{lively_stage, stage};

#[test]
fn fault_1_a_volume_that_is_not_mounted_does_not_count_as_clean() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({}));
    let path = dir.join("vol-1");
    let disk = ext4(&stage);
    mount(&stage, &disk, "disks/fast/vol-1");
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    keep_secret(&path);

    stage.sandbox.umount(&path).unwrap();
    fs::write(path.join("below"), "of the root disk").unwrap();
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.event("VolumeNotMounted", "mount the volume");
    stage.still(&mut provisioner, "nothing is done", || {
        is_untouched(&stage, &bound, "Released") && path.join("below").exists()
    });
    in_state(&stage, &mut provisioner, &path, "NotMounted");

    mount(&stage, &disk, "disks/fast/vol-1");
    offered_again(&stage, &path, &bound);
    assert!(entries(&path).is_empty(), "{:?}", entries(&path));
    stage.sandbox.umount(&path).unwrap();
    assert!(path.join("below").exists(), "what lies below the mount is not the volume");
}

#[test]
fn fault_2_a_finished_cleanup_never_vouches_for_the_next_release() {
    let stage = or_skip!(lively_stage());
    let log = stage.sandbox.path().join("cleaner.log");
    let go = stage.sandbox.path().join("go");
    let script = format!(
        "echo run >> {log}; while ! [ -e {go} ]; do sleep 0.02; done; dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none",
        log = log.display(),
        go = go.display()
    );
    let settings = json!({ "blockCleanerCommand": ["/bin/sh", "-c", script] });
    let (device, path) = raw_volume(&stage, &settings);
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("first", &path);
    scribble(device.path());

    stage.delete_claim("first");
    stage.eventually("the cleaner runs", || lines(&log).len() == 1);
    // An administrator offers the PV again, and it is claimed, in the middle of the cleanup.
    clear_claim_ref(&stage, &name(&bound));
    stage.claim_in_mode("second", "raw", Some(&name(&bound)), "Block");
    stage.still_cleaning(&mut provisioner, "the volume cannot be bound", || {
        let pv = stage.pv(&name(&bound)).unwrap();
        claim_phase(&stage, "second") != "Bound" && is_terminating(&pv)
    });

    fs::write(&go, "").unwrap();
    // The second claim gets the new object, by the name that both have: perhaps before the test sees
    // that it is free.
    stage.eventually("the second claim is bound", || claim_phase(&stage, "second") == "Bound");
    let fresh = stage.pv(&name(&bound)).unwrap();
    assert_ne!(fresh.metadata.uid, bound.metadata.uid, "it is a new one");
    assert_eq!(stage.pvs_at(&path).len(), 1, "one device, one PV");
    assert!(secrets_on(device.path()).is_empty());
    stage.used(&fresh);
    scribble(device.path());
    stage.delete_claim("second");
    offered_again(&stage, &path, &fresh);
    assert!(
        secrets_on(device.path()).is_empty(),
        "the first cleanup vouched for the second tenant"
    );
    // The first tenancy ended in mid-cleanup, so its result may not count.
    assert!(lines(&log).len() >= 2);
}

#[test]
fn fault_5_deletion_never_reaches_into_a_nested_mount() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol-1"]));
    let elsewhere = stage.sandbox.dir("elsewhere").unwrap();
    keep_secret(&elsewhere);
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &volume);
    keep_secret(&volume);
    let inner = fast(&stage, "vol-1/a/inner");
    keep_secret(&inner);
    let same_filesystem = stage.sandbox.bind(&elsewhere, "disks/fast/vol-1/b").unwrap();

    stage.delete_claim("claim");
    let text = stage.event("VolumeFailedDelete", "is mounted inside the volume");
    assert!(
        [&inner, &same_filesystem].iter().any(|mount| text.contains(mount.to_str().unwrap())),
        "the nested mount is named: {text}"
    );
    stage.still(&mut provisioner, "nothing at all is deleted", || {
        let mut all = [&volume, &inner, &elsewhere].into_iter();
        all.all(|dir| has_secret(dir))
    });
    in_state(&stage, &mut provisioner, &volume, "CleaningFailed");
    // Only the event and the log have the names of a tenant's directories.
    let status = status_of(&mut provisioner, &volume).to_string();
    assert!(status.contains("is mounted inside the volume"), "{status}");
    assert!(!status.contains(inner.to_str().unwrap()), "{status}");

    stage.sandbox.umount(&inner).unwrap();
    stage.sandbox.umount(&same_filesystem).unwrap();
    stage.eventually("the volume is cleaned", || !has_secret(&volume));
    offered_again(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
    assert!(has_secret(&elsewhere));
}
