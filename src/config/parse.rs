//! Parses the files into a [`Config`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::class::Class;
use super::keys::Keys;
use super::values::{read, unfit};
use super::{CleanMethod, Cleaner, Config, Files, NamePattern, labels, read_dir, yaml};
use crate::names::LABEL_HOSTNAME;
use crate::types::VolumeMode;

const CLASSES: &str = "storageClassMap";
const LABELS: &str = "labelsForPV";
const TOLERATIONS: &str = "jobTolerations";
const DIRS: [&str; 2] = ["hostDir", "mountDir"];
/// The keys of which a class has at most one.
const CLEANERS: [&str; 2] = ["cleanMethod", "blockCleanerCommand"];
const TWO_CLEANERS: &str = "cleanMethod and blockCleanerCommand are both given; keep one of them";
/// Directories whose mounts are not volumes, and whether that is also true of all directories in them. Others below the
/// kubelet's directory are accepted: operators have volumes there.
const SYSTEM_DIRS: [(&str, bool); 4] = [
    ("/", false),
    ("/var/lib/kubelet", false),
    ("/var/lib/kubelet/pods", true),
    ("/var/lib/kubelet/plugins", true),
];
const FILESYSTEMS: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];
/// The scripts of the Go provisioner's image, which are built in.
const SCRIPTS: [&str; 5] = ["quick_reset", "dd_zero", "shred", "blkdiscard", "fsclean"];
const OPERATORS: &[&str] = &["", "Exists", "Equal", "Lt", "Gt"];
const EFFECTS: &[&str] = &["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Keys that are true when their value cannot be read, so that data is kept.
const TRUE_IN_DOUBT: [&str; 2] = ["pauseCleaning", "protectReleasedData"];

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The valid part.
    pub config: Config,
    /// The first fault of each class, and of each key outside of the classes.
    pub faults: Vec<Fault>,
    /// Values that are valid, but probably not intended.
    pub warnings: Vec<String>,
}

/// An invalid value. Its class is switched off; outside of the classes, the key has its safe value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The class whose part of `storageClassMap` it is in.
    pub class: Option<String>,
    /// The path of the key, its value, the error, and what to write instead.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(class) = &self.class {
            write!(f, "class {class:?}: ")?;
        }
        f.write_str(&self.message)
    }
}

const ALPHA_API: &str = "useAlphaAPI is true, but no supported Kubernetes reads the alpha API's node affinity annotation: remove the key";

/// Loads the configuration from a directory.
///
/// # Errors
/// When nothing can be loaded; faults of single values are not errors. At start this ends the process with exit code 2;
/// at a reload the last good configuration stays in effect.
pub fn load(dir: &Path) -> Result<Loaded, String> {
    from_files(&read_dir(dir)?)
}

/// Loads the configuration from the texts of the files, by file name.
///
/// # Errors
/// When a text is not YAML, or `useAlphaAPI` is true.
pub fn from_files(files: &Files) -> Result<Loaded, String> {
    let known = known_keys();
    let mut values = Map::new();
    for (name, text) in files {
        // The value of an unknown key need not be YAML.
        let value = match known.find(name) {
            Some(key) => yaml::parse(text).map_err(|error| {
                format!("the configuration key {key} is not valid YAML: {error}")
            })?,
            None => Value::Null,
        };
        values.insert(name.clone(), value);
    }
    let mut warnings = Vec::new();
    let mut values = known.canonical(values, "", &mut warnings)?;
    if let Some(tolerations) = values.get_mut(TOLERATIONS) {
        adapt_tolerations(tolerations);
    }
    let labels = values.get_mut(LABELS).and_then(Value::as_object_mut);
    warnings.extend(labels.and_then(adapt_labels));
    let mut faults = Vec::new();
    let classes = read_classes(values.remove(CLASSES), &mut warnings, &mut faults);
    let config = Config {
        classes,
        ..read_others(values, &mut faults)
    };
    if config.use_alpha_api {
        return Err(ALPHA_API.into());
    }
    warnings.extend(class_warnings(&config.classes));
    Ok(Loaded {
        config,
        faults,
        warnings,
    })
}

