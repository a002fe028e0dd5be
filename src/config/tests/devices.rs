//! `devices`: the rule for the disks of a class.

use super::{loaded, messages};
use crate::config::*;
use crate::types::VolumeMode;

/// The value of `devices` in a class with `binding: disk`, and the message.
const OF_DEVICES: &[(&str, &str)] = &[
    (
        "nvme*",
        "class \"c\": devices is \"nvme*\"; write a map of the rule's keys, such as {match: [/dev/disk/by-id/nvme-*], minSize: 500Gi}",
    ),
    (
        "[/dev/disk/by-id/a]",
        "class \"c\": devices[0] is \"/dev/disk/by-id/a\"; write a map of the rule's keys, such as {match: [/dev/disk/by-id/nvme-*], minSize: 500Gi}",
    ),
    (
        "{}",
        "class \"c\": devices.match is not set; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: , minSize: 1Gi}",
        "class \"c\": devices.match is not set; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: []}",
        "class \"c\": devices.match is []; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: ['']}",
        "class \"c\": devices.match[0] is \"\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: /dev/disk/by-id/a}",
        "class \"c\": devices.match is \"/dev/disk/by-id/a\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-id/a*, /dev/sd*]}",
        "class \"c\": devices.match is \"/dev/sd*\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-*/a]}",
        "class \"c\": devices.match is \"/dev/disk/by-*/a\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-id/a/b]}",
        "class \"c\": devices.match is \"/dev/disk/by-id/a/b\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-uuid/*]}",
        "class \"c\": devices.match is \"/dev/disk/by-uuid/*\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-id/]}",
        "class \"c\": devices.match is \"/dev/disk/by-id/\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-id/a, '/dev/disk/by-id/[a']}",
        "class \"c\": devices.match[1] is \"/dev/disk/by-id/[a\"; write a list of globs of links below /dev/disk, such as [/dev/disk/by-id/nvme-*]",
    ),
    (
        "{match: [/dev/disk/by-id/a], exclude: [sda]}",
        "class \"c\": devices.exclude is \"sda\"; write a list of globs of links, such as [/dev/disk/by-id/nvme-eui.*]",
    ),
    (
        "{match: [/dev/disk/by-id/a], minSize: 500GiB}",
        "class \"c\": devices.minSize is \"500GiB\"; write a size, such as 500Gi or 2T",
    ),
    (
        "{match: [/dev/disk/by-id/a], maxSize: 1.5Ti}",
        "class \"c\": devices.maxSize is \"1.5Ti\"; write a size of at least minSize, such as 500Gi or 2T",
    ),
    (
        "{match: [/dev/disk/by-id/a], minSize: 2Ti, maxSize: 2T}",
        "class \"c\": devices.maxSize is \"2T\"; write a size of at least minSize, such as 500Gi or 2T",
    ),
    (
        "{match: [/dev/disk/by-id/a], rotational: often}",
        "class \"c\": devices.rotational is \"often\"; write true or false",
    ),
    (
        "{match: [/dev/disk/by-id/a], model: '[a'}",
        "class \"c\": devices.model is \"[a\"; write globs separated by commas, with \"_\" for blanks, such as Samsung_SSD_*",
    ),
    (
        "{match: [/dev/disk/by-id/a], filesystem: btrfs}",
        "class \"c\": devices.filesystem is \"btrfs\"; write ext4 or xfs",
    ),
    (
        "{match: [/dev/disk/by-id/a], filesystem: xfs, mountOptions: noatime}",
        "class \"c\": devices.mountOptions is \"noatime\"; write a list of mount options, such as [noatime]",
    ),
    (
        "{match: [/dev/disk/by-id/a], mountOptions: [noatime]}",
        "class \"c\": devices.mountOptions requires devices.filesystem; set it, or remove mountOptions",
    ),
    (
        "{match: [/dev/disk/by-id/a], filesystem: xfs}, volumeMode: Block",
        "class \"c\": devices.filesystem makes mounted volumes; remove volumeMode: Block and fsType, or filesystem",
    ),
    (
        "{match: [/dev/disk/by-id/a], filesystem: xfs}, fsType: xfs",
        "class \"c\": devices.filesystem makes mounted volumes; remove volumeMode: Block and fsType, or filesystem",
    ),
    (
        "{match: [/dev/disk/by-id/a], approve: Maybe}",
        "class \"c\": devices.approve is \"Maybe\"; write Plan or Auto",
    ),
    (
        "{match: [/dev/disk/by-id/a], exclud: [/dev/disk/by-id/b]}",
        "class \"c\": devices: key \"exclud\" is unknown; the nearest known key is exclude",
    ),
    (
        "{match: [/dev/disk/by-id/a], exclude: [/dev/disk/by-id/b], Exclude: []}",
        "class \"c\": devices: exclude is set as Exclude and as exclude; keep one of them",
    ),
];

