//! The messages of bad values: each names the key, its value and the remedy.

use super::{files, loaded};
use crate::config::*;

/// The longest message, as an operator reads it in an event.
const MAX_LENGTH: usize = 200;

/// The text of a file, and the messages of its faults and warnings.
const OF_KEYS: &[(&str, &str, &str)] = &[
    ("storageClassMap", "5", ""),
    ("storageClassMap", "[{name: c}]", ""),
    ("labelsForPV", "[a]", ""),
    ("labelsForPV", "{good: a, bad: [b]}", ""),
    ("labelsForPV", "{-a: b}", ""),
    ("labelsForPV", "{a: b c}", ""),
    ("labelsForPV", "{A.b/c: d}", ""),
    ("nodeLabelsForPV", "rack", ""),
    ("nodeLabelsForPV", "{a: b}", ""),
    ("nodeLabelsForPV", "[rack, ~]", ""),
    ("jobTolerations", "Exists", ""),
    ("jobTolerations", "[{operator: Foo}]", ""),
    (
        "jobTolerations",
        "[{operator: Exists}, {effect: NoRun}]",
        "",
    ),
    ("jobTolerations", "[{tolerationSeconds: x}]", ""),
    ("logLevel", "loud", ""),
    ("maxConcurrentCleanups", "0", ""),
    ("pauseCleaning", "perhaps", ""),
    ("protectReleasedData", "[true]", ""),
    ("provisionerNotReadyNodeTaintKey", "[a]", ""),
    ("useAlphaAPI", "perhaps", ""),
];

/// The keys of a class beside two good directories.
const OF_CLASS: &[(&str, &str)] = &[
    ("hostDir: mnt", ""),
    ("hostDir: ", ""),
    ("hostDir: [/a]", ""),
    ("hostDir: /a/..", ""),
    ("hostDir: \"/\\0\"", ""),
    ("hostDir: /", ""),
    ("hostDir: /var/lib/kubelet/", ""),
    ("hostDir: /var/lib/kubelet/pods/x", ""),
    ("mountDir: m", ""),
    ("mountDir: /", ""),
    ("cleanMethod: erase", ""),
    ("cleanMethod: [zero]", ""),
    (
        "cleanMethod: zero\nblockCleanerCommand: [/scripts/dd_zero.sh]",
        "",
    ),
    ("blockCleanerCommand: /scripts/shred.sh 2", ""),
    ("blockCleanerCommand: []", ""),
    ("blockCleanerCommand: [a, [b]]", ""),
    ("blockCleanerCommand: [/scripts/x.sh]", ""),
    ("cleanupTimeout: 0", ""),
    ("cleanupTimeout: -6h", ""),
    ("trim: never", ""),
    ("volumeMode: Bloc", ""),
    ("accessMode: RWO", ""),
    ("fsType: {a: b}", ""),
    ("fsType: ext5", ""),
    ("fsType: xfs\nvolumeMode: Block\ncleanMethod: auto", ""),
    ("namePattern: '[a'", ""),
    ("namePattern: ' , '", ""),
    ("selector: x", ""),
    ("selector: {matchExpresions: []}", ""),
    (
        "selector: [{matchExpressions: [{key: a, operator: In, values: [[]]}]}]",
        "",
    ),
    ("weakIdentity: \"true\"", ""),
    ("discoveryPolicy: All", ""),
    ("missingVolumePolicy: Remove", ""),
    ("volumeMode: Block\nVOLUMEMODE: Filesystem", ""),
];

/// The text of a `storageClassMap`.
const OF_CLASSES: &[(&str, &str)] = &[
    ("c: ", ""),
    ("c: /mnt", ""),
    ("c: {}", ""),
    ("Fast_SSD: {hostDir: /h, mountDir: /m}", ""),
    (
        "a: {hostDir: /h, mountDir: /m}\nb: {hostDir: /h/, mountDir: /m}",
        "",
    ),
    (
        "a: {hostDir: /h, mountDir: /m, namePattern: a*}\nb: {hostDir: /h, mountDir: /m, namePattern: b*}",
        "",
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
    for text in &found {
        for foreign in [
            "invalid type",
            "unknown variant",
            "missing field",
            "sequence",
            "expected",
            "regex",
        ] {
            assert!(!text.contains(foreign), "{text}");
        }
        assert!(text.chars().count() <= MAX_LENGTH, "{text}");
    }
    found.join("\n")
}

fn check(cases: impl IntoIterator<Item = (String, String, &'static str)>) {
    let wrong = cases.into_iter().filter_map(|(key, text, expected)| {
        let found = messages(&key, &text);
        (found != expected).then(|| format!("{text:?}\n{found}\n"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bad_value_is_named_with_its_key_and_the_remedy() {
    check(
        OF_KEYS
            .iter()
            .map(|(key, text, expected)| ((*key).into(), (*text).into(), *expected)),
    );
}

#[test]
fn bad_value_of_a_class_is_named_with_the_class_and_the_remedy() {
    let classes = OF_CLASSES
        .iter()
        .map(|(text, expected)| ((*text).into(), *expected));
    let keys = OF_CLASS.iter().map(|(keys, expected)| {
        let mut lines: String = keys.lines().map(|line| format!("  {line}\n")).collect();
        for dir in ["hostDir", "mountDir"] {
            if !keys.starts_with(dir) {
                lines.push_str(&format!("  {dir}: /mnt/c\n"));
            }
        }
        (format!("c:\n{lines}"), *expected)
    });
    check(
        classes
            .chain(keys)
            .map(|(text, expected)| ("storageClassMap".into(), text, expected)),
    );
}

#[test]
fn rejected_class_leaves_the_others() {
    let text = "a: {hostDir: /, mountDir: /m}\nb: {hostDir: /b, HOSTDIR: /c, mountDir: /b}\nc: {hostDir: /c, mountDir: /c}";
    let classes = loaded(&[("storageClassMap", text)]).config.classes;
    assert_eq!(classes.into_keys().collect::<Vec<_>>(), ["c"]);
}
