mod names;

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::host::Machine;
use crate::host::users::device_user;

/// A tree that looks like `/sys` and udev's database.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn sysfs(&self) -> Sysfs {
        // No device nodes: those of the machine are about other devices.
        Sysfs {
            dev: self.dir.path().join("dev"),
            ..Sysfs::new(self.dir.path().join("sys"), self.dir.path().join("udev"))
        }
    }

    /// A device at `place` below `sys/devices`, with its attributes.
    fn device(&self, place: &str, number: &str, attributes: &[(&str, &str)]) -> &Self {
        let sys = self.dir.path().join("sys");
        let dir = sys.join("devices").join(place);
        for (attribute, value) in [("dev", number)].iter().chain(attributes) {
            let file = dir.join(attribute);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        for (of, link) in
            [("dev/block", number), ("class/block", dir.file_name().unwrap().to_str().unwrap())]
        {
            fs::create_dir_all(sys.join(of)).unwrap();
            symlink(&dir, sys.join(of).join(link)).unwrap();
        }
        self
    }

    /// Puts the device at `upper` on the one at `lower`.
    fn stack(&self, upper: &str, lower: &str) -> &Self {
        let devices = self.dir.path().join("sys/devices");
        for (at, relation, other) in [(upper, "slaves", lower), (lower, "holders", upper)] {
            let dir = devices.join(at).join(relation);
            fs::create_dir_all(&dir).unwrap();
            let other = devices.join(other);
            symlink(&other, dir.join(other.file_name().unwrap())).unwrap();
        }
        self
    }

    fn udev(&self, number: &str, properties: &str) -> &Self {
        let dir = self.dir.path().join("udev");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("b{number}")), properties).unwrap();
        self
    }

    fn facts(&self, number: &str) -> Arc<DeviceFacts> {
        self.sysfs().device(parse(number)).unwrap()
    }

    fn below(&self, number: &str) -> String {
        let numbers: Vec<String> =
            self.facts(number).below.iter().map(ToString::to_string).collect();
        numbers.join(" ")
    }
}

fn parse(number: &str) -> DeviceNumber {
    DeviceNumber::parse(number).unwrap()
}

fn two_disks() -> Fixture {
    let fixture = Fixture::new();
    fixture
        .device("pci/sda", "8:0", &[("queue/rotational", "1"), ("ro", "0")])
        .device("pci/sda/sda1", "8:1", &[("partition", "1"), ("start", "2048"), ("ro", "1")])
        .device("pci/sda/sda2", "8:2", &[("partition", "2"), ("start", "4096")])
        .device("pci/sdb", "8:16", &[("queue/rotational", "0")]);
    fixture
}

#[test]
fn a_partition_lies_on_its_disk_and_not_on_its_neighbour() {
    let fixture = two_disks();
    let disk = fixture.facts("8:0");
    assert_eq!((disk.name.as_str(), disk.disk, disk.partition_start), ("sda", parse("8:0"), None));
    assert!(disk.rotational && !disk.read_only);
    let partition = fixture.facts("8:1");
    assert_eq!(partition.name, "sda1");
    assert_eq!((partition.disk, partition.partition_start), (parse("8:0"), Some(2048)));
    assert!(partition.rotational && partition.read_only);
    assert!(!fixture.facts("8:16").rotational);
    assert_eq!(fixture.below("8:0"), "8:0");
    assert_eq!(fixture.below("8:1"), "8:0 8:1");
    assert_eq!(fixture.below("8:2"), "8:0 8:2");
}

#[test]
fn stacked_devices_lie_on_all_below_them() {
    let fixture = two_disks();
    fixture
        .device("virtual/dm-0", "252:0", &[("dm/uuid", "LVM-abcDEF")])
        .device("virtual/md0", "9:0", &[("md/uuid", "3AAA0122:29827CFA:5331AD66:CA767371")])
        .device("virtual/md0/md0p1", "259:0", &[("partition", "1")])
        .device("virtual/dm-1", "252:1", &[("dm/uuid", "CRYPT-LUKS2-x")])
        .stack("virtual/dm-0", "pci/sda/sda1")
        .stack("virtual/md0", "pci/sda/sda2")
        .stack("virtual/md0", "pci/sdb")
        .stack("virtual/dm-1", "virtual/md0/md0p1");
    assert_eq!(fixture.below("252:0"), "8:0 8:1 252:0");
    assert_eq!(fixture.below("9:0"), "8:0 8:2 8:16 9:0");
    assert_eq!(fixture.below("252:1"), "8:0 8:2 8:16 9:0 252:1 259:0");
    assert_eq!(fixture.facts("8:1").holders, ["dm-0"]);
    assert_eq!(fixture.facts("8:0").holders, [] as [String; 0]);
    assert_eq!(fixture.facts("252:0").dm_uuid.as_deref(), Some("LVM-abcDEF"));
    assert_eq!(fixture.facts("9:0").md_uuid.as_deref(), Some("3aaa012229827cfa5331ad66ca767371"));
    assert_eq!(fixture.facts("259:0").md_uuid, fixture.facts("9:0").md_uuid, "of the disk");
    fixture
        .device("virtual/md1", "9:1", &[("md/level", "raid1")])
        .udev("9:1", "E:MD_UUID=3aaa0122:29827cfa:5331ad66:ca767371\n")
        .udev("8:16", "E:MD_UUID=3aaa0122:29827cfa:5331ad66:ca767371\n");
    assert_eq!(fixture.facts("9:1").md_uuid, fixture.facts("9:0").md_uuid, "by udev");
    assert_eq!(fixture.facts("8:16").md_uuid, None, "a member is not the array");
    fixture.device("virtual/md2", "9:2", &[("md/uuid", "00000000:00000000:00000000:00000000")]);
    assert_eq!(fixture.facts("9:2").md_uuid, None, "the kernel does not write its metadata");
    fixture.udev("9:2", "E:MD_UUID=5f2a7c01:29827cfa:5331ad66:ca767371\n");
    let by_udev = fixture.facts("9:2").md_uuid.clone();
    assert_eq!(by_udev.as_deref(), Some("5f2a7c0129827cfa5331ad66ca767371"), "as mdadm reads it");
}

