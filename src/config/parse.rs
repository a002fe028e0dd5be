//! Parses the files into a [`Config`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use super::class::Class;
use super::keys::Keys;
use super::{CleanMethod, Cleaner, Config, Files, read_dir, yaml};
use crate::names::LABEL_HOSTNAME;
use crate::types::VolumeMode;

const CLASSES: &str = "storageClassMap";
const LABELS: &str = "labelsForPV";
const TOLERATIONS: &str = "jobTolerations";
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
    let known = Keys::of(&Config::default(), &[CLASSES, "minResyncPeriod"]);
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
    let mut values = known.canonical(values, "", &mut warnings);
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
    let values: Map<String, Value> = read(&value).unwrap_or_else(|error| {
        faults.push(Fault {
            class: None,
            message: format!("{CLASSES} {error}"),
        });
        Map::new()
    });
    if values.is_empty() {
        warnings.push(
            "no class is configured, so no volume will be offered: add classes to storageClassMap"
                .to_owned(),
        );
    }
    let known = class_keys();
    let mut classes = BTreeMap::new();
    for (name, mut value) in values {
        if let Value::Object(keys) = value {
            let place = format!("class {name:?}: ");
            value = known.canonical(keys, &place, warnings).into();
        }
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

pub(super) fn class_keys() -> Keys {
    // Cannot fail: these are the required keys.
    let class = read::<Class>(&json!({ "hostDir": "/", "mountDir": "/" })).ok();
    Keys::of(&class, &["cleanMethod"])
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
                "class {:?} hands out raw devices that are cleaned by a quick reset: without a discard, the next tenant can read old data; to prevent that, set cleanMethod to auto",
                a.name
            ));
        }
        for b in rest.clone() {
            let names = format!("classes {:?} and {:?}", a.name, b.name);
            if a.host_dir.is_within(&b.host_dir) || b.host_dir.is_within(&a.host_dir) {
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

fn is_quick_reset(cleaner: &Cleaner) -> bool {
    match cleaner {
        Cleaner::Method(method) => *method == CleanMethod::Quick,
        Cleaner::Command(words) => words
            .first()
            .is_some_and(|program| Path::new(program).ends_with("quick_reset.sh")),
    }
}
