//! Names of disks and partitions, by the kernel or by udev.

use super::*;

#[test]
fn a_disks_name_is_found_wherever_its_driver_puts_it() {
    for (what, attributes, udev, wwid) in [
        (
            "nvme",
            &[("wwid", "eui.0025388b710116a1"), ("device/serial", "S1")][..],
            "",
            Some("eui.0025388b710116a1"),
        ),
        (
            "scsi",
            &[("device/wwid", "naa.5000c500A1b2c3d4")],
            "E:ID_WWN=0x1",
            Some("naa.5000c500A1b2c3d4"),
        ),
        (
            "all zero",
            &[("device/wwid", "naa.0000000000000000"), ("serial", "S1")],
            "",
            Some("serial..S1"),
        ),
        (
            "padded",
            &[("device/wwid", "t10.ATA     Disk X       SN1  ")],
            "",
            Some("t10.ATA_Disk_X_SN1"),
        ),
        ("udev", &[("ro", "0")], "S:disk/x\nE:ID_WWN=0x5000C5\nE:ID_SERIAL=a", Some("naa.5000c5")),
        (
            "udev, longer",
            &[("ro", "0")],
            "E:ID_WWN=0x5\nE:ID_WWN_WITH_EXTENSION=0x5f",
            Some("naa.5f"),
        ),
        ("virtio", &[("serial", "disk-7")], "E:ID_SERIAL=disk-7", Some("serial..disk-7")),
        ("virtio without", &[("serial", "")], "", None),
        (
            "mmc",
            &[("device/serial", "0x1a2b"), ("device/name", "SD 16G")],
            "",
            Some("serial.SD_16G.0x1a2b"),
        ),
        ("page 0x80", &[("device/vpd_pg80", "\0\u{1}\0\u{4}AB12")], "", Some("serial..AB12")),
        (
            "cheap enclosure",
            &[("device/serial", "000000000000"), ("device/model", "USB")],
            "E:ID_SERIAL=0000",
            None,
        ),
        (
            "usb through udev",
            &[("device/model", "USB")],
            "E:ID_SERIAL=Maker_Stick_42-0:0",
            Some("udev.Maker_Stick_42-0:0"),
        ),
        ("nothing", &[("ro", "0")], "", None),
    ] {
        let fixture = Fixture::new();
        fixture.device("disk", "8:0", attributes).udev("8:0", udev);
        fixture.device("disk/disk1", "8:1", &[("partition", "1")]);
        assert_eq!(fixture.facts("8:0").wwid.as_deref(), wwid, "{what}");
        assert_eq!(
            fixture.facts("8:1").wwid.as_deref(),
            wwid,
            "{what}: a partition has its disk's"
        );
    }
}

#[test]
fn a_partitions_uuid_comes_from_the_kernel_or_from_udev() {
    let fixture = Fixture::new();
    fixture
        .device("sda", "8:0", &[("uevent", "DEVTYPE=disk")])
        .device("sda/sda1", "8:1", &[("partition", "1"), ("uevent", "PARTN=1\nPARTUUID=aaaa-01")])
        .device("sda/sda2", "8:2", &[("partition", "2"), ("uevent", "PARTN=2")])
        .device("sda/sda3", "8:3", &[("partition", "3")])
        .udev("8:0", "E:ID_PART_ENTRY_UUID=never")
        .udev("8:1", "E:ID_PART_ENTRY_UUID=older")
        .udev("8:2", "E:ID_PART_ENTRY_UUIDX=no\nE:ID_PART_ENTRY_UUID=BBBB-02");
    let uuid = |number| fixture.facts(number).partition_uuid.clone();
    assert_eq!(uuid("8:0"), None);
    assert_eq!(uuid("8:1").as_deref(), Some("aaaa-01"));
    assert_eq!(uuid("8:2").as_deref(), Some("bbbb-02"));
    assert_eq!(uuid("8:3"), None);
}

#[test]
fn a_partition_has_its_own_size_and_its_disks_sequence_number() {
    let fixture = Fixture::new();
    fixture.device("vda", "254:0", &[("diskseq", "17"), ("size", "4096")]).device(
        "vda/vda1",
        "254:1",
        &[("partition", "1"), ("size", "8")],
    );
    for (number, size) in [("254:0", 2 << 20), ("254:1", 4096)] {
        let facts = fixture.facts(number);
        assert_eq!((facts.diskseq, facts.size), (Some(17), Some(size)));
    }
}
