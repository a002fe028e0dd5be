//! What can be wrong with a configuration, in words for an operator.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::duration::DurationFault;
use super::pattern::PatternFault;
use crate::types::{HostPath, MountPath, PathFault};

/// A value that cannot be used. Its class is off; without a class, the key has its safe value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The class whose part of `storageClassMap` it is in.
    pub class: Option<String>,
    /// The key, with the way to it: `hostDir`, `selector[0].matchExpressions[1].operator`.
    pub key: String,
    /// The value as written, on one line, cut when it is long; empty when there is none.
    pub value: String,
    /// What is wrong with it.
    pub problem: Problem,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            class,
            key,
            value,
            problem,
            remedy,
        } = self;
        if let Some(class) = class {
            write!(f, "class \"{class}\": ")?;
        }
        match (key.as_str(), value.as_str()) {
            // The class itself.
            ("", "") => f.write_str("it")?,
            ("", value) => write!(f, "\"{}\"", value.escape_debug())?,
            (key, "") => f.write_str(key)?,
            (key, value) => write!(f, "{key} \"{}\"", value.escape_debug())?,
        }
        write!(f, " {problem}: {remedy}")
    }
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A key that must be there is not.
    #[error("is missing")]
    Missing,
    /// A list where a map is needed, and so on.
    #[error("is {found}, not {wanted}")]
    Shape {
        /// What is there.
        found: &'static str,
        /// What is needed there.
        wanted: &'static str,
    },
    /// No YAML 1.1 boolean.
    #[error("is neither true nor false")]
    Boolean,
    /// No duration.
    #[error("is not a duration, since {0}")]
    Duration(DurationFault),
    /// A time limit of zero.
    #[error("leaves no time at all")]
    NoTime,
    /// No number from 1 to 65535.
    #[error("is not a whole number from 1 to 65535")]
    Count,
    /// No whole number of seconds.
    #[error("is not a whole number of seconds")]
    Seconds,
    /// No path that can be used.
    #[error("is not a usable path, since {0}")]
    Path(PathFault),
    /// No pattern.
    #[error("is not a name pattern, since {0}")]
    Pattern(PatternFault),
    /// None of the few words that are allowed.
    #[error("is not a known value")]
    Word {
        /// The words that are.
        allowed: Vec<&'static str>,
        /// The one that was probably meant.
        meant: Option<&'static str>,
    },
    /// A command without a program.
    #[error("names no program")]
    Command,
    /// No name for a StorageClass.
    #[error("cannot be the name of a StorageClass")]
    ClassName,
    /// No name for a label or taint.
    #[error("is not a valid label name")]
    LabelName,
    /// No value for a label.
    #[error("is not a valid label value")]
    LabelValue,
    /// The number of values does not suit the operator.
    #[error("has {found} values, but the operator {operator} takes {takes}")]
    SelectorValues {
        /// The operator beside it.
        operator: &'static str,
        /// How many values that one takes.
        takes: &'static str,
        /// How many there are.
        found: usize,
    },
    /// One key in two spellings.
    #[error("is given twice, also as \"{0}\"")]
    Twice(String),
    /// Two keys for one thing.
    #[error("is given beside {0}, which is about the same thing")]
    SaidTwice(&'static str),
}

impl Problem {
    /// What an operator can do about it.
    pub(super) fn remedy(&self) -> String {
        match self {
            Self::Missing => "add it".into(),
            Self::Shape { wanted, .. } => format!("write {wanted}"),
            Self::Boolean => "write true or false".into(),
            Self::Duration(_) => "write numbers with their units, such as 5m0s or 1h30m".into(),
            Self::NoTime => {
                "write how long it may take, such as 6h, or leave the key out for no limit".into()
            }
            Self::Count => "write a number such as 4".into(),
            Self::Seconds => "write a number such as 300".into(),
            Self::Path(_) => "write the whole path without \"..\", such as /mnt/disks".into(),
            Self::Pattern(_) => {
                "write shell globs separated by commas, such as nvme*,sd[b-z]".into()
            }
            Self::Word {
                meant: Some(word), ..
            } => format!("write {word}"),
            Self::Word { allowed, .. } => format!("write one of {}", allowed.join(", ")),
            Self::Command => {
                "list the program and its arguments, or leave the key out for the default".into()
            }
            Self::ClassName => {
                "use small letters, digits, \"-\" and \".\", with a letter or digit \
                 at both ends and beside each \".\""
                    .into()
            }
            Self::LabelName => "use at most 63 letters, digits, \"-\", \"_\" and \".\", with a \
                 letter or digit at both ends; a DNS name and \"/\" may come first"
                .into(),
            Self::LabelValue => "use at most 63 letters, digits, \"-\", \"_\" and \".\", with a \
                 letter or digit at both ends"
                .into(),
            Self::SelectorValues { .. } => "correct the values or the operator".into(),
            Self::Twice(_) | Self::SaidTwice(_) => "keep one of the two".into(),
        }
    }
}

