use proptest::prelude::*;

use super::*;

fn numbers(text: &str) -> BTreeSet<DeviceNumber> {
    text.split_whitespace().map(|number| DeviceNumber::parse(number).unwrap()).collect()
}

/// A device and what it lies on.
fn device(number: &str, below: &str) -> Footprint {
    Footprint::Device {
        number: DeviceNumber::parse(number).unwrap(),
        below: numbers(&format!("{number} {below}")),
        wwid: None,
    }
}

fn disk(number: &str, name: &str) -> Footprint {
    let number = DeviceNumber::parse(number).unwrap();
    Footprint::Device { number, below: BTreeSet::from([number]), wwid: Some(name.to_owned()) }
}

/// A directory of a filesystem and what that lies on.
fn filesystem(fs: &str, root: &str, devices: &str) -> Footprint {
    Footprint::Filesystem {
        devices: numbers(devices),
        fs: DeviceNumber::parse(fs).unwrap(),
        root: root.into(),
    }
}

#[test]
fn volumes_that_share_storage_overlap() {
    use Overlap::{Nested, PartOf, Same, SameWwid};
    for (what, a, b, expected) in [
        ("two links to a disk", device("8:0", ""), device("8:0", ""), Some(Same)),
        ("two disks", disk("8:0", "a"), disk("8:16", "b"), None),
        ("two disks without a name", device("8:0", ""), device("8:16", ""), None),
        ("two paths to a disk", disk("8:0", "a"), disk("8:16", "a"), Some(SameWwid)),
        ("partition and disk", device("8:1", "8:0"), disk("8:0", "a"), Some(PartOf)),
        ("two partitions", device("8:1", "8:0"), device("8:2", "8:0"), None),
        (
            "volume and its partition",
            device("252:0", "8:1 8:0"),
            device("8:1", "8:0"),
            Some(PartOf),
        ),
        ("volume and the disk below", device("252:0", "8:1 8:0"), device("8:0", ""), Some(PartOf)),
        ("volume and the other partition", device("252:0", "8:1 8:0"), device("8:2", "8:0"), None),
        ("two volumes of a group", device("252:0", "8:1 8:0"), device("252:1", "8:1 8:0"), None),
        ("array and its leg", device("9:0", "8:0 8:16"), device("8:16", ""), Some(PartOf)),
        ("multipath and a path", device("252:3", "8:0 8:16"), disk("8:0", "a"), Some(PartOf)),
        (
            "filesystem and device",
            filesystem("8:1", "/", "8:1 8:0"),
            device("8:1", "8:0"),
            Some(PartOf),
        ),
        ("filesystem and disk", filesystem("8:1", "/", "8:1 8:0"), device("8:0", ""), Some(PartOf)),
        (
            "subdirectory and device",
            filesystem("8:1", "/x", "8:1 8:0"),
            device("8:1", "8:0"),
            Some(PartOf),
        ),
        (
            "filesystem and the next partition",
            filesystem("8:1", "/", "8:1 8:0"),
            device("8:2", "8:0"),
            None,
        ),
        (
            "btrfs and its second device",
            filesystem("0:50", "/", "8:0 8:16"),
            device("8:16", ""),
            Some(PartOf),
        ),
        (
            "one filesystem twice",
            filesystem("8:1", "/", "8:1"),
            filesystem("8:1", "/", "8:1"),
            Some(Same),
        ),
        (
            "bind of a directory",
            filesystem("8:1", "/", "8:1"),
            filesystem("8:1", "/x", "8:1"),
            Some(Nested),
        ),
        (
            "bind in a bind",
            filesystem("8:1", "/x", "8:1"),
            filesystem("8:1", "/x/y", "8:1"),
            Some(Nested),
        ),
        ("side by side", filesystem("8:1", "/x", "8:1"), filesystem("8:1", "/xy", "8:1"), None),
        (
            "two partitions' filesystems",
            filesystem("8:1", "/", "8:1 8:0"),
            filesystem("8:2", "/", "8:2 8:0"),
            None,
        ),
        ("two tmpfs", filesystem("0:50", "/", ""), filesystem("0:51", "/", ""), None),
        ("tmpfs and a disk", filesystem("0:50", "/", ""), device("8:0", ""), None),
        (
            "removed directories",
            filesystem("0:50", "/x//deleted", ""),
            filesystem("0:50", "/x", ""),
            Some(Nested),
        ),
    ] {
        assert_eq!(overlap(&a, &b), expected, "{what}");
        assert_eq!(overlap(&b, &a), expected, "{what}, the other way round");
    }
}

fn any_number() -> impl Strategy<Value = DeviceNumber> {
    (0_u32..2, 0_u32..4).prop_map(|(major, minor)| DeviceNumber { major, minor })
}

fn any_footprint() -> impl Strategy<Value = Footprint> {
    let numbers = || proptest::collection::btree_set(any_number(), 0..4);
    prop_oneof![
        (numbers(), any_number(), "(/[ab]){1,3}").prop_map(|(devices, fs, root)| {
            Footprint::Filesystem { devices, fs, root: root.into() }
        }),
        (any_number(), numbers(), proptest::option::of("[ab]")).prop_map(
            |(number, mut below, wwid)| {
                below.insert(number);
                Footprint::Device { number, below, wwid }
            }
        ),
    ]
}

proptest! {
    #[test]
    fn the_order_does_not_matter(a in any_footprint(), b in any_footprint()) {
        prop_assert_eq!(overlap(&a, &b), overlap(&b, &a));
    }

    #[test]
    fn everything_overlaps_itself(a in any_footprint()) {
        prop_assert!(overlap(&a, &a).is_some());
    }
}
