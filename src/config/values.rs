//! Reads a value into its type. A value that does not fit is reported in one form: its key, the value, and what to write.
//!
//! No message has the words of a parser, which name types of a program and not what an operator can write.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, deserialize};

/// What to write, by key. All other keys are switches.
const EXPECTED: &str = r#"
accessMode: ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod
blockCleanerCommand: a list of the program and its arguments, such as [/scripts/shred.sh, 2]
class: a map of the class's keys, such as {hostDir: /mnt/disks, mountDir: /mnt/disks}
cleanMethod: quick, zero, overwrite, discard or auto
cleanupTimeout: a duration of more than zero, such as 6h or 1h30m
discoveryPolicy: Any or EmptyOnly
effect: NoSchedule, PreferNoSchedule or NoExecute
fsType: the name of a filesystem, such as ext4 or xfs
hostDir: the absolute path of a directory that only has volumes, such as /mnt/disks
jobTolerations: a list of tolerations, such as [{key: dedicated, operator: Exists}]
labelsForPV: a map of labels that Kubernetes accepts, such as {team: storage}
logLevel: error, warn, info, debug or trace
maxConcurrentCleanups: a whole number from 1 to 65535, such as 4
missingVolumePolicy: Report or Delete
mountDir: the absolute path of a directory that only has volumes, such as /mnt/disks
name: the name of a StorageClass, of lower-case letters, digits, "-" and "."
namePattern: globs separated by commas, such as nvme*,sd[b-z]; each set needs its "]"
nodeLabelsForPV: a list of label keys, such as [topology.kubernetes.io/zone]
operator: Exists or Equal
provisionerNotReadyNodeTaintKey: the key of a taint, such as example.com/not-ready
selector: a list of node selector terms, as in the node affinity of a Pod
storageClassMap: a map of classes, such as {fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}}
tolerationSeconds: a whole number, such as 300
weakIdentity: Consent or Accept"#;
const SWITCH: &str = "true or false";
/// A message shows this number of characters of a value.
const MAX_SHOWN: usize = 40;

fn expected(key: &str) -> Option<&'static str> {
    let mut lines = EXPECTED.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
}

/// A message about the value at `path`, which is not what `key` requires.
pub(super) fn unfit(path: &str, value: &Value, key: &str) -> String {
    let mut shown = match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    };
    if let Some((end, _)) = shown.char_indices().nth(MAX_SHOWN) {
        shown.truncate(end);
        shown.push('…');
    }
    let expected = expected(key).unwrap_or(SWITCH);
    format!("{path} is {shown}; write {expected}")
}

/// Reads a value, which is that of `key`, or a map of keys.
pub(super) fn read<T: DeserializeOwned>(value: &Value, key: &str) -> Result<T, String> {
    deserialize(value).map_err(|error| {
        let (mut path, mut found, mut known) = (String::new(), value, key);
        for segment in error.path() {
            let below = match segment {
                Segment::Seq { index } => found.get(index).map(|it| (format!("[{index}]"), it)),
                Segment::Map { key: name } | Segment::Enum { variant: name } => {
                    if path.is_empty() || known == "jobTolerations" && expected(name).is_some() {
                        known = name;
                    }
                    found.get(name).map(|it| (format!(".{name}"), it))
                }
                Segment::Unknown => None,
            };
            let Some((part, value)) = below else { break };
            (path, found) = (path + &part, value);
        }
        let path = path.trim_start_matches('.');
        unfit(if path.is_empty() { key } else { path }, found, known)
    })
}
