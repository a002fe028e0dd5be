//! The configuration is changed while the provisioner runs.

mod changes;
mod classes;
mod cleanups;
mod invalid;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Program, Stage};

use crate::kit::fast_stage;

/// Changes the classes in the configuration, and nothing else; by their full names.
pub fn edit_classes(stage: &Stage, edit: impl FnOnce(&mut BTreeMap<String, Value>)) {
    let path = stage.config_dir().join("storageClassMap");
    let text = edited(&fs::read_to_string(path).unwrap(), edit);
    stage.configure("storageClassMap", &text);
}

/// A provisioner that offers the one volume of one class.
fn serving() -> Option<(Stage, PathBuf, Program)> {
    let (stage, [volume]) = fast_stage(["vol"])?;
    let provisioner = stage.provisioner();
    stage.available(&volume, None);
    Some((stage, volume, provisioner))
}

/// A `storageClassMap` with other classes.
fn edited(map: &str, edit: impl FnOnce(&mut BTreeMap<String, Value>)) -> String {
    let mut classes = serde_json::from_str(map).unwrap();
    edit(&mut classes);
    serde_json::to_string_pretty(&classes).unwrap()
}

/// Changes one key of one class.
fn set(stage: &Stage, class: &str, key: &str, value: impl Into<Value>) {
    edit_classes(stage, |classes| {
        classes.get_mut(&stage.named(class)).unwrap()[key] = value.into();
    });
}

/// Adds a class to the configuration alone; its directory.
pub fn add_class(stage: &Stage, class: &str) -> PathBuf {
    let dir = stage.sandbox.dir(&format!("disks/{class}")).unwrap();
    edit_classes(stage, |classes| {
        classes.insert(stage.named(class), over(&dir));
    });
    dir
}

/// A class over a directory.
fn over(dir: &Path) -> Value {
    json!({ "hostDir": dir, "mountDir": dir })
}

/// Takes a class out of the configuration.
fn remove_class(stage: &Stage, class: &str) -> Value {
    let mut removed = Value::Null;
    edit_classes(stage, |classes| {
        removed = classes.remove(&stage.named(class)).unwrap();
    });
    removed
}

/// Waits until a line of the log has these words.
fn logged(stage: &Stage, provisioner: &Program, words: &str) -> String {
    stage.eventually(&format!("{words:?} in the log"), || {
        let log = provisioner.log();
        log.lines().find(|line| line.contains(words)).map(str::to_owned)
    })
}

/// Waits until the last reload was, or was not, successful.
fn reloaded(stage: &Stage, provisioner: &mut Program, successfully: bool) {
    let wanted = Some(u64::from(successfully));
    stage.eventually(&format!("a reload, successful: {successfully}"), || {
        crate::kit::metric(provisioner, "config_last_reload_successful") == wanted
    });
}
