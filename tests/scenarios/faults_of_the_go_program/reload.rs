//! Fault 11: a configuration that is changed while the program runs.

use std::fs;

use serde_json::{Value, json};
use support::Stage;

use crate::kit::*;
use crate::stage;

/// The classes in the configuration; written back when they were changed.
fn edit(stage: &Stage, edit: impl FnOnce(&mut Value)) {
    let map = stage.config_dir().join("storageClassMap");
    let mut classes = serde_json::from_str(&fs::read_to_string(&map).unwrap()).unwrap();
    edit(&mut classes);
    stage
        .configure("storageClassMap", &classes.to_string())
        .unwrap();
}

#[test]
fn fault_11_a_removed_class_is_noticed_and_so_is_every_later_change() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    stage.class("slow", &json!({})).unwrap();
    let fast = stage.sandbox.tmpfs("disks/fast/vol", "size=1m").unwrap();
    let slow = stage.sandbox.tmpfs("disks/slow/vol", "size=1m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&fast, None);
    stage.available(&slow, None);
    let is_served = |provisioner: &mut support::Program| {
        let volume = status_of(provisioner, &slow);
        volume["state"] == "Available"
    };
    let name = stage.named("slow");
    let mut removed = Value::Null;
    for turn in 0..3 {
        edit(&stage, |classes| {
            removed = classes.as_object_mut().unwrap().remove(&name).unwrap();
        });
        stage.eventually(&format!("gone, turn {turn}"), || {
            (!is_served(&mut provisioner)).then_some(())
        });
        edit(&stage, |classes| classes[&name] = removed.clone());
        stage.eventually(&format!("back, turn {turn}"), || {
            is_served(&mut provisioner).then_some(())
        });
    }
    assert!(!provisioner.log().contains("panicked"));
    let late = stage.sandbox.tmpfs("disks/slow/late", "size=1m").unwrap();
    stage.available(&late, None);
}

#[test]
fn fault_11_bad_yaml_does_not_end_the_process() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol", "size=1m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    stage.configure("storageClassMap", "fast: [").unwrap();
    stage.event("ConfigReloadFailed", "not valid YAML");
    assert!(provisioner.is_running());
    let late = stage.sandbox.tmpfs("disks/fast/late", "size=1m").unwrap();
    stage.available(&late, None);
    assert!(provisioner.stop(stage.patience()).unwrap().success());
}
