//! The keys of one class, and what two classes can do to each other.

use std::path::Path;

use super::loaded;
use crate::config::duration::DurationFault::{Negative, NoUnit};
use crate::config::*;
use crate::types::{HostPath, MountPath, PathFault, VolumeMode};

/// A configuration with the class `c`, made of these lines and two good directories.
fn class_with(lines: &str) -> Loaded {
    let lines = lines.replace('\n', "\n  ");
    loaded(&[(
        "storageClassMap",
        &format!("c:\n  hostDir: /h\n  mountDir: /m\n  {lines}\n"),
    )])
}

fn class(lines: &str) -> Class {
    let loaded = class_with(lines);
    assert_eq!(loaded.faults, [], "{lines}");
    Class::clone(&loaded.config.classes["c"])
}

/// The key, value and problem of each fault of the class `c`.
fn faults(lines: &str) -> Vec<(String, String, Problem)> {
    let loaded = class_with(lines);
    assert_eq!(
        loaded.config.classes.len(),
        0,
        "a faulty class is off: {lines}"
    );
    assert_eq!(
        loaded.faulty_classes().collect::<Vec<_>>(),
        ["c"],
        "{lines}"
    );
    loaded
        .faults
        .into_iter()
        .map(|fault| (fault.key, fault.value, fault.problem))
        .collect()
}

fn word(allowed: &[&'static str], meant: Option<&'static str>) -> Problem {
    Problem::Word {
        allowed: allowed.to_vec(),
        meant,
    }
}

#[test]
fn everything_but_the_two_directories_has_a_default() {
    let fresh = loaded(&[("storageClassMap", "c: {hostDir: /h, mountDir: /m}")]);
    let class = &fresh.config.classes["c"];
    assert_eq!(class.name, "c");
    assert_eq!(class.host_dir.as_str(), "/h");
    assert_eq!(class.mount_dir.as_path(), Path::new("/m"));
    assert_eq!(class.cleaner.to_string(), "/scripts/quick_reset.sh");
    assert_eq!(class.cleanup_timeout, None);
    assert!(class.trim);
    assert_eq!(class.volume_mode, VolumeMode::Filesystem);
    assert_eq!(class.access_mode, AccessMode::ReadWriteOnce);
    assert_eq!(class.fs_type, None);
    assert_eq!(class.name_pattern.as_str(), "*");
    assert_eq!(class.selector, []);
    assert_eq!(class.weak_identity, WeakIdentity::Consent);
    assert_eq!(class.discovery_policy, DiscoveryPolicy::Any);
    assert_eq!(class.missing_volume_policy, MissingVolumePolicy::Report);
    assert_eq!((fresh.faults, fresh.warnings), (vec![], vec![]));

    let config = Config {
        classes: BTreeMap::new(),
        ..fresh.config
    };
    assert_eq!(config, Config::default());
    assert_eq!(config.min_resync_period, Duration::from_mins(5));
    assert_eq!(config.max_concurrent_cleanups.get(), 4);
    assert!(!config.protect_released_data && !config.pause_cleaning);
}

#[test]
fn each_key_of_a_class_is_read() {
    let read = class(
        "blockCleanerCommand: [/scripts/shred.sh, 2]\nvolumeMode: Block\naccessMode: ReadWriteOncePod\n\
         fsType: xfs\nnamePattern: 'nvme*,sd[b-z]'\nweakIdentity: Accept\ndiscoveryPolicy: EmptyOnly\n\
         missingVolumePolicy: Delete\ncleanupTimeout: 1h30m\ntrim: false",
    );
    let command = vec!["/scripts/shred.sh".into(), "2".into()];
    assert_eq!(read.cleaner, Cleaner::Command(command));
    assert_eq!(read.cleanup_timeout, Some(Duration::from_mins(90)));
    assert!(!read.trim);
    assert_eq!(read.volume_mode, VolumeMode::Block);
    assert_eq!(read.access_mode, AccessMode::ReadWriteOncePod);
    assert_eq!(read.fs_type.as_deref(), Some("xfs"));
    assert!(read.name_pattern.matches("sdb") && !read.name_pattern.matches("sda"));
    assert_eq!(read.weak_identity, WeakIdentity::Accept);
    assert_eq!(read.discovery_policy, DiscoveryPolicy::EmptyOnly);
    assert_eq!(read.missing_volume_policy, MissingVolumePolicy::Delete);
    for (text, mode) in [
        ("ReadWriteOnce", AccessMode::ReadWriteOnce),
        ("ReadOnlyMany", AccessMode::ReadOnlyMany),
        ("ReadWriteMany", AccessMode::ReadWriteMany),
    ] {
        assert_eq!(class(&format!("accessMode: {text}")).access_mode, mode);
        assert_eq!(mode.as_str(), text);
    }
    assert_eq!(class("fsType: ''").fs_type, None);
    assert_eq!(
        class("namePattern: ''").name_pattern,
        NamePattern::default()
    );
}

#[test]
fn a_clean_method_takes_the_place_of_a_command() {
    for (text, method) in [
        ("quick", CleanMethod::Quick),
        ("zero", CleanMethod::Zero),
        ("overwrite", CleanMethod::Overwrite),
        ("discard", CleanMethod::Discard),
        ("auto", CleanMethod::Auto),
    ] {
        let cleaner = class(&format!("cleanMethod: {text}")).cleaner;
        assert_eq!(cleaner, Cleaner::Method(method));
        assert_eq!(cleaner.to_string(), text);
    }
    assert_eq!(class("cleanMethod: ").cleaner, Cleaner::default());
}

#[test]
fn a_clean_method_beside_a_command_is_a_fault_that_names_both() {
    let loaded = class_with("blockCleanerCommand: [/scripts/dd_zero.sh]\ncleanMethod: zero");
    assert!(loaded.config.classes.is_empty());
    let sentences: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        sentences,
        [
            "class \"c\": cleanMethod \"zero\" is given beside blockCleanerCommand, which is about the \
             same thing: keep one of the two"
        ]
    );
}

