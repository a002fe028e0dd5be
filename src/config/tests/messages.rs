//! The messages of bad values: each names the key, its value and the remedy.

use super::{files, loaded};
use crate::config::*;

/// The longest message, as an operator reads it in an event.
const MAX_LENGTH: usize = 160;

/// The text of a file, and the messages of its faults and warnings.
const OF_KEYS: &[(&str, &str, &str)] = &[
    (
        "storageClassMap",
        "5",
        "storageClassMap is \"5\"; write a map of classes, such as {fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}}",
    ),
    (
        "storageClassMap",
        "[{name: c}]",
        "storageClassMap is [{\"name\":\"c\"}]; write a map of classes, such as {fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}}",
    ),
    (
        "labelsForPV",
        "[a]",
        "labelsForPV is [\"a\"]; write a map of labels that Kubernetes accepts, such as {team: storage}",
    ),
    (
        "labelsForPV",
        "{good: a, bad: [b]}",
        "labelsForPV.bad is [\"b\"]; write a map of labels that Kubernetes accepts, such as {team: storage}",
    ),
    (
        "labelsForPV",
        "{-a: b}",
        "labelsForPV.-a is \"b\"; write a map of labels that Kubernetes accepts, such as {team: storage}",
    ),
    (
        "labelsForPV",
        "{a: b c}",
        "labelsForPV.a is \"b c\"; write a map of labels that Kubernetes accepts, such as {team: storage}",
    ),
    (
        "labelsForPV",
        "{A.b/c: d}",
        "labelsForPV.A.b/c is \"d\"; write a map of labels that Kubernetes accepts, such as {team: storage}",
    ),
    (
        "nodeLabelsForPV",
        "rack",
        "nodeLabelsForPV is \"rack\"; write a list of label keys, such as [topology.kubernetes.io/zone]",
    ),
    (
        "nodeLabelsForPV",
        "{a: b}",
        "nodeLabelsForPV is a map; write a list of label keys, such as [topology.kubernetes.io/zone]",
    ),
    (
        "nodeLabelsForPV",
        "[rack, ~]",
        "nodeLabelsForPV[1] is not set; write a list of label keys, such as [topology.kubernetes.io/zone]",
    ),
    (
        "jobTolerations",
        "Exists",
        "jobTolerations is \"Exists\"; write tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]",
    ),
    (
        "jobTolerations",
        "[{operator: Foo}]",
        "jobTolerations[].operator is \"Foo\"; write tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]",
    ),
    (
        "jobTolerations",
        "[{operator: Exists}, {operator: [x]}]",
        "jobTolerations[1].operator is [\"x\"]; write tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]",
    ),
    (
        "jobTolerations",
        "[{tolerationSeconds: x}]",
        "jobTolerations[0].tolerationSeconds is \"x\"; write tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]",
    ),
    ("logLevel", "loud", "logLevel is \"loud\"; write error, warn, info, debug or trace"),
    (
        "maxConcurrentCleanups",
        "0",
        "maxConcurrentCleanups is \"0\"; write a whole number from 1 to 65535, such as 4",
    ),
    ("pauseCleaning", "perhaps", "pauseCleaning is \"perhaps\"; write true or false"),
    ("protectReleasedData", "[true]", "protectReleasedData is [\"true\"]; write true or false"),
    (
        "provisionerNotReadyNodeTaintKey",
        "[a]",
        "provisionerNotReadyNodeTaintKey is [\"a\"]; write the key of a taint, such as example.com/not-ready",
    ),
    ("useAlphaAPI", "perhaps", "useAlphaAPI is \"perhaps\"; write true or false"),
];

