//! Disks with large sectors, and what lies on disks: partitions, arrays, logical volumes, second paths.

use std::fs;

use serde_json::json;
use support::stage::name;

use crate::bench::Bench;
use crate::disk::{Disk, MIB, Place};

const SIZE: u64 = 16 * MIB;

#[test]
fn disks_with_sectors_of_4_kib_are_cleaned_by_all_methods() {
    let bench = or_skip!(Bench::set());
    let methods = ["quick", "zero", "overwrite", "discard"];
    let disks = methods.map(|method| bench.disk(method, SIZE).with_sectors(4096));
    let places = [Place::Nvme(16), Place::Nvme(17), Place::Nvme(18), Place::Scsi(1)];
    let paths = [0, 1, 2, 3].map(|n| {
        let dir = bench.raw_class(methods[n], &json!({ "cleanMethod": methods[n] }));
        places[n].offer(&dir)
    });
    let plugs: Vec<_> = disks.iter().zip(places).collect();
    bench.power_on(&plugs);
    for ((method, disk), path) in methods.iter().zip(&disks).zip(&paths) {
        let bound = bench.stage.used(&bench.stage.bind(method, path));
        bench.stage.delete_claim(method);
        bench.offered_again(path, &bound);
        assert!(disk.is_zero(), "{method}");
    }
}

#[test]
fn a_partition_is_cleaned_and_its_neighbour_and_the_table_stay() {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": "zero" }));
    let disk = bench.disk("parted", SIZE);
    disk.partition("label: gpt\nstart=2048, size=8192\nstart=10240, size=8192\n");
    let before = disk.content();
    let place = Place::Nvme(16);
    let path = place.offer_partition(&dir, 1);
    bench.power_on(&[(&disk, place)]);
    let bound = bench.stage.used(&bench.stage.bind("claim", &path));
    // The disk below it is no volume of its own, as long as the partition is one.
    let whole = place.offer(&dir);
    bench.skipped(&whole, "DuplicateDevice");
    fs::remove_file(whole).unwrap();
    bench.stage.delete_claim("claim");
    bench.offered_again(&path, &bound);
    let (start, end) = (2048 * 512, (2048 + 8192) * 512);
    let after = disk.content();
    assert!(after[start..end].iter().all(|byte| *byte == 0));
    assert!(after[..start] == before[..start], "the table is touched");
    assert!(after[end..] == before[end..], "the neighbour is touched");
}

/// The disk is in use when it is released: it is cleaned once that has ended, and not before. The
/// event has the command that ends it.
fn waits_while_in_use(make: &str, remedy: &str, remove: &str) {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": "zero" }));
    let (disk, place) = (bench.disk("member", SIZE), Place::Nvme(16));
    let path = place.offer(&dir);
    bench.power_on(&[(&disk, place)]);
    let stage = &bench.stage;
    let bound = stage.used(&stage.bind("claim", &path));
    bench.run(make);
    let before = disk.content();
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.event("VolumeInUse", remedy);
    bench.stays(&bound);
    assert!(disk.content() == before, "what is in use is touched");
    bench.run(remove);
    bench.offered_again(&path, &bound);
    assert!(disk.is_zero());
}

#[test]
fn a_member_of_an_md_array_waits_until_the_array_is_stopped() {
    let disk = Place::Nvme(16).path();
    let make = format!(
        "mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 {} missing",
        disk.display()
    );
    let stop = "mdadm --stop /dev/md0";
    waits_while_in_use(&make, stop, stop);
}

#[test]
fn a_disk_below_a_logical_volume_waits_until_that_is_deactivated() {
    // What lvchange does; its own UUIDs begin with LVM-.
    let make = format!(
        "dmsetup --noudevsync create vg-lv --uuid LVM-of-a-test --table '0 8192 linear {} 2048'",
        Place::Nvme(16).path().display()
    );
    let remedy = "dmsetup remove /dev/dm-";
    waits_while_in_use(&make, remedy, "dmsetup --noudevsync remove vg-lv");
}

#[test]
fn two_paths_to_one_disk_are_one_volume() {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": "zero" }));
    let disk = bench.disk("disk", SIZE).with_wwn(0x5000_c500_1234_5678);
    let again: Disk = disk.by_another_path("again");
    let places = [Place::Scsi(1), Place::Scsi(2)];
    let first = places[0].offer(&dir);
    bench.power_on(&[(&disk, places[0]), (&again, places[1])]);
    let stage = &bench.stage;
    let bound = stage.used(&stage.bind("claim", &first));
    let second = places[1].offer(&dir);
    bench.skipped(&second, "DuplicateDevice");
    stage.delete_claim("claim");
    bench.offered_again(&first, &bound);
    assert!(disk.is_zero());
    assert!(stage.pvs_at(&second).is_empty());
}
