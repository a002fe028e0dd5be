//! Parses the files into a [`Config`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use super::class::Class;
use super::{CleanMethod, Cleaner, Config, Files, keys, read_dir, yaml};
use crate::names::LABEL_HOSTNAME;
use crate::types::VolumeMode;

const CLASSES: &str = "storageClassMap";
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

impl Loaded {
    /// The names of the classes that are switched off because of a fault.
    #[must_use]
    pub fn faulty_classes(&self) -> BTreeSet<&str> {
        let classes = self
            .faults
            .iter()
            .filter_map(|fault| fault.class.as_deref());
        classes.collect()
    }
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

/// Nothing can be loaded. At start this ends the process with exit code 2; at a reload the last good configuration
/// stays in effect.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory or a file in it.
    #[error(
        "the configuration at {} cannot be read: mount the provisioner's ConfigMap there, or name \
         another directory with --config", path.display()
    )]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The value of a key is not YAML.
    #[error(
        "the configuration key {key} is not valid YAML: {message}; correct that place, and quote \
         values with special characters"
    )]
    Yaml {
        /// The key, which is the file's name.
        key: &'static str,
        /// What is wrong, and at which line and column of the key's value.
        message: String,
    },
    /// `useAlphaAPI: true`.
    #[error(
        "useAlphaAPI is true, but the node affinity annotation of Kubernetes 1.7's alpha API is \
         read by no supported Kubernetes, so pods would be sent to nodes without their volume: \
         remove the key"
    )]
    AlphaApi,
}

/// Loads the configuration from a directory.
///
/// # Errors
/// [`LoadError`] when nothing can be loaded; faults of single values are not errors.
pub fn load(dir: &Path) -> Result<Loaded, LoadError> {
    from_files(&read_dir(dir)?)
}

/// Loads the configuration from the texts of the files, by file name.
///
/// # Errors
/// [`LoadError`] when a text is not YAML, or `useAlphaAPI` is true.
pub fn from_files(files: &Files) -> Result<Loaded, LoadError> {
    let mut values = Map::new();
    for (name, text) in files {
        // The value of an unknown key need not be YAML.
        let value = match keys::CONFIG.find(name) {
            Some(key) => yaml::parse(text).map_err(|message| LoadError::Yaml { key, message })?,
            None => Value::Null,
        };
        values.insert(name.clone(), value);
    }
    let mut warnings = Vec::new();
    let mut values = keys::CONFIG.canonical_map(values, "", &mut warnings);
    adapt(&mut values, &mut warnings);
    let mut faults = Vec::new();
    let classes = read_classes(values.remove(CLASSES), &mut warnings, &mut faults);
    let config = Config {
        classes,
        ..read_others(values, &mut faults)
    };
    if config.use_alpha_api {
        return Err(LoadError::AlphaApi);
    }
    warnings.extend(class_warnings(&config.classes));
    Ok(Loaded {
        config,
        faults,
        warnings,
    })
}

/// Adapts values whose types in Rust cannot be read from their texts.
fn adapt(values: &mut Map<String, Value>, warnings: &mut Vec<String>) {
    if let Some(Value::Object(labels)) = values.get_mut("labelsForPV") {
        if labels.remove(LABEL_HOSTNAME).is_some() {
            warnings.push(format!(
                "labelsForPV cannot set {LABEL_HOSTNAME}, which always is the node's own value: \
                 remove that label"
            ));
        }
        for empty in labels.values_mut().filter(|value| value.is_null()) {
            *empty = "".into();
        }
    }
    let tolerations = values.get_mut("jobTolerations");
    for toleration in tolerations
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let text = toleration["tolerationSeconds"].as_str().unwrap_or_default();
        if let Ok(seconds) = text.trim().parse::<i64>() {
            toleration["tolerationSeconds"] = seconds.into();
        }
    }
}

/// The classes without a fault.
fn read_classes(
    value: Option<Value>,
    warnings: &mut Vec<String>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, Arc<Class>> {
    let values = match value {
        Some(Value::Object(values)) => values,
        Some(other) => {
            faults.push(Fault {
                class: None,
                message: format!("{CLASSES} {other}: invalid type, expected the classes by name"),
            });
            return BTreeMap::new();
        }
        None => Map::new(),
    };
    if values.is_empty() {
        warnings.push(
            "no class is configured, so no volume will be offered: add classes to storageClassMap"
                .to_owned(),
        );
    }
    let mut classes = BTreeMap::new();
    for (name, value) in values {
        let value = keys::CLASS.canonical(value, &format!("class {name:?}: "), warnings);
        match read::<Class>(&value) {
            Ok(class) => {
                let class = Class {
                    name: name.clone(),
                    ..class
                };
                classes.insert(name, Arc::new(class));
            }
            Err(message) => faults.push(Fault {
                class: Some(name),
                message,
            }),
        }
    }
    classes
}

/// The configuration without its classes. A key with a fault has its safe value.
fn read_others(mut values: Map<String, Value>, faults: &mut Vec<Fault>) -> Config {
    for (key, value) in &mut values {
        if let Err(message) = read::<Config>(&json!({ key: &value })) {
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
    read(&values.into()).unwrap_or_default()
}

/// Deserializes a value. The error is `path value: cause`, without the parts that are absent.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let mut path = error.path().iter();
        let found = path.try_fold(value, |value, segment| match segment {
            Segment::Seq { index } => value.get(index),
            Segment::Map { key } => value.get(key),
            Segment::Enum { .. } | Segment::Unknown => Some(value),
        });
        let (path, cause) = (error.path(), error.inner());
        let text = match found {
            // A map is too long to show.
            Some(value) if !value.is_object() => format!("{path} {value}: {cause}"),
            _ => format!("{path}: {cause}"),
        };
        // The path of the whole value is a dot.
        text.trim_start_matches(['.', ':', ' ']).to_owned()
    })
}

/// Warnings about the volumes of a class, or about two classes together.
fn class_warnings(classes: &BTreeMap<String, Arc<Class>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = classes.values();
    while let Some(a) = rest.next() {
        if a.volume_mode == VolumeMode::Block && is_quick_reset(&a.cleaner) {
            warnings.push(format!(
                "class {:?} hands out raw devices that are cleaned by a quick reset: on a device that \
                 cannot discard, the next tenant can read what the last one wrote; where that matters, \
                 set cleanMethod to auto (in place of blockCleanerCommand)",
                a.name
            ));
        }
        for b in rest.clone() {
            let names = format!("classes {:?} and {:?}", a.name, b.name);
            if a.host_dir.is_within(&b.host_dir) || b.host_dir.is_within(&a.host_dir) {
                warnings.push(format!(
                    "{names} have the same or nested hostDirs ({} and {}): an entry that both match is \
                     offered by {:?} only; keep them apart by namePattern, or give each its own directory",
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

fn is_quick_reset(cleaner: &Cleaner) -> bool {
    match cleaner {
        Cleaner::Method(method) => *method == CleanMethod::Quick,
        Cleaner::Command(words) => words
            .first()
            .is_some_and(|program| Path::new(program).ends_with("quick_reset.sh")),
    }
}
