//! A cleanup that runs when the configuration changes.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::Stage;

use super::{logged, set};
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

#[test]
fn one_that_runs_goes_on_with_the_settings_that_it_began_with() {
    let stage = or_skip!(stage());
    let settings = json!({ "blockCleanerCommand": cleaner(&stage, "one") });
    let (device, path) = raw_volume(&stage, &settings);
    let mut provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    scribble(device.path());
    stage.delete_claim("claim");
    let begun = begun(&stage);
    stage.eventually("the cleaner runs", || begun.exists());
    set(&stage, "raw", "blockCleanerCommand", cleaner(&stage, "two"));
    logged(&stage, &provisioner, "configuration reloaded");
    // The pass that shows it follows the line in the log.
    in_state(&stage, &mut provisioner, &path, "Cleaning");
    stage.still_cleaning(&mut provisioner, "the first alone", || lines(&begun) == ["one"]);
    in_state(&stage, &mut provisioner, &path, "Cleaning");
    fs::write(stage.sandbox.path().join("go"), "").unwrap();
    offered_again(&stage, &path, &bound);
    assert_eq!(lines(&begun), ["one"]);
    assert!(secrets_on(device.path()).is_empty());
    let again = stage.bind("again", &path);
    stage.delete_claim("again");
    offered_again(&stage, &path, &again);
    assert_eq!(lines(&begun), ["one", "two"]);
}
