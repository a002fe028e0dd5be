//! Disks that fail at a sector.

use serde_json::json;
use support::stage::{is_terminating, name};

use crate::bench::Bench;
use crate::disk::{Disk, Fault, MIB, Place};

const SIZE: u64 = 16 * MIB;
/// In the middle of a MiB, and one of the places that are read back after a wipe.
const BAD: u64 = SIZE / 256 * 56 + 2048;

/// Fails to clean a disk with a fault; tells that, with these words; and cleans it when it is sound again.
fn fails(place: Place, command: &[&str], fault: Fault, words: &str) {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "blockCleanerCommand": command }));
    let disk = bench.disk("failing", SIZE);
    let path = place.offer(&dir);
    bench.power_on(&[(&disk.failing(fault, BAD), place)]);
    let stage = &bench.stage;
    let bound = stage.used(&stage.bind("claim", &path));
    let process = bench.provisioner();

    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", words);
    // And again: it does not pass by chance, or by giving up.
    stage.eventually("the next try fails, too", || {
        (bench.log().matches("cleaning failed").count() >= 2).then_some(())
    });
    let kept = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&kept) && bench.is_kept(&bound));
    assert_eq!(bench.provisioner(), process, "the provisioner lives");

    bench.with_vm(|vm| {
        vm.pull(&disk)?;
        vm.plug(&disk, place)
    });
    bench.offered_anew(&path, &bound);
    assert!(disk.is_zero());
}

#[test]
fn a_sector_of_an_nvme_disk_that_cannot_be_written_is_named() {
    let words = format!("cannot write the device at byte {BAD}");
    fails(
        Place::Nvme(16),
        &["/scripts/shred.sh", "1"],
        Fault::Write,
        &words,
    );
}

#[test]
fn a_sector_of_a_scsi_disk_that_cannot_be_written_is_named() {
    let words = format!("cannot write the device at byte {BAD}");
    fails(
        Place::Scsi(1),
        &["/scripts/shred.sh", "1"],
        Fault::Write,
        &words,
    );
}

#[test]
fn a_sector_that_cannot_be_read_back_after_the_wipe_is_named() {
    let words = format!("cannot read the device at byte {BAD}");
    fails(
        Place::Nvme(16),
        &["/scripts/dd_zero.sh"],
        Fault::Read,
        &words,
    );
}

#[test]
fn a_sector_that_the_disk_cannot_zero_by_itself_is_a_failure_too() {
    fails(
        Place::Nvme(16),
        &["/scripts/dd_zero.sh"],
        Fault::Zero,
        "cannot punch the device at byte 0",
    );
}

/// A discard that fails is no failure of a cleanup that then writes the zeros.
#[test]
fn a_disk_that_fails_to_discard_is_written() {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": "discard" }));
    let place = Place::Nvme(16);
    let disk: Disk = bench.disk("failing", SIZE);
    let path = place.offer(&dir);
    bench.power_on(&[(&disk.failing(Fault::Discard, BAD), place)]);
    let bound = bench.stage.used(&bench.stage.bind("claim", &path));
    bench.stage.delete_claim("claim");
    bench.offered_anew(&path, &bound);
    assert!(disk.is_zero());
}
