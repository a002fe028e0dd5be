//! A disk is pulled out while it is being wiped.

use serde_json::json;
use support::stage::{is_terminating, name};

use crate::bench::Bench;
use crate::disk::{MIB, Place};

fn pulled_and_put_back(place: Place) {
    let bench = or_skip!(Bench::set());
    let dir = bench.raw_class("raw", &json!({ "blockCleanerCommand": ["/scripts/shred.sh", "8"] }));
    let pulled = bench.disk("pulled", 16 * MIB);
    let other = bench.disk("other", 16 * MIB);
    let elsewhere = Place::Nvme(20);
    let path = place.offer(&dir);
    let path_of_other = elsewhere.offer(&dir);
    bench.power_on(&[(&pulled.slow(), place), (&other, elsewhere)]);
    let stage = &bench.stage;
    let bound = stage.used(&stage.bind("claim", &path));
    let process = bench.provisioner();
    let full = pulled.beginning();
    // So that it lasts: a busy host takes its time to pull a disk.
    bench.with_vm(|vm| vm.slow_down_to(MIB));
    stage.delete_claim("claim");
    stage.eventually("the wipe is on its way", || pulled.beginning() != full);
    bench.with_vm(|vm| vm.pull(&pulled));
    assert!(!pulled.is_zero(), "it was pulled before the end");
    let text = stage.event("VolumeFailedDelete", "the device at byte");
    let kept = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&kept) && bench.is_kept(&bound), "no claim can bind it: {text}");

    // Other volumes are not affected.
    let bound_other = stage.used(&stage.bind("another", &path_of_other));
    stage.delete_claim("another");
    bench.offered_again(&path_of_other, &bound_other);
    assert!(other.is_zero());
    assert_eq!(bench.provisioner(), process, "the provisioner lives");

    bench.with_vm(|vm| {
        vm.slow_down_to(0)?;
        vm.plug(&pulled.slow(), place)
    });
    bench.offered_again(&path, &bound);
    assert!(pulled.is_zero());
    assert_eq!(bench.provisioner(), process);
}

#[test]
fn an_nvme_disk_pulled_in_mid_wipe_is_cleaned_when_it_is_back() {
    pulled_and_put_back(Place::Nvme(16));
}

#[test]
fn a_scsi_disk_pulled_in_mid_wipe_is_cleaned_when_it_is_back() {
    pulled_and_put_back(Place::Scsi(1));
}