/// Something that works, but probably not as it was meant.
///
/// (An error type only for its `Display`.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// An empty directory or map.
    #[error("no class is configured, so no volume will be offered: add classes to storageClassMap")]
    NoClasses,
    /// A key that nothing reads.
    #[error("{}key \"{}\" is unknown and ignored{}",
        in_class(class.as_ref()), key.escape_debug(), perhaps(*meant))]
    UnknownKey {
        /// The class it is in.
        class: Option<String>,
        /// The key, with the way to it.
        key: String,
        /// The key that was probably meant.
        meant: Option<&'static str>,
    },
    /// `labelsForPV` has the label that says which node a volume is on.
    #[error(
        "labelsForPV cannot set kubernetes.io/hostname, which always is the node's own value: \
         remove that label"
    )]
    HostnameLabel,
    /// Two classes take their entries from one directory.
    #[error(
        "classes \"{first}\" and \"{second}\" share the hostDir {dir}: an entry that both \
         patterns match is offered by \"{first}\" only"
    )]
    SharedHostDir {
        /// The class that comes first by name.
        first: String,
        /// The other one.
        second: String,
        /// Their directory.
        dir: HostPath,
    },
    /// One class's directory lies in another's, where it may itself be taken for a volume.
    #[error(
        "the hostDir {inner_dir} of class \"{inner}\" lies within the hostDir {outer_dir} of \
         class \"{outer}\": give each its own directory, or keep them apart by namePattern"
    )]
    NestedHostDir {
        /// The class whose directory holds the other's.
        outer: String,
        /// That directory.
        outer_dir: HostPath,
        /// The class whose directory is inside.
        inner: String,
        /// That directory.
        inner_dir: HostPath,
    },
    /// Two directories of the host cannot be mounted at one place.
    #[error(
        "classes \"{first}\" and \"{second}\" have different hostDirs but the one mountDir {dir}, \
         so one of them shows the other's volumes: give each its own mountDir"
    )]
    SharedMountDir {
        /// The class that comes first by name.
        first: String,
        /// The other one.
        second: String,
        /// Their directory.
        dir: MountPath,
    },
    /// Raw devices are cleaned by removing signatures, which leaves the data where no discard works.
    #[error(
        "class \"{class}\" hands out raw devices that are cleaned by a quick reset: on a device \
         that cannot discard, the next tenant can read what the last one wrote; where that \
         matters, set cleanMethod to auto (in place of blockCleanerCommand)"
    )]
    QuickResetOfRawDevices {
        /// The class.
        class: String,
    },
}

fn in_class(class: Option<&String>) -> String {
    class
        .map(|class| format!("class \"{class}\": "))
        .unwrap_or_default()
}

fn perhaps(meant: Option<&'static str>) -> String {
    meant
        .map(|meant| format!(": {meant} was probably meant"))
        .unwrap_or_default()
}

/// There is no configuration at all. At start this ends the process with exit code 2; at a reload
/// the last good configuration stays.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory is missing or cannot be listed.
    #[error(
        "the configuration directory {} cannot be read: mount the provisioner's ConfigMap there, \
         or name another directory with --config", path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is there but cannot be read.
    #[error(
        "the configuration file {} cannot be read: mend its permissions or its link, or remove it",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is no text.
    #[error("the configuration file {} is not UTF-8 text: save it as UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// Keys are matched without regard to case, so these two are one.
    #[error(
        "the configuration has one key twice, as \"{first}\" and \"{second}\": keep one of them"
    )]
    SameKey {
        /// One spelling.
        first: String,
        /// The other.
        second: String,
    },
    /// The value of a key is no YAML.
    #[error("the configuration key {key} is not valid YAML{}: {message}; correct that place, and \
        quote values with special characters", place(*at))]
    Yaml {
        /// The key, which is the file's name.
        key: String,
        /// Line and column within the key's value, from 1.
        at: Option<(u64, u64)>,
        /// What is wrong there.
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

fn place(at: Option<(u64, u64)>) -> String {
    at.map(|(line, column)| format!(" at line {line}, column {column}"))
        .unwrap_or_default()
}
