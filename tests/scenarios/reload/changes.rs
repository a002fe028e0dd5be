//! How directories are changed: by the kubelet, by editors, by programs in a hurry.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::Stage;

use super::{logged, serving};
use crate::kit::*;
use crate::stage;

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
fn new_version_of_the_config_map_is_in_force_within_the_sync_period() {
    let stage = or_skip!(stage());
    let class = stage.class("fast", &json!({}));
    let map = fs::read_to_string(stage.config_dir().join("storageClassMap")).unwrap();
    for key in ["storageClassMap", "protectReleasedData"] {
        fs::remove_file(stage.config_dir().join(key)).unwrap();
    }
    publish(&stage, "..2026_1", &[("storageClassMap", &map)]);
    let volume = fast(&stage, "vol");
    let mut provisioner = stage.provisioner();
    stage.available(&volume, None);

    publish(
        &stage,
        "..2026_2",
        &[("storageClassMap", &map), ("pauseCleaning", "\"yes\"")],
    );
    stage.eventually("the pause is in force", || {
        status(&mut provisioner)["paused"] == true
    });
    // Its class has not noticed.
    let another = fast(&stage, "another");
    stage.available(&another, None);
    assert!(class.is_dir());
    let reloads = provisioner.log().matches("configuration reloaded").count();
    assert_eq!(reloads, 1, "the new key's link came later than its version");
}

/// Writes a text piece by piece and returns for how long it may have been left alone.
fn write_slowly(path: &Path, text: &str) -> Duration {
    let mut file = File::create(path).unwrap();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    for piece in text.as_bytes().chunks(text.len().div_ceil(20)) {
        let now = Instant::now();
        file.write_all(piece).unwrap();
        longest = longest.max(last.elapsed());
        last = now;
        std::thread::sleep(Duration::from_millis(100));
    }
    longest
}

/// Half of a file is invalid, or has another meaning.
#[test]
fn a_file_that_is_written_slowly_raises_no_event() {
    loop {
        let (stage, []) = or_skip!(fast_stage([]));
        stage.class("slow", &json!({}));
        let volume = fast(&stage, "vol");
        let mut provisioner = stage.provisioner();
        stage.available(&volume, None);
        let map = stage.config_dir().join("storageClassMap");
        let text = fs::read_to_string(&map).unwrap().replacen('{', "{ ", 1);
        if write_slowly(&map, &text) > Duration::from_millis(700) {
            // On a busy machine half a file may have lain there for as long as it takes to believe it.
            continue;
        }
        logged(&stage, &provisioner, "no effective change");
        assert_eq!(stage.events("ConfigReloadFailed").len(), 0);
        let log = provisioner.log();
        assert_eq!(log.matches("configuration reloaded").count(), 1, "{log}");
        let reloads = "config_last_reload_successful";
        assert_eq!(metric(&mut provisioner, reloads), Some(1));
        return;
    }
}

#[test]
fn of_a_thousand_changes_the_last_one_applies() {
    let (stage, _, mut provisioner) = or_skip!(serving());
    for number in 1..=1000 {
        stage.configure("maxConcurrentCleanups", &number.to_string());
        stage.configure("pauseCleaning", &(number % 2 == 0).to_string());
    }
    logged(&stage, &provisioner, "-> 1000");
    stage.eventually("paused, as the last one says", || {
        status(&mut provisioner)["paused"] == true
    });
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
    for words in ["logLevel debug -> -", "TRACE"] {
        logged(&stage, &provisioner, words);
    }
}