#[test]
fn directories_are_normalised() {
    let read = loaded(&[(
        "storageClassMap",
        "c: {hostDir: /mnt//disks/, mountDir: /mnt/./disks}",
    )]);
    let class = &read.config.classes["c"];
    assert_eq!(class.host_dir.as_str(), "/mnt/disks");
    assert_eq!(class.mount_dir.as_path(), Path::new("/mnt/disks"));
}

#[test]
fn a_bad_value_is_a_fault_that_switches_its_class_off() {
    let unclosed = pattern::PatternFault::Set("[a".into());
    let not_a_list = Problem::Shape {
        found: "a single value",
        wanted: "a list",
    };
    let not_single = |found| Problem::Shape {
        found,
        wanted: "a single value",
    };
    let methods = ["quick", "zero", "overwrite", "discard", "auto"];
    let modes = ["Filesystem", "Block"];
    let access = [
        "ReadWriteOnce",
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOncePod",
    ];
    for (key, yaml, value, problem) in [
        ("blockCleanerCommand", "[]", "[]", Problem::Command),
        ("blockCleanerCommand", "['']", "[]", Problem::Command),
        ("blockCleanerCommand", "a", "a", not_a_list.clone()),
        (
            "blockCleanerCommand",
            "[a, [b]]",
            "[a, [b]]",
            not_single("a list"),
        ),
        (
            "blockCleanerCommand",
            "[a, ~]",
            "[a, ]",
            not_single("nothing"),
        ),
        ("cleanMethod", "erase", "erase", word(&methods, None)),
        (
            "cleanMethod",
            "zeroo",
            "zeroo",
            word(&methods, Some("zero")),
        ),
        ("cleanMethod", "[zero]", "[zero]", not_single("a list")),
        ("trim", "never", "never", Problem::Boolean),
        ("cleanupTimeout", "0", "0", Problem::NoTime),
        ("cleanupTimeout", "0h0m", "0h0m", Problem::NoTime),
        ("cleanupTimeout", "6", "6", Problem::Duration(NoUnit)),
        ("cleanupTimeout", "-6h", "-6h", Problem::Duration(Negative)),
        ("volumeMode", "Bloc", "Bloc", word(&modes, Some("Block"))),
        ("volumeMode", "block", "block", word(&modes, Some("Block"))),
        ("volumeMode", "''", "", word(&modes, None)),
        ("accessMode", "RWO", "RWO", word(&access, None)),
        ("fsType", "{a: b}", "{a: b}", not_single("a map")),
        ("namePattern", "'[a'", "[a", Problem::Pattern(unclosed)),
        (
            "weakIdentity",
            "yes",
            "yes",
            word(&["Consent", "Accept"], None),
        ),
        (
            "discoveryPolicy",
            "All",
            "All",
            word(&["Any", "EmptyOnly"], None),
        ),
        (
            "missingVolumePolicy",
            "Remove",
            "Remove",
            word(&["Report", "Delete"], None),
        ),
        ("selector", "x", "x", not_a_list),
    ] {
        let found = faults(&format!("{key}: {yaml}"));
        assert_eq!(
            found,
            [(key.into(), value.into(), problem)],
            "{key}: {yaml}"
        );
    }
}