/// The keys of a class beside two good directories.
const OF_CLASS: &[(&str, &str)] = &[
    (
        "hostDir: mnt",
        "class \"c\": hostDir is \"mnt\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: ",
        "class \"c\": hostDir is not set; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: [/a]",
        "class \"c\": hostDir is [\"/a\"]; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: /a/..",
        "class \"c\": hostDir is \"/a/..\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: \"/\\0\"",
        "class \"c\": hostDir is \"/\\u0000\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: /",
        "class \"c\": hostDir is \"/\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: /var/lib/kubelet/",
        "class \"c\": hostDir is \"/var/lib/kubelet\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "hostDir: /var/lib/kubelet/pods/x",
        "class \"c\": hostDir is \"/var/lib/kubelet/pods/x\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "mountDir: m",
        "class \"c\": mountDir is \"m\"; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "cleanMethod: erase",
        "class \"c\": cleanMethod is \"erase\"; write quick, zero, overwrite, discard or auto",
    ),
    (
        "cleanMethod: [zero]",
        "class \"c\": cleanMethod is [\"zero\"]; write quick, zero, overwrite, discard or auto",
    ),
    (
        "cleanMethod: zero\nblockCleanerCommand: [/scripts/dd_zero.sh]",
        "class \"c\": cleanMethod and blockCleanerCommand are set; keep one",
    ),
    (
        "blockCleanerCommand: /scripts/shred.sh 2",
        "class \"c\": blockCleanerCommand is \"/scripts/shred.sh 2\"; write a list of the program and its arguments, such as [/scripts/shred.sh, 2]",
    ),
    (
        "blockCleanerCommand: []",
        "class \"c\": blockCleanerCommand is []; write a list of the program and its arguments, such as [/scripts/shred.sh, 2]",
    ),
    (
        "blockCleanerCommand: [a, [b]]",
        "class \"c\": blockCleanerCommand[1] is [\"b\"]; write a list of the program and its arguments, such as [/scripts/shred.sh, 2]",
    ),
    (
        "blockCleanerCommand: [/scripts/x.sh]",
        "class \"c\": blockCleanerCommand needs /scripts/x.sh, which is not here; add it to the image, or write cleanMethod: auto",
    ),
    (
        "cleanupTimeout: 0",
        "class \"c\": cleanupTimeout is \"0\"; write a duration of more than zero, such as 6h or 1h30m",
    ),
    (
        "cleanupTimeout: -6h",
        "class \"c\": cleanupTimeout is \"-6h\"; write a duration of more than zero, such as 6h or 1h30m",
    ),
    ("trim: never", "class \"c\": trim is \"never\"; write true or false"),
    ("volumeMode: Bloc", "class \"c\": volumeMode is \"Bloc\"; write Filesystem or Block"),
    (
        "accessMode: RWO",
        "class \"c\": accessMode is \"RWO\"; write ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod",
    ),
    (
        "fsType: {a: b}",
        "class \"c\": fsType is a map; write the name of a filesystem, such as ext4 or xfs",
    ),
    (
        "fsType: ext5",
        "class \"c\": fsType \"ext5\" requires its mkfs on the node; install it, or write ext4 or xfs",
    ),
    (
        "fsType: xfs\nvolumeMode: Block\ncleanMethod: auto",
        "class \"c\": fsType \"xfs\" has no effect on raw devices; remove it",
    ),
    (
        "namePattern: '[a'",
        "class \"c\": namePattern is \"[a\"; write globs separated by commas, such as nvme*,sd[b-z]; each set needs its \"]\"",
    ),
    (
        "namePattern: ' , '",
        "class \"c\": namePattern is \" , \"; write globs separated by commas, such as nvme*,sd[b-z]; each set needs its \"]\"",
    ),
    (
        "selector: x",
        "class \"c\": selector is \"x\"; write a list of node selector terms, such as [{matchExpressions: [{key: rack, operator: Exists}]}]",
    ),
    (
        "selector: {matchExpresions: []}",
        "class \"c\": selector is a map; write a list of node selector terms, such as [{matchExpressions: [{key: rack, operator: Exists}]}]",
    ),
    (
        "selector: [{matchExpressions: [{key: a, operator: In, values: [[]]}]}]",
        "class \"c\": selector[0].matchExpressions[0].values[0] is []; write a list of node selector terms, such as [{matchExpressions: [{key: rack, operator: Exists}]}]",
    ),
    ("weakIdentity: \"true\"", "class \"c\": weakIdentity is \"true\"; write Consent or Accept"),
    ("discoveryPolicy: All", "class \"c\": discoveryPolicy is \"All\"; write Any or EmptyOnly"),
    (
        "missingVolumePolicy: Remove",
        "class \"c\": missingVolumePolicy is \"Remove\"; write Report or Delete",
    ),
    ("binding: Disk", "class \"c\": binding is \"Disk\"; write path or disk"),
    (
        "volumeMode: Block\nVOLUMEMODE: Filesystem",
        "class \"c\": volumeMode is set as VOLUMEMODE and as volumeMode; keep one of them",
    ),
];

