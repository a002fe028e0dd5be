//! How directories are changed: by the kubelet, by editors, by programs in a hurry.

use std::fs::{self};
use std::os::unix::fs::symlink;

use serde_json::json;
use support::Stage;

use super::{logged, serving};
use crate::kit::*;

/// Puts all of the configuration into a new version, as the kubelet does with a ConfigMap.
pub(super) fn publish(stage: &Stage, version: &str, keys: &[(&str, &str)]) {
    let dir = stage.config_dir();
    fs::create_dir(dir.join(version)).unwrap();
    for (key, value) in keys {
        fs::write(dir.join(version).join(key), value).unwrap();
    }
    symlink(version, dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    for (key, _) in keys {
        if fs::symlink_metadata(dir.join(key)).is_err() {
            symlink(format!("..data/{key}"), dir.join(key)).unwrap();
        }
    }
}

#[test]
fn of_a_thousand_changes_the_last_one_applies() {
    let (stage, _, mut provisioner) = or_skip!(serving());
    for number in 1..=1000 {
        stage.configure("maxConcurrentCleanups", &number.to_string());
        stage.configure("pauseCleaning", &(number % 2 == 0).to_string());
    }
    stage.eventually("paused, as the last one says", || status(&mut provisioner)["paused"] == true);
    assert!(!provisioner.log().contains("panicked"));
    assert_eq!(stage.events("ConfigReloadFailed").len(), 0);
}

#[test]
fn the_log_level_follows_the_configuration_while_it_has_one() {
    let stage = or_skip!(stage_with(&["--log-level=info"]));
    stage.class("fast", &json!({}));
    let mut provisioner = stage.provisioner();
    let mut becomes = |level: &str| {
        stage.eventually(&format!("the log level is {level}"), || {
            status(&mut provisioner)["logLevel"] == level
        });
    };
    becomes("info");
    for level in ["trace", "warn", "debug"] {
        stage.configure("logLevel", level);
        becomes(level);
    }
    fs::remove_file(stage.config_dir().join("logLevel")).unwrap();
    becomes("info");
    logged(&stage, &provisioner, "TRACE");
}