#[test]
fn bad_value_of_a_rule_is_named_with_the_class_and_the_remedy() {
    messages::check(OF_DEVICES.iter().map(|(rule, expected)| {
        let dirs = "hostDir: /mnt/c, mountDir: /mnt/c";
        let text = format!("c: {{{dirs}, binding: disk, devices: {rule}}}");
        ("storageClassMap".into(), text, *expected)
    }));
}

#[test]
fn rule_requires_that_claims_are_bound_to_disks() {
    for binding in ["", ", binding: path"] {
        let rule = "{match: [/dev/disk/by-id/a]}";
        let class = format!("c: {{hostDir: /c, mountDir: /c, devices: {rule}{binding}}}");
        let expected = "class \"c\": devices requires binding: disk; add it";
        messages::check([("storageClassMap".into(), class, expected)]);
    }
}

#[test]
fn rule_offers_empty_volumes_only() {
    for policy in ["", ", discoveryPolicy: Any"] {
        let rule = "devices: {match: [/dev/disk/by-path/a]}, binding: disk";
        let class = format!("c: {{hostDir: /c, mountDir: /c, {rule}{policy}}}");
        let loaded = loaded(&[("storageClassMap", &class)]);
        assert_eq!(loaded.faults, vec![]);
        let policy = loaded.config.classes["c"].discovery_policy;
        assert_eq!(policy, DiscoveryPolicy::EmptyOnly);
    }
}

#[test]
fn rule_is_read_in_any_spelling() {
    let rule = "{Match: ['/dev/disk/by-id/a*, /dev/disk/by-path/b'], EXCLUDE: , minSize: 1000000, maxSize: 1T, rotational: no, approve: Auto}";
    let class = format!("c: {{hostDir: /c, mountDir: /c, binding: disk, Devices: {rule}}}");
    let loaded = loaded(&[("storageClassMap", &class)]);
    assert_eq!((loaded.faults, loaded.warnings), (vec![], vec![]));
    let rule = loaded.config.classes["c"].devices.clone().unwrap();
    assert!(rule.matches("/dev/disk/by-id/ab") && rule.matches("/dev/disk/by-path/b"));
    assert!(!rule.matches("/dev/disk/by-id/b") && rule.exclude.is_empty());
    assert_eq!(rule.min_size, Some(Bytes(1_000_000)));
    assert_eq!(rule.max_size, Some(Bytes(1_000_000_000_000)));
    assert_eq!(rule.rotational, Some(false));
    assert_eq!(rule.approve, Approve::Auto);
}

/// The blocks of a page that are YAML.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.filter_map(|it| it.split("```").next()).collect()
}

#[test]
fn examples_of_the_page_have_no_fault_and_no_warning() {
    let page = include_str!("../../../docs/devices.md");
    let examples = blocks(page);
    let mut modes = Vec::new();
    for example in examples {
        let loaded = loaded(&[("storageClassMap", example)]);
        assert_eq!((loaded.faults, loaded.warnings), (vec![], vec![]));
        let classes = loaded.config.classes.into_values();
        modes.extend(classes.filter(|it| it.devices.is_some()).map(|it| it.volume_mode));
    }
    let filesystem = VolumeMode::Filesystem;
    assert_eq!(modes, [VolumeMode::Block, filesystem, filesystem]);
}