/// The text of a `storageClassMap`.
const OF_CLASSES: &[(&str, &str)] = &[
    (
        "c: ",
        "class \"c\": its value is not set; write a map of the class's keys, such as {hostDir: /mnt/disks, mountDir: /mnt/disks}",
    ),
    (
        "c: /mnt",
        "class \"c\": its value is \"/mnt\"; write a map of the class's keys, such as {hostDir: /mnt/disks, mountDir: /mnt/disks}",
    ),
    (
        "c: {}",
        "class \"c\": hostDir is not set; write the absolute path, without \"..\", of a directory with volumes only, such as /mnt/disks",
    ),
    (
        "Fast_SSD: {hostDir: /h, mountDir: /m}",
        "class \"Fast_SSD\": its name is \"Fast_SSD\"; write the name of a StorageClass, of lower-case letters, digits, \"-\" and \".\"",
    ),
    (
        "a: {hostDir: /h, mountDir: /m}\nb: {hostDir: /h/, mountDir: /m}",
        "classes \"a\" and \"b\" have the same or nested hostDirs (/h and /h): \"a\" offers an entry that both match; set namePattern, or give each its own directory",
    ),
    (
        "a: {hostDir: /h, mountDir: /m, namePattern: a*}\nb: {hostDir: /h, mountDir: /m, namePattern: b*}",
        "classes \"a\" and \"b\" have the same or nested hostDirs (/h and /h): \"a\" offers an entry that both match; set namePattern, or give each its own directory",
    ),
    (
        "a: {hostDir: /a, mountDir: /a, binding: disk}\nb: {hostDir: /run, mountDir: /b}",
        "class \"b\": hostDir is \"/run\", but binding: disk has its links in /run/local-volume-provisioner; use another directory",
    ),
    (
        "a: {hostDir: /run/local-volume-provisioner, mountDir: /a, binding: disk}",
        "class \"a\": hostDir is \"/run/local-volume-provisioner\", but binding: disk has its links in /run/local-volume-provisioner; use another directory",
    ),
    (
        "a: {hostDir: /a, mountDir: /run/local-volume-provisioner/a, binding: disk}",
        "class \"a\": mountDir is \"/run/local-volume-provisioner/a\", but binding: disk has its links in /run/local-volume-provisioner; use another directory",
    ),
];

fn messages(key: &str, text: &str) -> String {
    let mut found = match from_files(&files(&[(key, text)])) {
        Ok(loaded) => {
            let faults = loaded.faults.iter().map(ToString::to_string);
            faults.chain(loaded.warnings).collect()
        }
        Err(error) => vec![error],
    };
    found.retain(|text| !text.starts_with("no class is configured"));
    assert!(!found.is_empty(), "{text}");
    for text in &found {
        for foreign in
            ["invalid type", "unknown variant", "missing field", "sequence", "expected", "regex"]
        {
            assert!(!text.contains(foreign), "{text}");
        }
        assert!(text.chars().count() <= MAX_LENGTH, "{text}");
    }
    found.join("\n")
}

/// Asserts the messages of each value of a key.
pub(super) fn check(cases: impl IntoIterator<Item = (String, String, &'static str)>) {
    let wrong = cases.into_iter().filter_map(|(key, text, expected)| {
        let found = messages(&key, &text);
        (found != expected).then(|| format!("{text:?}\n{found}\n"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bad_value_is_named_with_its_key_and_the_remedy() {
    check(OF_KEYS.iter().map(|(key, text, expected)| ((*key).into(), (*text).into(), *expected)));
}

#[test]
fn bad_value_of_a_class_is_named_with_the_class_and_the_remedy() {
    let classes = OF_CLASSES.iter().map(|(text, expected)| ((*text).into(), *expected));
    let keys = OF_CLASS.iter().map(|(keys, expected)| {
        let dirs = ["hostDir: /mnt/c", "mountDir: /mnt/c"].into_iter();
        let others = dirs.filter(|dir| keys.split(':').next() != dir.split(':').next());
        let lines: Vec<_> = keys.lines().chain(others).collect();
        (format!("c:\n  {}\n", lines.join("\n  ")), *expected)
    });
    check(classes.chain(keys).map(|(text, expected)| ("storageClassMap".into(), text, expected)));
}

#[test]
fn rejected_class_leaves_the_others() {
    let text = "a: {hostDir: /, mountDir: /m}\nb: {hostDir: /b, HOSTDIR: /c, mountDir: /b}\nc: {hostDir: /c, mountDir: /c}";
    let classes = loaded(&[("storageClassMap", text)]).config.classes;
    assert_eq!(classes.into_keys().collect::<Vec<_>>(), ["c"]);
}
