//! From a directory of files to a [`Config`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use super::class::{self, Class};
use super::fault::{LoadError, Problem, Warning};
use super::raw::{self, Node};
use super::scheduling::toleration;
use super::section::{Place, Report, Section, count, flag, label_name, span, text};
use super::{CleanMethod, Cleaner, Config, DEFAULT_CLEANER, Loaded, label};
use crate::names::LABEL_HOSTNAME;
use crate::types::VolumeMode;

/// The keys of the ConfigMap. Other files are not even parsed.
const KEYS: [&str; 14] = [
    "storageClassMap",
    "nodeLabelsForPV",
    "labelsForPV",
    "useAlphaAPI",
    "useJobForCleaning",
    "jobTolerations",
    "minResyncPeriod",
    "useNodeNameOnly",
    "setPVOwnerRef",
    "removeNodeNotReadyTaint",
    "provisionerNotReadyNodeTaintKey",
    "pauseCleaning",
    "protectReleasedData",
    "maxConcurrentCleanups",
];

/// How often a directory that changes while it is read is read again.
const READS: usize = 3;

/// The texts of the configuration, by file name.
pub type Files = BTreeMap<String, String>;

/// Reads the directory and makes a configuration of it.
///
/// # Errors
/// [`LoadError`] when there is no configuration to be had; faults of single values are not errors.
pub fn load(dir: &Path) -> Result<Loaded, LoadError> {
    from_files(&read_dir(dir)?)
}

/// Reads the directory. Its entries are the keys, and links are followed; directories, and names
/// that begin with `..` (where the kubelet keeps the versions of a ConfigMap), are skipped.
///
/// # Errors
/// [`LoadError`] when it or a file in it cannot be read.
pub fn read_dir(dir: &Path) -> Result<Files, LoadError> {
    // The kubelet switches a ConfigMap to its new version by one rename of the link `..data`. Files
    // read before and after that are no configuration that anybody wrote.
    let version = || fs::read_link(dir.join("..data")).ok();
    let mut before = version();
    let mut files = read_files(dir);
    for _ in 1..READS {
        let after = version();
        if after == before {
            break;
        }
        before = after;
        files = read_files(dir);
    }
    files
}

fn read_files(dir: &Path) -> Result<Files, LoadError> {
    let no_directory = |source| LoadError::Directory {
        path: dir.to_owned(),
        source,
    };
    let mut files = Files::new();
    for entry in fs::read_dir(dir).map_err(no_directory)? {
        let entry = entry.map_err(no_directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("..") {
            continue;
        }
        let path = entry.path();
        let text = fs::metadata(&path).and_then(|metadata| {
            // Neither is a FIFO opened: that would wait for ever.
            metadata
                .is_file()
                .then(|| fs::read_to_string(&path))
                .transpose()
        });
        match text {
            Ok(Some(text)) => files.insert(name, text),
            Ok(None) => None,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(LoadError::NotUtf8 { path });
            }
            Err(source) => return Err(LoadError::File { path, source }),
        };
    }
    Ok(files)
}

/// Makes a configuration of the files' texts, by file name.
///
/// # Errors
/// [`LoadError`] when a text is no YAML, a key is there twice, or `useAlphaAPI` is true.
pub fn from_files(files: &Files) -> Result<Loaded, LoadError> {
    let root = Node::Map(parse(files)?);
    let mut report = Report::default();
    let config = match Section::open(&Place::default(), root, &mut report) {
        Some(root) => read(root)?,
        None => Config::default(),
    };
    warn_of_classes(&config.classes, &mut report.warnings);
    let Report { faults, warnings } = report;
    Ok(Loaded {
        config,
        faults,
        warnings,
    })
}

fn parse(files: &Files) -> Result<Vec<(String, Node)>, LoadError> {
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    let mut entries = Vec::new();
    for (key, text) in files {
        let lower_case = key.to_ascii_lowercase();
        if !KEYS.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            // Whatever it is, nobody reads it, so it need not be YAML either.
            entries.push((key.clone(), Node::Null));
            continue;
        }
        if let Some(first) = known.insert(lower_case, key) {
            return Err(LoadError::SameKey {
                first: first.clone(),
                second: key.clone(),
            });
        }
        let node =
            raw::parse(text).map_err(|raw::SyntaxError { at, message }| LoadError::Yaml {
                key: key.clone(),
                at,
                message,
            })?;
        entries.push((key.clone(), node));
    }
    Ok(entries)
}

