//! Parses the files into a [`Config`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::class::{Binding, Class, DiscoveryPolicy};
use super::devices::{Approve, Devices};
use super::keys::Keys;
use super::pattern::NamePattern;
use super::values::{read, unfit};
use super::{Cleaner, Config, Files, labels, read_dir, yaml};
use crate::names::{APPROVE_PREFIX, LABEL_HOSTNAME, LINK_DIR};
use crate::types::VolumeMode;

/// The key of the classes, which each configuration has.
pub const CLASSES: &str = "storageClassMap";
const LABELS: &str = "labelsForPV";
const TOLERATIONS: &str = "jobTolerations";
/// The key of a class with a map of keys.
const DEVICES: &str = "devices";
/// The keys of which a class has at most one.
const CLEANERS: [&str; 2] = ["cleanMethod", "blockCleanerCommand"];
/// The scripts of the Go provisioner's image, which are built in.
const SCRIPTS: &str = "/scripts/quick_reset.sh /scripts/dd_zero.sh /scripts/shred.sh /scripts/blkdiscard.sh /scripts/fsclean.sh";
/// Keys that are true when their value cannot be read, so that data is kept.
const TRUE_IN_DOUBT: [&str; 2] = ["pauseCleaning", "protectReleasedData"];

/// The contents of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
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
/// When a text is not YAML, a key has two files, or `useAlphaAPI` is true.
pub fn from_files(files: &Files) -> Result<Loaded, String> {
    let known = Keys::of(&Config::default(), &[CLASSES, "minResyncPeriod"]);
    let mut values = Map::new();
    for (name, text) in files {
        // The value of an unknown key need not be YAML.
        let value = known.find(name).map(|key| {
            yaml::parse(text)
                .map_err(|error| format!("the configuration key {key} is not valid YAML: {error}"))
        });
        values.insert(name.clone(), value.transpose()?.into());
    }
    known.check_spellings(&values)?;
    let mut loaded = Loaded::default();
    let mut values = known.canonical(values, "", &mut loaded.warnings);
    if let Some(tolerations) = values.get_mut(TOLERATIONS) {
        adapt_tolerations(tolerations);
    }
    let labels = values.get_mut(LABELS).and_then(Value::as_object_mut);
    loaded.warnings.extend(labels.and_then(adapt_labels));
    let classes = read_classes(values.remove(CLASSES), &mut loaded);
    loaded.warnings.extend(class_warnings(&classes));
    loaded.config = Config { classes, ..read_others(values, &mut loaded.faults) };
    if loaded.config.use_alpha_api {
        return Err(ALPHA_API.into());
    }
    Ok(loaded)
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
fn read_classes(value: Option<Value>, loaded: &mut Loaded) -> BTreeMap<String, Arc<Class>> {
    let value = value.unwrap_or_else(|| json!({}));
    let values: Map<String, Value> = read(&value, CLASSES).unwrap_or_else(|message| {
        let class = None;
        loaded.faults.push(Fault { class, message });
        Map::new()
    });
    if values.is_empty() {
        let text = "no class is configured, so no volume is offered: add one to storageClassMap";
        loaded.warnings.push(text.to_owned());
    }
    let mut classes = BTreeMap::new();
    for (name, value) in values {
        match read_class(&name, value, &mut loaded.warnings) {
            Ok(class) => drop(classes.insert(name, Arc::new(class))),
            Err(message) => {
                let class = Some(name);
                loaded.faults.push(Fault { class, message });
            }
        }
    }
    refuse_link_dirs(&mut classes, &mut loaded.faults);
    classes
}

/// Refuses classes whose directories overlap with that of the links, which would be offered as volumes. A class with
/// `binding: disk` has links; without one, there is no such directory.
fn refuse_link_dirs(classes: &mut BTreeMap<String, Arc<Class>>, faults: &mut Vec<Fault>) {
    if classes.values().all(|it| it.binding == Binding::Path) {
        return;
    }
    let links = Path::new(LINK_DIR);
    classes.retain(|name, class| {
        let dirs = [
            ("hostDir", class.host_dir.to_string()),
            ("mountDir", class.mount_dir.to_string()),
        ];
        let overlaps = |dir: &str| Path::new(dir).starts_with(links) || links.starts_with(dir);
        let Some((key, dir)) = dirs.into_iter().find(|(_, dir)| overlaps(dir)) else {
            return true;
        };
        faults.push(Fault {
            class: Some(name.clone()),
            message: format!(
                "{key} is \"{dir:.40}\", but binding: disk has its links in {LINK_DIR}; use another directory"
            ),
        });
        false
    });
}

/// One class, or its first fault.
fn read_class(name: &str, mut value: Value, warnings: &mut Vec<String>) -> Result<Class, String> {
    let mut cleaner = Map::new();
    if let Value::Object(keys) = value {
        let known = class_keys();
        known.check_spellings(&keys)?;
        let mut values = keys.iter();
        let rule = values.find(|(key, _)| key.eq_ignore_ascii_case(DEVICES));
        if let (Some((_, Value::Object(rule))), Some(known)) = (rule, Keys::below(DEVICES)) {
            // Without a condition that is misspelled, the rule would take other disks.
            let is_known = known.check_spellings(rule).and_then(|()| {
                let unknown = rule.keys().find(|name| known.find(name).is_none());
                unknown.map_or(Ok(()), |name| Err(known.unknown("", name, "")))
            });
            is_known.map_err(|why| format!("{DEVICES}: {why}"))?;
        }
        let mut keys = known.canonical(keys, &format!("class {name:?}: "), warnings);
        cleaner.extend(CLEANERS.iter().filter_map(|key| keys.remove_entry(*key)));
        for required in ["hostDir", "mountDir"] {
            keys.entry(required).or_insert(Value::Null);
        }
        if let Some(rule) = keys.get_mut(DEVICES).and_then(Value::as_object_mut) {
            rule.entry("match").or_insert(Value::Null);
        }
        value = keys.into();
    }
    let mut class: Class = read(&value, "its value")?;
    if !labels::is_subdomain(name) {
        return Err(unfit("its name", &name.into()));
    }
    // Others below the kubelet's directory can have volumes.
    let dir = format!("{}/", class.host_dir);
    let kubelets = ["/kubelet/pods/", "/kubelet/plugins/"];
    if dir == "//" || dir.ends_with("/lib/kubelet/") || kubelets.iter().any(|it| dir.contains(it)) {
        return Err(unfit("hostDir", &json!(class.host_dir)));
    }
    if let Some(rule) = &class.devices {
        check_devices(name, &class, rule, &value[DEVICES])?;
        // Another disk may be under the link of an entry before that is offered.
        class.discovery_policy = DiscoveryPolicy::EmptyOnly;
    }
    Ok(Class {
        name: name.to_owned(),
        cleaner: match cleaner.len() {
            0 => Cleaner::default(),
            1 => read(&cleaner.into(), "its value")?,
            _ => return Err("cleanMethod and blockCleanerCommand are set; keep one".into()),
        },
        ..class
    })
}

/// The longest name of an annotation after its prefix, by Kubernetes.
const MAX_ANNOTATION: usize = 63;

/// Checks what the values of a rule, as `given`, have to do with each other and with its class.
fn check_devices(name: &str, class: &Class, rule: &Devices, given: &Value) -> Result<(), String> {
    let is_below = |glob: &str| {
        let is_literal = |part: &str| !part.is_empty() && !part.contains(['*', '?', '[', '\\']);
        let mut parts = glob.strip_prefix("/dev/disk/").unwrap_or_default().split('/');
        // Names outside of /dev/disk are other disks after a reboot. Those of filesystems are of no blank disk.
        let is_dir =
            |part| is_literal(part) && !matches!(part, "by-diskseq" | "by-label" | "by-uuid");
        parts.next().is_some_and(is_dir)
            && parts.next().is_some_and(|name| !name.is_empty())
            && parts.next().is_none()
    };
    for (key, globs) in [("match", &rule.links), ("exclude", &rule.exclude)] {
        let globs: Vec<_> = globs.iter().flat_map(NamePattern::globs).collect();
        let wrong = globs.iter().find(|glob| !is_below(glob));
        if let Some(glob) = wrong {
            return Err(unfit(&format!("devices.{key}"), &json!(glob)));
        }
        if key == "match" && globs.is_empty() {
            return Err(unfit("devices.match", &json!([])));
        }
    }
    if let (Some(min), Some(max)) = (rule.min_size, rule.max_size)
        && min > max
    {
        return Err(unfit("devices.maxSize", &given["maxSize"]));
    }
    match rule.filesystem {
        None if !rule.mount_options.is_empty() => {
            return Err(
                "devices.mountOptions requires devices.filesystem; set it, or remove mountOptions"
                    .into(),
            );
        }
        Some(_) if class.volume_mode == VolumeMode::Block || class.fs_type.is_some() => {
            return Err("devices.filesystem makes mounted volumes; remove volumeMode: Block and fsType, or filesystem".into());
        }
        _ => {}
    }
    let key = format!("{APPROVE_PREFIX}{name}");
    if rule.approve == Approve::Plan && name.len() > MAX_ANNOTATION {
        return Err(format!(
            "the annotation {key} of an approval would be too long; use approve: Auto, or a name of at most {MAX_ANNOTATION} characters"
        ));
    }
    match class.binding {
        // A name of a disk may be another disk later.
        Binding::Path => Err("devices requires binding: disk; add it".into()),
        Binding::Disk => Ok(()),
    }
}

pub(super) fn class_keys() -> Keys {
    // Cannot fail: these are the required keys.
    let class = read::<Class>(&json!({ "hostDir": "/", "mountDir": "/" }), "its value").ok();
    Keys::of(&class, &CLEANERS)
}

/// The configuration without its classes. A key with a fault has its safe value.
fn read_others(mut values: Map<String, Value>, faults: &mut Vec<Fault>) -> Config {
    values.retain(|key, value| {
        let Err(message) = check_other(key, value) else {
            return true;
        };
        let class = None;
        faults.push(Fault { class, message });
        let is_kept = TRUE_IN_DOUBT.contains(&key.as_str());
        if is_kept {
            *value = "true".into();
        }
        is_kept
    });
    // Cannot fail: each key was read alone.
    read(&values.into(), "").unwrap_or_default()
}

/// Checks the value of one key outside of the classes.
fn check_other(key: &str, value: &Value) -> Result<(), String> {
    let config: Config = read(&json!({ key: value }), key)?;
    let mut labels = config.labels_for_pv.iter();
    if let Some((label, text)) = labels.find(|(label, text)| !labels::is_label(label, text)) {
        return Err(unfit(&format!("{LABELS}.{label}"), &json!(text)));
    }
    let mut operators = config.job_tolerations.iter().flat_map(|it| &it.operator);
    match operators.find(|it| !["", "Exists", "Equal", "Lt", "Gt"].contains(&it.as_str())) {
        Some(it) => Err(unfit(&format!("{TOLERATIONS}[].operator"), &json!(it))),
        None => Ok(()),
    }
}

/// Warnings about the volumes of a class, or about two classes together.
fn class_warnings(classes: &BTreeMap<String, Arc<Class>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = classes.values();
    while let Some(a) = rest.next() {
        let cleaner = a.cleaner.to_string();
        let program = cleaner.split(' ').next().unwrap_or_default();
        let is_quick = program == "quick" || Path::new(program).ends_with("quick_reset.sh");
        if a.volume_mode == VolumeMode::Block && is_quick {
            warnings.push(format!(
                "class {:?} hands out raw devices that are cleaned by a quick reset: without a discard, the next tenant can read old data; to prevent that, set cleanMethod to auto",
                a.name
            ));
        }
        let own = [fs_type_warning(a), missing_program(program)];
        for text in own.into_iter().flatten() {
            warnings.push(format!("class {:?}: {text}", a.name));
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

/// A warning about a filesystem that no kubelet creates, or that nodes may lack.
fn fs_type_warning(class: &Class) -> Option<String> {
    let fs_type = class.fs_type.as_deref()?;
    let effect = match fs_type {
        _ if class.volume_mode == VolumeMode::Block => "has no effect on raw devices; remove it",
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" => return None,
        _ => "requires its mkfs on the node; install it, or write ext4 or xfs",
    };
    Some(format!("fsType {fs_type:?} {effect}"))
}

/// A warning about a cleaner that is neither built in nor a file here.
fn missing_program(program: &str) -> Option<String> {
    let is_here = SCRIPTS.split(' ').any(|it| it == program) || Path::new(program).exists();
    (program.starts_with('/') && !is_here).then(|| format!("blockCleanerCommand needs {program}, which is not here; add it to the image, or write cleanMethod: auto"))
}
