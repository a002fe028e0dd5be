//! A class's own `blockCleanerCommand`.

use std::fs;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::Stage;
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::stage;

#[test]
fn it_gets_the_device_and_its_output_is_in_the_log() {
    let stage = or_skip!(stage());
    let (device, path) = cleaned_by(
        &stage,
        "echo \"cleaning $LOCAL_PV_BLKDEVICE with $1\"\n\
         echo 'to standard error' >&2\n\
         # It has the device for itself, as mkfs and wipefs want it.\n\
         wipefs --all --quiet $LOCAL_PV_BLKDEVICE\n\
         dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n",
    );
    let mut volume = Occupied::raw_at(stage, path, device);
    volume.device().format("ext4").unwrap();
    volume.release();
    volume.is_cleaned();
    assert_eq!(wipefs(volume.device().path()), "");
    let log = volume.provisioner.log();
    for words in [
        format!("cleaning {} with first argument", volume.path.display()),
        "to standard error".to_owned(),
    ] {
        let line = log.lines().find(|line| line.contains(&words));
        let line = line.unwrap_or_else(|| panic!("not in the log: {words}"));
        assert!(line.contains(&name(&volume.pv)), "the PV is named: {line}");
    }
    let duration =
        "persistentvolume_delete_duration_seconds_count{capacity=\"500G\",cleanup_command=\"";
    let (_, metrics) = volume.provisioner.http_get("/metrics").unwrap();
    let series = metrics.lines().find(|line| line.contains(duration));
    // The command has more words.
    assert!(
        series.is_some_and(|series| series.contains("cleanup_command=\"/bin/sh\"")),
        "{series:?}"
    );
}

/// Whether a PV is there, Terminating and with our finalizer.
fn is_held(stage: &Stage, pv: &PersistentVolume) -> bool {
    stage.pv(&name(pv)).is_some_and(|now| {
        now.metadata.uid == pv.metadata.uid && is_terminating(&now) && is_protected(&now)
    })
}

#[test]
fn its_success_is_not_believed() {
    let stage = or_skip!(stage());
    let (device, path) = cleaned_by(&stage, "true\n");
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    device.format("ext4").unwrap();
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "shows a signature");
    stage.still(&mut provisioner, "it is not offered", || is_held(&stage, &bound));
    let failed = "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"}";
    assert_eq!(metric(&mut provisioner, failed), Some(1));
    let total = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";
    assert_eq!(metric(&mut provisioner, total).unwrap_or_default(), 0);
    assert!(wipefs(device.path()).contains("ext4"));
}

#[test]
fn one_that_is_not_there_is_named_with_its_remedy() {
    let settings = json!({ "blockCleanerCommand": ["/scripts/no-such-cleaner"] });
    let volume = or_skip!(occupied_raw(&settings));
    volume.stage.delete_claim("claim");
    let stage = &volume.stage;
    let text = stage.event("VolumeFailedDelete", "/scripts/no-such-cleaner");
    assert!(text.contains("correct blockCleanerCommand"), "{text}");
    assert!(is_as_scribbled(volume.device().path()));
}

#[test]
fn cleaner_ends_when_another_disk_appears_at_the_path() {
    let stage = or_skip!(stage());
    let begun = stage.sandbox.path().join("begun");
    let script = format!("echo $$ > {}; while :; do sleep 0.02; done\n", begun.display());
    let (device, path) = cleaned_by(&stage, &script);
    let other = raw(&stage);
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    stage.delete_claim("claim");
    stage.eventually("the cleaner runs", || lines(&begun).len() == 1);
    fs::remove_file(&path).unwrap();
    link(&other, path.parent().unwrap(), "disk");
    scribble(other.path());
    stage.event("CleaningCancelled", "another disk is at");
    assert!(!is_alive(lines(&begun)[0].parse().unwrap()));
    stage.event("VolumeIdentityMismatch", "another disk is at its path");
    stage.still(&mut provisioner, "the other disk is untouched", || {
        is_held(&stage, &bound) && is_as_scribbled(other.path())
    });
    drop(device);
}