/// The keys of the directory: the names of its files.
pub(super) fn known_keys() -> Keys {
    Keys::of(&Config::default(), &[CLASSES, "minResyncPeriod"])
}

/// A number is read from its text everywhere but in the type of the API.
fn adapt_tolerations(tolerations: &mut Value) {
    for toleration in tolerations.as_array_mut().into_iter().flatten() {
        if let Some(seconds) = toleration.get_mut("tolerationSeconds")
            && let Some(Ok(number)) = seconds.as_str().map(str::parse::<i64>)
        {
            *seconds = number.into();
        }
    }
}

/// Removes the hostname label, with a warning. An empty value is an empty text.
fn adapt_labels(labels: &mut Map<String, Value>) -> Option<String> {
    for empty in labels.values_mut().filter(|value| value.is_null()) {
        *empty = "".into();
    }
    labels.remove(LABEL_HOSTNAME).map(|_| {
        format!(
            "{LABELS} cannot set {LABEL_HOSTNAME}, which always is the node's own value: remove that label"
        )
    })
}

/// The classes without a fault.
fn read_classes(
    value: Option<Value>,
    warnings: &mut Vec<String>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, Arc<Class>> {
    let value = value.unwrap_or_else(|| json!({}));
    let values: Map<String, Value> = read(&value, CLASSES).unwrap_or_else(|message| {
        let class = None;
        faults.push(Fault { class, message });
        Map::new()
    });
    if values.is_empty() {
        warnings.push(
            "no class is configured, so no volume will be offered: add classes to storageClassMap"
                .to_owned(),
        );
    }
    let mut classes = BTreeMap::new();
    for (name, value) in values {
        match read_class(&name, value, warnings) {
            Ok(class) => drop(classes.insert(name, Arc::new(class))),
            Err(message) => faults.push(Fault {
                class: Some(name),
                message,
            }),
        }
    }
    classes
}

fn read_class(name: &str, mut value: Value, warnings: &mut Vec<String>) -> Result<Class, String> {
    let mut cleaner = Map::new();
    if let Value::Object(keys) = value {
        let mut keys = class_keys().canonical(keys, &format!("class {name:?}: "), warnings)?;
        cleaner.extend(CLEANERS.iter().filter_map(|key| keys.remove_entry(*key)));
        for required in DIRS {
            keys.entry(required).or_insert(Value::Null);
        }
        value = keys.into();
    }
    let class: Class = read(&value, "class")?;
    if !labels::is_subdomain(name) {
        return Err(unfit("its name", &name.into(), "name"));
    }
    let is_system = |dir: &Path| {
        SYSTEM_DIRS.iter().any(|(of_system, below)| {
            dir == Path::new(of_system) || *below && dir.starts_with(of_system)
        })
    };
    let dirs = [
        Path::new(class.host_dir.as_str()),
        class.mount_dir.as_path(),
    ];
    if let Some((key, dir)) = DIRS.into_iter().zip(dirs).find(|(_, dir)| is_system(dir)) {
        return Err(unfit(key, &json!(dir), key));
    }
    Ok(Class {
        name: name.to_owned(),
        cleaner: match cleaner.len() {
            0 => Cleaner::default(),
            1 => read(&cleaner.into(), "class")?,
            _ => return Err(TWO_CLEANERS.into()),
        },
        ..class
    })
}

pub(super) fn class_keys() -> Keys {
    // Cannot fail: these are the required keys.
    let class = read::<Class>(&json!({ "hostDir": "/", "mountDir": "/" }), "class").ok();
    Keys::of(&class, &CLEANERS)
}

/// The configuration without its classes. A key with a fault has its safe value.
fn read_others(mut values: Map<String, Value>, faults: &mut Vec<Fault>) -> Config {
    for (key, value) in &mut values {
        if let Err(message) = read_other(key, value) {
            faults.push(Fault {
                class: None,
                message,
            });
            *value = if TRUE_IN_DOUBT.contains(&key.as_str()) {
                "true".into()
            } else {
                Value::Null
            };
        }
    }
    values.retain(|_, value| !value.is_null());
    // Cannot fail: each key was read alone.
    read(&values.into(), "").unwrap_or_default()
}

fn read_other(key: &str, value: &Value) -> Result<(), String> {
    let Config {
        labels_for_pv,
        job_tolerations,
        ..
    } = read(&json!({ key: value }), key)?;
    for (label, text) in labels_for_pv {
        if !(labels::is_key(&label) && labels::is_value(&text)) {
            return Err(unfit(&format!("{LABELS}.{label}"), &text.into(), LABELS));
        }
    }
    for (index, it) in job_tolerations.into_iter().enumerate() {
        for (key, text, accepted) in [
            ("operator", it.operator, OPERATORS),
            ("effect", it.effect, EFFECTS),
        ] {
            if let Some(text) = text.filter(|text| !accepted.contains(&text.as_str())) {
                return Err(unfit(
                    &format!("{TOLERATIONS}[{index}].{key}"),
                    &text.into(),
                    key,
                ));
            }
        }
    }
    Ok(())
}

/// Warnings about the volumes of a class, or about two classes together.
fn class_warnings(classes: &BTreeMap<String, Arc<Class>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = classes.values();
    while let Some(a) = rest.next() {
        if a.volume_mode == VolumeMode::Block && is_quick_reset(&a.cleaner) {
            warnings.push(format!(
                "class {:?} hands out raw devices that are cleaned by a quick reset: without a discard, the next tenant can read old data; to prevent that, set cleanMethod to auto",
                a.name
            ));
        }
        if let Some(fs_type) = &a.fs_type {
            let name = &a.name;
            if a.volume_mode == VolumeMode::Block {
                warnings.push(format!("class {name:?}: fsType {fs_type:?} has no effect with volumeMode Block; remove it"));
            } else if !FILESYSTEMS.contains(&fs_type.as_str()) {
                warnings.push(format!("class {name:?}: the kubelet needs mkfs.{fs_type} for fsType {fs_type:?}; write ext4 or xfs if the node has none"));
            }
        }
        warnings.extend(missing_program(a));
        for b in rest.clone() {
            let names = format!("classes {:?} and {:?}", a.name, b.name);
            let overlap = a.host_dir.is_within(&b.host_dir) || b.host_dir.is_within(&a.host_dir);
            if overlap && !(a.host_dir == b.host_dir && has_own_names(a, b)) {
                warnings.push(format!(
                    "{names} have the same or nested hostDirs ({} and {}): {:?} offers an entry that both match; set namePattern, or give each its own directory",
                    a.host_dir, b.host_dir, a.name
                ));
            } else if a.mount_dir == b.mount_dir {
                warnings.push(format!(
                    "{names} have different hostDirs but the one mountDir {}, so one of them shows the \
                     other's volumes: give each its own mountDir",
                    a.mount_dir
                ));
            }
        }
    }
    warnings
}

/// Whether each of the two has a pattern of its own, so that the classes share a directory on purpose.
fn has_own_names(a: &Class, b: &Class) -> bool {
    let every = NamePattern::default();
    a.name_pattern != b.name_pattern && a.name_pattern != every && b.name_pattern != every
}

/// A warning about a cleaner that is neither built in nor a file here, so that each cleaning of a device fails.
fn missing_program(class: &Class) -> Option<String> {
    let Cleaner::Command(words) = &class.cleaner else {
        return None;
    };
    let program = words.first()?;
    let script = program
        .strip_prefix("/scripts/")
        .and_then(|it| it.strip_suffix(".sh"));
    let is_built_in = script.is_some_and(|it| SCRIPTS.contains(&it));
    let is_missing = program.starts_with('/') && !is_built_in && !Path::new(program).exists();
    is_missing.then(|| {
        format!("class {:?}: blockCleanerCommand names {program:?}, which is not here, so cleaning fails: set cleanMethod to auto instead, or add it to the image", class.name)
    })
}

fn is_quick_reset(cleaner: &Cleaner) -> bool {
    match cleaner {
        Cleaner::Method(method) => *method == CleanMethod::Quick,
        Cleaner::Command(words) => words
            .first()
            .is_some_and(|program| Path::new(program).ends_with("quick_reset.sh")),
    }
}