#[test]
fn hidden_path_of_a_multipath_nvme_disk_is_skipped() {
    let fixture = Fixture::new();
    fixture.device("nvme0n1", "259:1", &[("wwid", "eui.0025388b710116a1")]);
    let hidden = fixture.dir.path().join("sys/devices/nvme0n1/slaves/nvme0c0n1");
    fs::create_dir_all(hidden).unwrap();
    assert_eq!(fixture.below("259:1"), "259:1");
}

#[test]
fn loop_devices_name_their_file_and_lie_on_a_device_below() {
    let fixture = two_disks();
    fixture
        .device(
            "loop0",
            "7:0",
            &[("loop/backing_file", "/images/a b\n.img"), ("loop/offset", "512")],
        )
        .device("loop0/loop0p1", "259:0", &[("partition", "1"), ("start", "8")])
        .device("loop1", "7:1", &[("loop/backing_file", "/dev/sda1")])
        .device("loop2", "7:2", &[("loop/backing_file", "/dev/gone")]);
    symlink(fixture.dir.path().join("sys/class/block"), fixture.dir.path().join("sys/block"))
        .unwrap();
    let facts = fixture.facts("7:0");
    assert_eq!(facts.loop_backing.as_deref(), Some(Path::new("/images/a b\n.img")));
    assert_eq!(facts.loop_offset, 512);
    assert_eq!(fixture.facts("259:0").loop_backing, facts.loop_backing, "of the disk");
    assert_eq!(fixture.below("7:1"), "7:1 8:0 8:1");
    assert_eq!(fixture.below("7:2"), "7:2");
    let over = |number| {
        let sysfs = fixture.sysfs();
        let devices = sysfs.writable_through(fixture.facts(number).number);
        sysfs.loops_over(&devices.unwrap()).unwrap()
    };
    assert_eq!(over("8:1"), ["loop1"]);
    assert_eq!(over("8:0"), ["loop1"], "on a partition of it");
    assert_eq!(over("7:0"), [] as [String; 0]);
    let sysfs = fixture.sysfs();
    let loops = sysfs.loops().unwrap().iter();
    let files: Vec<_> = loops.map(|it| (&*it.name, it.loop_backing.as_deref().unwrap())).collect();
    assert_eq!(
        files,
        [
            ("loop0", Path::new("/images/a b\n.img")),
            ("loop1", Path::new("/dev/sda1")),
            ("loop2", Path::new("/dev/gone")),
        ]
    );
}

#[test]
fn disks_with_the_same_bytes_are_twins() {
    let fixture = Fixture::new();
    let wwid = [("device/wwid", "naa.5000c500a1b2c3d4")];
    let file =
        |offset| [("loop/backing_file", "/images/a"), ("loop/offset", offset), ("size", "8")];
    fixture
        .device("sda", "8:0", &wwid)
        .device("sda/sda1", "8:1", &[("partition", "1")])
        .device("sdb", "8:16", &wwid)
        .device("sdc", "8:32", &[("device/wwid", "naa.5000c500a1b2c3d5")])
        .device("sdd", "8:48", &[("device/serial", "S1")])
        .device("sde", "8:64", &[("device/serial", "S1")])
        .device("dm-0", "253:0", &[("wwid", "naa.5000c500a1b2c3d4")])
        .stack("dm-0", "sda")
        .stack("dm-0", "sdb")
        .device("loop0", "7:0", &file("0"))
        .device("loop1", "7:1", &file("4095"))
        .device("loop2", "7:2", &file("8190"))
        .device("loop3", "7:3", &[("size", "0")]);
    let sys = fixture.dir.path().join("sys");
    fs::create_dir(sys.join("block")).unwrap();
    for disk in ["sda", "sdb", "sdc", "sdd", "sde", "dm-0", "loop0", "loop1", "loop2", "loop3"] {
        symlink(sys.join("devices").join(disk), sys.join("block").join(disk)).unwrap();
    }
    // An NVMe path, which cannot be opened.
    fs::create_dir(sys.join("block/nvme0c0n1")).unwrap();
    for (number, twins) in [
        ("8:0", &["sdb"][..]),
        ("8:1", &["sdb"]),
        ("8:16", &["sda"]),
        ("8:32", &[]),
        // Some machines give all disks one serial number.
        ("8:48", &[]),
        ("253:0", &[]),
        // No driver answers for these, and equal paths may be of two mount namespaces.
        ("7:0", &[]),
        ("7:1", &[]),
        ("7:2", &[]),
        ("7:3", &[]),
    ] {
        let found = fixture.sysfs().twins(&fixture.facts(number).below);
        let names = found.unwrap().into_iter().map(|twin| twin.name.clone());
        assert_eq!(names.collect::<Vec<_>>(), twins, "{number}");
    }
}

