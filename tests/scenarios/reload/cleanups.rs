//! Cleanups that wait or run when the configuration changes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::Stage;

use super::{edit_classes, remove_class, set};
use crate::kit::*;
use crate::stage;

/// A cleaner that prints its name, waits for a file, and then zeroes the device.
fn cleaner(stage: &Stage, name: &str) -> Value {
    let scratch = stage.sandbox.path().display();
    let script = format!(
        "echo {name} >>{scratch}/begun\n\
         while ! [ -e {scratch}/go ]; do sleep 0.02; done\n\
         dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n"
    );
    let file = stage.sandbox.path().join(format!("{name}.sh"));
    fs::write(&file, script).unwrap();
    json!(["/bin/sh", file])
}

fn begun(stage: &Stage) -> PathBuf {
    stage.sandbox.path().join("begun")
}

/// A device with a secret on it that was released under the first of two cleaners, which runs.
fn while_the_first_cleaner_runs(
    stage: &Stage,
    change: impl FnOnce(&Stage, &Path),
) -> (support::LoopDevice, PathBuf) {
    let settings = json!({ "blockCleanerCommand": cleaner(stage, "one") });
    let (device, path) = raw_volume(stage, &settings);
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    scribble(device.path());
    stage.delete_claim("claim");
    stage.eventually("the cleaner runs", || begun(stage).exists());
    change(stage, &path);
    super::logged(stage, &provisioner, "configuration reloaded");
    // The pass that shows it follows the line in the log.
    in_state(stage, &mut provisioner, &path, "Cleaning");
    stage.still_cleaning(&mut provisioner, "the first alone", || {
        lines(&begun(stage)) == ["one"]
    });
    in_state(stage, &mut provisioner, &path, "Cleaning");
    fs::write(stage.sandbox.path().join("go"), "").unwrap();
    stage.eventually("the PV is gone, and no other cleaner ran", || {
        stage
            .pvs_at(&path)
            .iter()
            .all(|pv| pv.metadata.uid != bound.metadata.uid)
    });
    assert_eq!(lines(&begun(stage)), ["one"]);
    assert!(secrets_on(device.path()).is_empty());
    // Dropped here: the rest is about the next provisioner.
    (device, path)
}

#[test]
fn one_that_runs_goes_on_with_the_settings_that_it_began_with() {
    let stage = or_skip!(stage());
    let (device, path) = while_the_first_cleaner_runs(&stage, |stage, _| {
        set(stage, "raw", "blockCleanerCommand", cleaner(stage, "two"));
    });
    let _provisioner = stage.provisioner();
    let again = stage.bind("again", &path);
    stage.delete_claim("again");
    offered_again(&stage, &path, &again);
    assert_eq!(lines(&begun(&stage)), ["one", "two"]);
    drop(device);
}

#[test]
fn one_that_runs_comes_to_its_end_without_its_class() {
    let stage = or_skip!(stage());
    let (_device, path) = while_the_first_cleaner_runs(&stage, |stage, _| {
        remove_class(stage, "raw");
    });
    assert!(stage.pvs_at(&path).is_empty(), "no class, no new PV");
}

#[test]
fn one_that_waits_is_judged_again() {
    let stage = or_skip!(stage());
    let settings = json!({ "blockCleanerCommand": cleaner(&stage, "one") });
    let (device, path) = raw_volume(&stage, &settings);
    fs::write(stage.sandbox.path().join("go"), "").unwrap();
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    scribble(device.path());
    let mapped = mapped_by_kubelet(&stage, &bound, &device);
    stage.delete_claim("claim");
    let waits = |provisioner: &mut support::Program| {
        status_of(provisioner, &path)["cleanup"]["state"] == "Waiting"
    };
    stage.eventually("it waits for the kubelet", || waits(&mut provisioner));
    set(&stage, "raw", "blockCleanerCommand", cleaner(&stage, "two"));
    super::logged(&stage, &provisioner, "configuration reloaded");
    stage.eventually("it waits again", || waits(&mut provisioner));
    assert_eq!(secrets_on(device.path()).len(), 4);
    fs::remove_file(mapped).unwrap();
    offered_again(&stage, &path, &bound);
    assert_eq!(lines(&begun(&stage)), ["two"]);
    assert!(secrets_on(device.path()).is_empty());
}

#[test]
fn one_that_waits_for_its_turn_is_not_cleaned_without_its_class() {
    let stage = or_skip!(stage());
    stage.configure("maxConcurrentCleanups", "1");
    let (first, first_path) = raw_volume(
        &stage,
        &json!({ "blockCleanerCommand": cleaner(&stage, "one") }),
    );
    stage.class("other", &json!({}));
    let volume = tmpfs(&stage, "disks/other/vol");
    let mut provisioner = stage.provisioner();
    let first_pv = stage.bind("first", &first_path);
    let second_pv = stage.used(&stage.bind("second", &volume));
    keep_secret(&volume);
    stage.delete_claim("first");
    stage.eventually("the first has the permit", || begun(&stage).exists());
    stage.delete_claim("second");
    stage.eventually("the second waits", || {
        status_of(&mut provisioner, &volume)["state"] == "Waiting"
    });
    let class = remove_class(&stage, "other");
    stage.event("VolumeFailedDelete", &stage.named("other"));
    fs::write(stage.sandbox.path().join("go"), "").unwrap();
    offered_again(&stage, &first_path, &first_pv);
    assert!(has_secret(&volume) && is_untouched(&stage, &second_pv, "Released"));

    edit_classes(&stage, |classes| {
        classes.insert(stage.named("other"), class);
    });
    offered_again(&stage, &volume, &second_pv);
    drop(first);
}

#[test]
fn a_raised_limit_of_concurrent_cleanups_applies_at_once() {
    let stage = or_skip!(stage());
    stage.configure("maxConcurrentCleanups", "1");
    let settings = json!({ "blockCleanerCommand": cleaner(&stage, "one") });
    let dir = raw_class(&stage, &settings);
    let devices = [raw(&stage), raw(&stage)];
    let paths = [
        link(&devices[0], &dir, "disk-1"),
        link(&devices[1], &dir, "disk-2"),
    ];
    let mut provisioner = stage.provisioner();
    let pvs = [stage.bind("1", &paths[0]), stage.bind("2", &paths[1])];
    stage.delete_claim("1");
    stage.delete_claim("2");
    stage.eventually("one runs", || begun(&stage).exists());
    stage.still_cleaning(&mut provisioner, "only one", || {
        lines(&begun(&stage)).len() == 1
    });
    stage.configure("maxConcurrentCleanups", "2");
    stage.eventually("both run", || lines(&begun(&stage)).len() == 2);
    fs::write(stage.sandbox.path().join("go"), "").unwrap();
    for (path, pv) in paths.iter().zip(&pvs) {
        offered_again(&stage, path, pv);
    }
    assert_eq!(lines(&begun(&stage)).len(), 2);
}