#[test]
fn one_key_in_two_spellings_is_a_fault() {
    let twice = Problem::Twice("FSType".into());
    assert_eq!(
        faults("FSType: a\nfstype: b"),
        [("fstype".into(), "b".into(), twice)]
    );
}

#[test]
fn both_directories_must_be_there_and_absolute() {
    for (text, expected) in [
        (
            "{}",
            vec![
                ("hostDir", Problem::Missing),
                ("mountDir", Problem::Missing),
            ],
        ),
        (
            "{hostDir: , mountDir: /m}",
            vec![("hostDir", Problem::Missing)],
        ),
        (
            "{hostDir: mnt, mountDir: /m}",
            vec![("hostDir", Problem::Path(PathFault::Relative))],
        ),
        (
            "{hostDir: '', mountDir: /m}",
            vec![("hostDir", Problem::Path(PathFault::Relative))],
        ),
        (
            "{hostDir: /h, mountDir: /m/..}",
            vec![("mountDir", Problem::Path(PathFault::Parent))],
        ),
        (
            "{hostDir: \"/\\0\", mountDir: /m}",
            vec![("hostDir", Problem::Path(PathFault::Nul))],
        ),
        (
            "",
            vec![(
                "",
                Problem::Shape {
                    found: "nothing",
                    wanted: "a map",
                },
            )],
        ),
        (
            "/mnt",
            vec![(
                "",
                Problem::Shape {
                    found: "a single value",
                    wanted: "a map",
                },
            )],
        ),
    ] {
        let loaded = loaded(&[("storageClassMap", &format!("c: {text}"))]);
        let found: Vec<_> = loaded
            .faults
            .iter()
            .map(|fault| (fault.key.as_str(), fault.problem.clone()))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert!(loaded.config.classes.is_empty(), "{text}");
    }
}

