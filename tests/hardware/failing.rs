//! Disks that fail at a sector.

use serde_json::json;
use support::stage::{is_terminating, name};

use crate::bench::Bench;
use crate::disk::{Disk, Fault, MIB, Place};

const SIZE: u64 = 16 * MIB;
/// In the middle of a MiB, and one of the places that are read back after a wipe.
const BAD: u64 = SAMPLE + 2048;
const SAMPLE: u64 = SIZE / 256 * 56;
/// The write that includes it.
const WRITE: u64 = SAMPLE / MIB * MIB;

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
        bench.log().matches("cleaning failed").count() >= 2
    });
    let kept = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&kept) && bench.is_kept(&bound));
    assert_eq!(bench.provisioner(), process, "the provisioner lives");

    bench.with_vm(|vm| {
        vm.pull(&disk)?;
        vm.plug(&disk, place)
    });
    bench.offered_again(&path, &bound);
    assert!(disk.is_zero());
}

#[test]
fn a_write_to_an_nvme_disk_that_fails_is_named() {
    let words = format!("cannot write the device at byte {WRITE}:");
    fails(Place::Nvme(16), &["/scripts/shred.sh", "1"], Fault::Write, &words);
}

#[test]
fn a_write_to_a_scsi_disk_that_fails_is_named() {
    let words = format!("cannot write the device at byte {WRITE}:");
    fails(Place::Scsi(1), &["/scripts/shred.sh", "1"], Fault::Write, &words);
}

#[test]
fn a_read_after_the_wipe_that_fails_is_named() {
    let words = format!("cannot read the device at byte {SAMPLE}:");
    fails(Place::Nvme(16), &["/scripts/dd_zero.sh"], Fault::Read, &words);
}

/// Where the disk fails to zero or to discard a range by itself, zeros are written.
fn is_written(method: &str, fault: Fault) {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": method }));
    let place = Place::Nvme(16);
    let disk: Disk = bench.disk("failing", SIZE);
    let path = place.offer(&dir);
    bench.power_on(&[(&disk.failing(fault, BAD), place)]);
    let bound = bench.stage.used(&bench.stage.bind("claim", &path));
    bench.stage.delete_claim("claim");
    bench.offered_again(&path, &bound);
    assert!(disk.is_zero());
}

#[test]
fn a_disk_that_fails_to_zero_by_itself_is_written() {
    is_written("zero", Fault::Zero);
}

#[test]
fn a_disk_that_fails_to_discard_is_written() {
    is_written("discard", Fault::Discard);
}
