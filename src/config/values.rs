//! Reads a value into its type. A value that does not fit is reported in one form: its key, the value, and what to write.
//!
//! No message has the words of a parser, which name types of a program and not what an operator can write.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, deserialize};

/// What to write, by key. All other keys are switches.
const EXPECTED: &str = r#"
accessMode: ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod
binding: path or disk
blockCleanerCommand: a list of the program and its arguments, such as [/scripts/shred.sh, 2]
cleanMethod: quick, zero, overwrite, discard or auto
cleanupTimeout: a duration of more than zero, such as 6h or 1h30m
approve: Plan or Auto
devices: a map of the rule's keys, such as {match: [/dev/disk/by-id/nvme-*], minSize: 500Gi}
discoveryPolicy: Any or EmptyOnly
exclude: a list of globs of links, such as [/dev/disk/by-id/nvme-eui.*]
filesystem: ext4 or xfs
fsType: the name of a filesystem, such as ext4 or xfs
hostDir: the absolute path, without "..", of a directory with volumes only, such as /mnt/disks
its name: the name of a StorageClass, of lower-case letters, digits, "-" and "."
its value: a map of the class's keys, such as {hostDir: /mnt/disks, mountDir: /mnt/disks}
jobTolerations: tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]
labelsForPV: a map of labels that Kubernetes accepts, such as {team: storage}
logLevel: error, warn, info, debug or trace
match: a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]
maxConcurrentCleanups: a whole number from 1 to 65535, such as 4
maxSize: a size of at least minSize, such as 500Gi or 2T
minSize: a size, such as 500Gi or 2T
missingVolumePolicy: Report or Delete
model: globs separated by commas, with "_" for blanks, such as Samsung_SSD_*
mountOptions: a list of mount options, such as [noatime]
mountDir: the absolute path, without "..", of a directory with volumes only, such as /mnt/disks
namePattern: globs separated by commas, such as nvme*,sd[b-z]; each set needs its "]"
nodeLabelsForPV: a list of label keys, such as [topology.kubernetes.io/zone]
provisionerNotReadyNodeTaintKey: the key of a taint, such as example.com/not-ready
selector: a list of node selector terms, such as [{matchExpressions: [{key: rack, operator: Exists}]}]
storageClassMap: a map of classes, such as {fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}}
volumeMode: Filesystem or Block
weakIdentity: Consent or Accept"#;

/// A message about the value at `path`, which begins with its key. Long ones are truncated.
pub(super) fn unfit(path: &str, value: &Value) -> String {
    // In a map of settings, it is the key of the setting.
    let key =
        path.strip_prefix("devices.").unwrap_or(path).split(['.', '[']).next().unwrap_or_default();
    let mut rows = EXPECTED.lines().filter_map(|row| row.split_once(": "));
    let row = rows.find(|(known, _)| *known == key);
    let expected = row.map_or("true or false", |(_, expected)| expected);
    let shown = match value {
        Value::Null => "not set".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        other => other.to_string(),
    };
    format!("{path:.100} is {shown:.60}; write {expected}")
}

/// Reads the value of `key`, or a map of keys.
pub(super) fn read<T: DeserializeOwned>(value: &Value, key: &str) -> Result<T, String> {
    deserialize(value).map_err(|error| {
        let (mut path, mut found) = (String::new(), value);
        for segment in error.path() {
            let below = match segment {
                Segment::Seq { index } => found.get(index),
                Segment::Map { key: name } | Segment::Enum { variant: name } => found.get(name),
                Segment::Unknown => None,
            };
            let Some(value) = below else { break };
            (path, found) = (format!("{path}.{segment}").replace(".[", "["), value);
        }
        let path = path.trim_start_matches('.');
        unfit(if path.is_empty() { key } else { path }, found)
    })
}
