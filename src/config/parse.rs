//! Parses the files into a [`Config`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use serde_path_to_error::{Error, Segment};

use super::class::Class;
use super::{
    CleanMethod, Cleaner, Config, DEFAULT_CLEANER, Files, keys, label, read_dir, text, yaml,
};
use crate::names::LABEL_HOSTNAME;
use crate::types::VolumeMode;

/// The maximum length of a value in messages.
const MAX_SHOWN: usize = 80;
const CLASSES: &str = "storageClassMap";
const CLASS_NAME_FAULT: &str = "its name cannot be that of a StorageClass; use small letters, digits, \
     \"-\" and \".\", with a letter or digit at both ends";
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
    /// Keys are matched without regard to case, so these two are one.
    #[error("the configuration has the key {0} in two spellings: keep one of them")]
    SameKey(&'static str),
    /// The value of a key is not YAML.
    #[error(
        "the configuration key {key} is not valid YAML {message}; correct that place, and quote \
         values with special characters"
    )]
    Yaml {
        /// The key, which is the file's name.
        key: &'static str,
        /// Line and column within the key's value, from 1, and what is wrong there.
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
/// [`LoadError`] when a text is not YAML, a key is there twice, or `useAlphaAPI` is true.
pub fn from_files(files: &Files) -> Result<Loaded, LoadError> {
    let mut parser = Parser::default();
    for (name, text) in files {
        parser.add(name, text)?;
    }
    parser.values.retain(|_, value| !value.is_null());
    parser.check_alpha()?;
    parser.check_classes();
    parser.check_others();
    let config = parser.config();
    parser.warnings.extend(class_warnings(&config.classes));
    Ok(Loaded {
        config,
        faults: parser.faults,
        warnings: parser.warnings,
    })
}

#[derive(Default)]
struct Parser {
    /// The values by known key, in its canonical spelling.
    values: Map<String, Value>,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

impl Parser {
    fn add(&mut self, name: &str, text: &str) -> Result<(), LoadError> {
        let Some(key) = keys::CONFIG.find(name) else {
            // Its value need not be YAML.
            self.warnings.push(keys::CONFIG.unknown("", name));
            return Ok(());
        };
        let value = yaml::parse(text).map_err(|message| LoadError::Yaml { key, message })?;
        if self.values.insert(key.to_owned(), value).is_some() {
            return Err(LoadError::SameKey(key));
        }
        Ok(())
    }

    fn fault(&mut self, class: Option<&str>, message: String) {
        let class = class.map(str::to_owned);
        self.faults.push(Fault { class, message });
    }

    fn check_alpha(&mut self) -> Result<(), LoadError> {
        let value = self.values.remove("useAlphaAPI");
        match value.as_ref().map(text::flag) {
            Some(Ok(true)) => return Err(LoadError::AlphaApi),
            Some(Err(error)) => self.fault(None, fault_text("useAlphaAPI", value.as_ref(), &error)),
            Some(Ok(false)) | None => {}
        }
        Ok(())
    }

    /// Removes the classes with an invalid name or invalid keys.
    fn check_classes(&mut self) {
        let classes = match self.values.remove(CLASSES) {
            Some(Value::Object(classes)) => classes,
            Some(other) => {
                self.values.insert(CLASSES.to_owned(), other);
                return;
            }
            None => Map::new(),
        };
        if classes.is_empty() {
            self.warnings.push(
                "no class is configured, so no volume will be offered: add classes to storageClassMap"
                    .to_owned(),
            );
        }
        let mut usable = Map::new();
        for (name, value) in classes {
            let place = format!("class {name:?}: ");
            let normalised = if label::is_dns_subdomain(&name) {
                keys::CLASS.normalise(value, &place, &mut self.warnings)
            } else {
                Err(CLASS_NAME_FAULT.to_owned())
            };
            match normalised {
                Ok(value) => _ = usable.insert(name, value),
                Err(fault) => self.fault(Some(&name), fault),
            }
        }
        self.values.insert(CLASSES.to_owned(), usable.into());
    }

    fn check_others(&mut self) {
        let key = "jobTolerations";
        if let Some(value) = self.values.remove(key) {
            let place = format!("{key}: ");
            match keys::TOLERATION.normalise(value, &place, &mut self.warnings) {
                Ok(value) => _ = self.values.insert(key.to_owned(), value),
                Err(fault) => self.fault(None, place + &fault),
            }
        }
        if let Some(Value::Object(labels)) = self.values.get_mut("labelsForPV")
            && labels.remove(LABEL_HOSTNAME).is_some()
        {
            self.warnings.push(format!(
                "labelsForPV cannot set {LABEL_HOSTNAME}, which always is the node's own value: \
                 remove that label"
            ));
        }
    }

    /// The configuration without the faulty classes and keys. Each attempt finds and removes one.
    fn config(&mut self) -> Config {
        loop {
            let values = Value::Object(self.values.clone());
            match serde_path_to_error::deserialize(&values) {
                Ok(config) => return config,
                Err(error) => self.remove_faulty(&values, &error),
            }
        }
    }

    fn remove_faulty(&mut self, values: &Value, error: &Error<serde_json::Error>) {
        let segments: Vec<&Segment> = error.path().iter().collect();
        let name = |n: usize| match segments.get(n) {
            Some(Segment::Map { key }) => Some(key.as_str()),
            _ => None,
        };
        let key = name(0).unwrap_or_default();
        let class = name(1).filter(|_| key == CLASSES);
        let path = error.path().to_string();
        let place = match class {
            Some(class) => path[CLASSES.len() + 1 + class.len()..].trim_start_matches('.'),
            None => &path,
        };
        let value = segments
            .iter()
            .try_fold(values, |value, segment| match segment {
                Segment::Seq { index } => value.get(index),
                Segment::Map { key } => value.get(key),
                Segment::Enum { .. } | Segment::Unknown => Some(value),
            });
        // A map is too long to show.
        let value = value.filter(|value| !value.is_object() && !value.is_null());
        self.fault(class, fault_text(place, value, error.inner()));

        if let Some(class) = class {
            let classes = self.values.get_mut(CLASSES);
            classes.and_then(|classes| classes.as_object_mut()?.remove(class));
        } else if TRUE_IN_DOUBT.contains(&key) {
            self.values.insert(key.to_owned(), "true".into());
        } else if self.values.remove(key).is_none() {
            // A fault without a key: no part of the values is usable.
            self.values.clear();
        }
    }
}

/// `key "value": error`, without the parts that are absent.
fn fault_text(place: &str, value: Option<&Value>, error: &serde_json::Error) -> String {
    let value = value.map(|value| format!("{:?}", shown(value)));
    match (place, value) {
        ("", None) => error.to_string(),
        ("", Some(value)) => format!("{value}: {error}"),
        (place, None) => format!("{place}: {error}"),
        (place, Some(value)) => format!("{place} {value}: {error}"),
    }
}

fn shown(value: &Value) -> String {
    let mut text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Warnings about the volumes of a class, or about two classes together.
fn class_warnings(classes: &BTreeMap<String, Arc<Class>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = classes.values();
    while let Some(a) = rest.next() {
        if a.volume_mode == VolumeMode::Block && is_quick_reset(a) {
            warnings.push(format!(
                "class {:?} hands out raw devices that are cleaned by a quick reset: on a device that \
                 cannot discard, the next tenant can read what the last one wrote; where that matters, \
                 set cleanMethod to auto (in place of blockCleanerCommand)",
                a.name
            ));
        }
        warnings.extend(rest.clone().filter_map(|b| warning_about(a, b)));
    }
    warnings
}

/// `a` comes before `b` by name.
fn warning_about(a: &Class, b: &Class) -> Option<String> {
    let nested = |outer: &Class, inner: &Class| {
        format!(
            "the hostDir {} of class {:?} lies within the hostDir {} of class {:?}: give each its own \
             directory, or keep them apart by namePattern",
            inner.host_dir, inner.name, outer.host_dir, outer.name
        )
    };
    if a.host_dir == b.host_dir {
        Some(format!(
            "classes {:?} and {:?} share the hostDir {}: an entry that both patterns match is offered \
             by {:?} only",
            a.name, b.name, a.host_dir, a.name
        ))
    } else if a.mount_dir == b.mount_dir {
        Some(format!(
            "classes {:?} and {:?} have different hostDirs but the one mountDir {}, so one of them \
             shows the other's volumes: give each its own mountDir",
            a.name, b.name, a.mount_dir
        ))
    } else if b.host_dir.is_within(&a.host_dir) {
        Some(nested(a, b))
    } else if a.host_dir.is_within(&b.host_dir) {
        Some(nested(b, a))
    } else {
        None
    }
}

fn is_quick_reset(class: &Class) -> bool {
    let name = |program: &str| Path::new(program).file_name().map(ToOwned::to_owned);
    match &class.cleaner {
        Cleaner::Method(method) => *method == CleanMethod::Quick,
        Cleaner::Command(words) => {
            words.first().and_then(|program| name(program)) == name(DEFAULT_CLEANER)
        }
    }
}