#[test]
fn transport_that_several_machines_reach_is_shared() {
    for (place, expected) in [
        ("pci0/host0/rport-0:0-1/target0:0:0/0:0:0:0/block/sda", true),
        ("platform/host3/session1/target3:0:0/3:0:0:0/block/sda", true),
        ("pci0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sda", true),
        ("virtual/nvme-fabrics/ctl/nvme0/nvme0n1", true),
        ("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", true),
        ("pci0/ata1/host0/target0:0:0/0:0:0:0/block/sda", false),
        ("pci0/nvme/nvme0/nvme0n1", false),
        ("virtual/block/loop0", false),
    ] {
        let fixture = Fixture::new();
        fixture.device(place, "8:0", &[]);
        let shared = fixture.facts("8:0").shared_transport;
        assert_eq!(shared, expected, "{place}");
    }
}

#[test]
fn device_is_read_once() {
    let fixture = two_disks();
    let wwid = fixture.dir.path().join("sys/devices/pci/sdb/wwid");
    let sysfs = fixture.sysfs();
    let seen = || sysfs.device(parse("8:16")).unwrap().wwid.clone();
    assert_eq!(seen(), None);
    fs::write(&wwid, "exchanged\n").unwrap();
    let exchanged = Some("exchanged".to_owned());
    assert_eq!(fixture.facts("8:16").wwid, exchanged);
    assert_eq!(seen(), None);
}

#[test]
fn btrfs_lists_its_devices_and_an_unknown_device_is_an_error() {
    let fixture = two_disks();
    let sys = fixture.dir.path().join("sys");
    let devices = sys.join("fs/btrfs/uuid/devices");
    fs::create_dir_all(&devices).unwrap();
    symlink(sys.join("devices/pci/sda/sda1"), devices.join("sda1")).unwrap();
    symlink(sys.join("devices/pci/sdb"), devices.join("sdb")).unwrap();
    let found = fixture.sysfs().btrfs_devices("uuid").unwrap();
    assert_eq!(found, BTreeSet::from([parse("8:1"), parse("8:16")]));
    assert!(fixture.sysfs().btrfs_devices("other").is_err());
    fixture.device("pci/sdc", "8:32", &[("holders", "unreadable")]);
    assert!(fixture.sysfs().device(parse("8:32")).is_err());
    let error = fixture.sysfs().device(parse("99:9")).unwrap_err();
    assert!(error.to_string().contains("device 99:9"), "{error}");
}

proptest! {
    #[test]
    fn device_numbers_survive(major in 0_u32..1 << 12, minor in 0_u32..1 << 20) {
        let number = DeviceNumber { major, minor };
        prop_assert_eq!(DeviceNumber::parse(&number.to_string()), Some(number));
        let raw = nix::sys::stat::makedev(major.into(), minor.into());
        prop_assert_eq!(DeviceNumber::from_rdev(raw), number);
    }
}

/// A tenant writes signatures of LVM or md to a raw device, and the host activates them.
#[test]
fn holder_of_a_device_is_named_with_the_remedy() {
    for (holder, command) in [
        ("dm-3", "; if the host activated it from a tenant's data: dmsetup remove /dev/dm-3"),
        ("md127", "; if the host activated it from a tenant's data: mdadm --stop /dev/md127"),
        ("bcache0", ""),
    ] {
        let fixture = two_disks();
        fixture.device(holder, "253:3", &[]).stack(holder, "pci/sda/sda2");
        fs::create_dir_all(fixture.dir.path().join("sys/block")).unwrap();
        let machine = Machine { sysfs: fixture.sysfs(), ..Machine::default() };
        let user = |number| device_user(&fixture.facts(number), &machine).unwrap();
        let named = format!("sda2 is held by {holder}{command}");
        assert_eq!(user("8:0"), Some(named.clone()));
        assert_eq!(user("8:2"), Some(named));
        assert_eq!(user("8:16"), None);
    }
}