fn read(mut root: Section<'_>) -> Result<Config, LoadError> {
    let default = Config::default();
    if root.value("useAlphaAPI", flag) {
        return Err(LoadError::AlphaApi);
    }
    let taint_key = default.provisioner_not_ready_node_taint_key;
    let config = Config {
        classes: classes(&mut root),
        node_labels_for_pv: root.list("nodeLabelsForPV", |place, node, report| {
            report.check(place, &node, label_name(&node))
        }),
        labels_for_pv: labels(&mut root),
        use_job_for_cleaning: root.value("useJobForCleaning", flag),
        job_tolerations: root.list("jobTolerations", toleration),
        min_resync_period: root.value_or(
            "minResyncPeriod",
            default.min_resync_period,
            default.min_resync_period,
            span,
        ),
        use_node_name_only: root.value("useNodeNameOnly", flag),
        set_pv_owner_ref: root.value("setPVOwnerRef", flag),
        remove_node_not_ready_taint: root.value("removeNodeNotReadyTaint", flag),
        provisioner_not_ready_node_taint_key: root.value_or(
            "provisionerNotReadyNodeTaintKey",
            taint_key.clone(),
            taint_key,
            label_name,
        ),
        // These two keep data when in doubt.
        pause_cleaning: root.value_or("pauseCleaning", false, true, flag),
        protect_released_data: root.value_or("protectReleasedData", false, true, flag),
        max_concurrent_cleanups: root.value_or(
            "maxConcurrentCleanups",
            default.max_concurrent_cleanups,
            default.max_concurrent_cleanups,
            count,
        ),
    };
    root.close();
    Ok(config)
}

fn classes(root: &mut Section<'_>) -> BTreeMap<String, Arc<Class>> {
    let Some((_, entries)) = root.map("storageClassMap") else {
        return BTreeMap::new();
    };
    if entries.is_empty() {
        root.report.warnings.push(Warning::NoClasses);
    }
    entries
        .into_iter()
        .filter_map(|(name, node)| {
            let class = class::read(&name, node, root.report)?;
            Some((name, Arc::new(class)))
        })
        .collect()
}

fn labels(root: &mut Section<'_>) -> BTreeMap<String, String> {
    let Some((place, entries)) = root.map("labelsForPV") else {
        return BTreeMap::new();
    };
    let mut labels = BTreeMap::new();
    for (name, node) in entries {
        let place = place.entry(&name);
        if name == LABEL_HOSTNAME {
            root.report.warnings.push(Warning::HostnameLabel);
        } else if !label::is_label_name(&name) {
            root.report.fault(&place, &node, Problem::LabelName);
        } else if let Some(value) = root.report.check(&place, &node, label_value(&node)) {
            labels.insert(name, value);
        }
    }
    labels
}

fn label_value(node: &Node) -> Result<String, Problem> {
    let value = if *node == Node::Null { "" } else { text(node)? };
    label::is_label_value(value)
        .then(|| value.to_owned())
        .ok_or(Problem::LabelValue)
}

/// What no class can see by itself.
fn warn_of_classes(classes: &BTreeMap<String, Arc<Class>>, warnings: &mut Vec<Warning>) {
    let mut rest = classes.values();
    while let Some(a) = rest.next() {
        if a.volume_mode == VolumeMode::Block && is_quick_reset(a) {
            warnings.push(Warning::QuickResetOfRawDevices {
                class: a.name.clone(),
            });
        }
        for b in rest.clone() {
            warnings.extend(warning_about(a, b));
        }
    }
}

/// `a` comes before `b` by name.
fn warning_about(a: &Class, b: &Class) -> Option<Warning> {
    let nested = |outer: &Class, inner: &Class| Warning::NestedHostDir {
        outer: outer.name.clone(),
        outer_dir: outer.host_dir.clone(),
        inner: inner.name.clone(),
        inner_dir: inner.host_dir.clone(),
    };
    let (first, second) = (a.name.clone(), b.name.clone());
    if a.host_dir == b.host_dir {
        Some(Warning::SharedHostDir {
            first,
            second,
            dir: a.host_dir.clone(),
        })
    } else if a.mount_dir == b.mount_dir {
        Some(Warning::SharedMountDir {
            first,
            second,
            dir: a.mount_dir.clone(),
        })
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