#[test]
fn one_faulty_class_leaves_the_others_running_and_shows_all_its_faults() {
    let loaded = loaded(&[(
        "storageClassMap",
        "bad: {hostDir: a, mountDir: b, volumeMode: c}\ngood: {hostDir: /h, mountDir: /m}\n\
         Bad_Name: {hostDir: /x, mountDir: /y}\n",
    )]);
    assert_eq!(loaded.config.classes.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(
        loaded.faulty_classes().collect::<Vec<_>>(),
        ["Bad_Name", "bad"]
    );
    assert_eq!(loaded.faults.len(), 4, "{:?}", loaded.faults);
    assert_eq!(loaded.faults[3].problem, Problem::ClassName);
}

#[test]
fn a_selector_is_read_as_the_api_means_it() {
    let read = class(
        "selector:\n- matchExpressions:\n  - {key: rack, operator: In, values: [1, yes]}\n  \
         - {key: ssd, operator: Exists}\n- matchFields:\n  - {key: metadata.name, operator: In, values: [n]}",
    );
    let json = serde_json::to_value(&read.selector).unwrap();
    assert_eq!(
        json,
        serde_json::json!([
            {"matchExpressions": [
                {"key": "rack", "operator": "In", "values": ["1", "yes"]},
                {"key": "ssd", "operator": "Exists"},
            ]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        ])
    );
}

#[test]
fn a_selector_that_the_api_would_refuse_is_a_fault_with_its_place() {
    for (requirement, key, problem) in [
        ("{operator: Exists}", "key", Problem::Missing),
        ("{key: a}", "operator", Problem::Missing),
        ("{key: a b, operator: Exists}", "key", Problem::LabelName),
        (
            "{key: a, operator: in, values: [x]}",
            "operator",
            word(
                &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
                Some("In"),
            ),
        ),
        (
            "{key: a, operator: In}",
            "values",
            Problem::SelectorValues {
                operator: "In",
                takes: "at least one",
                found: 0,
            },
        ),
        (
            "{key: a, operator: Exists, values: [x]}",
            "values",
            Problem::SelectorValues {
                operator: "Exists",
                takes: "none",
                found: 1,
            },
        ),
        (
            "{key: a, operator: Gt, values: [1, 2]}",
            "values",
            Problem::SelectorValues {
                operator: "Gt",
                takes: "one",
                found: 2,
            },
        ),
        (
            "{key: a, operator: In, values: [[]]}",
            "values[0]",
            Problem::Shape {
                found: "a list",
                wanted: "a single value",
            },
        ),
    ] {
        let found = faults(&format!(
            "selector: [{{matchExpressions: [{requirement}]}}]"
        ));
        let (place, _, first) = &found[0];
        assert_eq!(
            *place,
            format!("selector[0].matchExpressions[0].{key}"),
            "{requirement}"
        );
        assert_eq!(*first, problem, "{requirement}");
    }
}

#[test]
fn classes_that_share_or_nest_directories_are_warned_about() {
    let path = |text| HostPath::normalise(text).unwrap();
    let mount = |text| MountPath::normalise(text).unwrap();
    let (first, second) = (String::from("a"), String::from("b"));
    let nested = |outer: &str, outer_dir, inner: &str, inner_dir| {
        let (outer, inner) = (outer.into(), inner.into());
        Warning::NestedHostDir {
            outer,
            outer_dir: path(outer_dir),
            inner,
            inner_dir: path(inner_dir),
        }
    };
    let shared = Warning::SharedHostDir {
        first: first.clone(),
        second: second.clone(),
        dir: path("/x"),
    };
    let one_mount = Warning::SharedMountDir {
        first,
        second,
        dir: mount("/m"),
    };
    for (a, b, expected) in [
        (("/x", "/m"), ("/x/", "/m"), vec![shared.clone()]),
        (("/x", "/m"), ("/x", "/n"), vec![shared]),
        (
            ("/x", "/m"),
            ("/x/y", "/n"),
            vec![nested("a", "/x", "b", "/x/y")],
        ),
        (
            ("/x/y", "/m"),
            ("/x", "/n"),
            vec![nested("b", "/x", "a", "/x/y")],
        ),
        (("/x", "/m"), ("/x-ssd", "/n"), vec![]),
        (("/x", "/m"), ("/y", "/m"), vec![one_mount]),
    ] {
        let text = format!(
            "a: {{hostDir: {}, mountDir: {}}}\nb: {{hostDir: {}, mountDir: {}}}\n",
            a.0, a.1, b.0, b.1
        );
        let loaded = loaded(&[("storageClassMap", &text)]);
        assert_eq!(loaded.warnings, expected, "{text}");
        assert_eq!(loaded.config.classes.len(), 2, "{text}");
    }
}

#[test]
fn raw_devices_behind_a_quick_reset_are_warned_about() {
    for (lines, warned) in [
        ("volumeMode: Block", true),
        (
            "volumeMode: Block\nblockCleanerCommand: [quick_reset.sh]",
            true,
        ),
        (
            "volumeMode: Block\nblockCleanerCommand: [/scripts/dd_zero.sh]",
            false,
        ),
        ("volumeMode: Block\ncleanMethod: quick", true),
        ("volumeMode: Block\ncleanMethod: auto", false),
        ("volumeMode: Filesystem", false),
        ("volumeMode: Filesystem\ncleanMethod: quick", false),
    ] {
        let expected = [Warning::QuickResetOfRawDevices { class: "c".into() }];
        let expected = if warned { &expected[..] } else { &[] };
        assert_eq!(class_with(lines).warnings, expected, "{lines}");
    }
}
