//! The keys of one class, and what two classes can do to each other.

use std::path::Path;
use std::time::Duration;

use super::loaded;
use crate::config::*;
use crate::types::VolumeMode;

/// A configuration with the class `c`, made of these lines and two good directories.
fn class_with(lines: &str) -> Loaded {
    let lines = lines.replace('\n', "\n  ");
    loaded(&[("storageClassMap", &format!("c:\n  hostDir: /h\n  mountDir: /m\n  {lines}\n"))])
}

fn class(lines: &str) -> Class {
    let loaded = class_with(lines);
    assert_eq!(loaded.faults, [], "{lines}");
    Class::clone(&loaded.config.classes["c"])
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
    assert_eq!(class.name_pattern.to_string(), "*");
    assert_eq!(class.selector, []);
    assert_eq!(class.weak_identity, WeakIdentity::Consent);
    assert_eq!(class.discovery_policy, DiscoveryPolicy::Any);
    assert_eq!(class.missing_volume_policy, MissingVolumePolicy::Report);
    assert_eq!(class.binding, Binding::Path);
    assert_eq!((fresh.faults, fresh.warnings), (vec![], vec![]));

    let config = Config { classes: BTreeMap::new(), ..fresh.config };
    assert_eq!(config, Config::default());
    assert_eq!(config.max_concurrent_cleanups.get(), 4);
    assert!(!config.protect_released_data && !config.pause_cleaning);
}

#[test]
fn each_key_of_a_class_is_read() {
    let read = class(
        "blockCleanerCommand: [/scripts/shred.sh, 2]\nvolumeMode: Block\naccessMode: ReadWriteOncePod\n\
         fsType: xfs\nnamePattern: 'nvme*,sd[b-z]'\nweakIdentity: Accept\ndiscoveryPolicy: EmptyOnly\n\
         missingVolumePolicy: Delete\ncleanupTimeout: 1h30m\ntrim: false\nbinding: disk",
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
    assert_eq!(read.binding, Binding::Disk);
    for (text, mode) in [
        ("ReadWriteOnce", AccessMode::ReadWriteOnce),
        ("ReadOnlyMany", AccessMode::ReadOnlyMany),
        ("ReadWriteMany", AccessMode::ReadWriteMany),
    ] {
        assert_eq!(class(&format!("accessMode: {text}")).access_mode, mode);
        assert_eq!(format!("{mode:?}"), text);
    }
    assert_eq!(class("fsType: ''").fs_type, None);
    assert_eq!(class("namePattern: ''").name_pattern, NamePattern::default());
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
fn directories_are_normalised() {
    let read = loaded(&[("storageClassMap", "c: {hostDir: /mnt//disks/, mountDir: /mnt/./disks}")]);
    let class = &read.config.classes["c"];
    assert_eq!(class.host_dir.as_str(), "/mnt/disks");
    assert_eq!(class.mount_dir.as_path(), Path::new("/mnt/disks"));
}

#[test]
fn a_faulty_class_leaves_the_others_running() {
    let loaded = loaded(&[(
        "storageClassMap",
        "bad: {hostDir: a, mountDir: b, volumeMode: c}\ngood: {hostDir: /h, mountDir: /m}\n\
         bad.2: {hostDir: /x, mountDir: z}\n",
    )]);
    assert_eq!(loaded.config.classes.keys().collect::<Vec<_>>(), ["good"]);
    let faulty: Vec<_> = loaded.faults.iter().filter_map(|fault| fault.class.as_deref()).collect();
    assert_eq!(faulty, ["bad", "bad.2"]);
    let texts: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    let starts = [
        "class \"bad\": hostDir is \"a\"; write the absolute path",
        "class \"bad.2\": mountDir is \"z\"; write the absolute path",
    ];
    assert_eq!(texts.len(), starts.len());
    for (text, start) in texts.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn a_selector_is_read_as_the_api_means_it() {
    let read = class(
        "selector:\n- matchExpressions:\n  - {key: rack, operator: In, values: [1, yes]}\n  \
         - {key: ssd, operator: Exists}\n- matchFields:\n  - {key: metadata.name, operator: In, values: [node]}",
    );
    let json = serde_json::to_value(&read.selector).unwrap();
    assert_eq!(
        json,
        serde_json::json!([
            {"matchExpressions": [
                {"key": "rack", "operator": "In", "values": ["1", "true"]},
                {"key": "ssd", "operator": "Exists"},
            ]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]},
        ])
    );
}

#[test]
fn classes_that_share_or_nest_directories_are_warned_about() {
    let nested = "classes \"a\" and \"b\" have the same or nested hostDirs";
    let one_mount = "classes \"a\" and \"b\" have different hostDirs but the one mountDir /m";
    for (a, b, expected) in [
        (("/x", "/m"), ("/x/", "/m"), Some(nested)),
        (("/x", "/m"), ("/x", "/n"), Some(nested)),
        (("/x", "/m"), ("/x/y", "/n"), Some(nested)),
        (("/x/y", "/m"), ("/x", "/n"), Some(nested)),
        (("/x", "/m"), ("/x-ssd", "/n"), None),
        (("/x", "/m"), ("/y", "/m"), Some(one_mount)),
    ] {
        let text = format!(
            "a: {{hostDir: {}, mountDir: {}}}\nb: {{hostDir: {}, mountDir: {}}}\n",
            a.0, a.1, b.0, b.1
        );
        let loaded = loaded(&[("storageClassMap", &text)]);
        assert_eq!(loaded.warnings.len(), expected.iter().len(), "{text}");
        let warning = loaded.warnings.first().map_or("", String::as_str);
        assert!(warning.contains(expected.unwrap_or_default()), "{warning}");
        assert_eq!(loaded.config.classes.len(), 2, "{text}");
    }
}

#[test]
fn directory_of_the_links_is_refused_only_while_a_class_has_links() {
    let links = "c: {hostDir: /run, mountDir: /run/local-volume-provisioner}\n";
    for (other, faulty) in [
        ("path", &[][..]),
        (
            "disk",
            &[
                "hostDir is \"/run\", but binding: disk has its links in /run/local-volume-provisioner; use another directory",
            ],
        ),
    ] {
        let other = format!("d: {{hostDir: /run-d, mountDir: /d, binding: {other}}}\n");
        let loaded = loaded(&[("storageClassMap", &format!("{links}{other}"))]);
        let messages: Vec<_> = loaded.faults.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(messages, faulty, "{other}");
        assert!(loaded.config.classes.contains_key("d"), "{other}");
    }
}

#[test]
fn raw_devices_behind_a_quick_reset_are_warned_about() {
    for (lines, warned) in [
        ("volumeMode: Block", true),
        ("volumeMode: Block\nblockCleanerCommand: [quick_reset.sh]", true),
        ("volumeMode: Block\nblockCleanerCommand: [/scripts/dd_zero.sh]", false),
        ("volumeMode: Block\ncleanMethod: quick", true),
        ("volumeMode: Block\ncleanMethod: auto", false),
        ("volumeMode: Filesystem", false),
        ("volumeMode: Filesystem\ncleanMethod: quick", false),
    ] {
        let warnings = class_with(lines).warnings;
        assert_eq!(warnings.len(), usize::from(warned), "{lines}");
        let names_it = |text: &String| text.contains("class \"c\" hands out raw devices");
        assert!(warnings.iter().all(names_it), "{warnings:?}");
    }
}
