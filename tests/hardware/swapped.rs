//! Another disk is at the path of the one that the PV was made for.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::stage::{annotation, is_terminating, name};

use crate::bench::Bench;
use crate::disk::{Disk, MIB, Place};

const SIZE: u64 = 16 * MIB;

/// One place, the disk that is bound there, and a stranger of the same size and model.
struct Swap {
    bench: Bench,
    place: Place,
    path: PathBuf,
    own: Disk,
    stranger: Disk,
    before: Vec<u8>,
    bound: PersistentVolume,
}

impl Swap {
    fn set(place: Place, command: [&str; 2]) -> Option<Self> {
        let bench = Bench::set()?;
        let dir = bench.raw_class("raw", &json!({ "blockCleanerCommand": command }));
        let own = bench.disk("own", SIZE);
        let stranger = bench.disk("stranger", SIZE);
        let path = place.offer(&dir);
        bench.power_on(&[(&own.slow(), place)]);
        let bound = bench.stage.used(&bench.stage.bind("claim", &path));
        let before = stranger.content();
        Some(Self { bench, place, path, own, stranger, before, bound })
    }

    fn swap(&self) {
        self.bench.with_vm(|vm| {
            vm.pull(&self.own)?;
            vm.plug(&self.stranger, self.place)
        });
    }

    /// The stranger is reported and stays as it is, also when it was there for some time.
    fn is_never_touched(&self) {
        let text = self.bench.stage.event("VolumeIdentityMismatch", "nothing was touched");
        let recorded = annotation(&self.bound, "local-volume-provisioner/identity").unwrap();
        assert!(text.contains(recorded), "the recorded identity is named: {text}");
        self.bench.stays(&self.bound);
        assert!(self.stranger.content() == self.before, "the stranger's data was touched");
    }

    /// The recorded disk is put back, and cleaned.
    fn put_back(self) {
        self.bench.with_vm(|vm| {
            vm.pull(&self.stranger)?;
            vm.plug(&self.own, self.place)
        });
        self.bench.offered_again(&self.path, &self.bound);
        assert!(self.own.is_zero());
        self.bench.cut_power();
        assert!(self.stranger.content() == self.before, "the stranger's data was touched");
    }
}

fn while_bound(place: Place) {
    let swap = or_skip!(Swap::set(place, ["/scripts/dd_zero.sh", "1"]));
    swap.swap();
    swap.bench.stage.event("VolumeIdentityMismatch", "another disk is at its path");
    swap.bench.stage.delete_claim("claim");
    swap.is_never_touched();
    swap.put_back();
}

fn while_released(place: Place) {
    let swap = or_skip!(Swap::set(place, ["/scripts/dd_zero.sh", "1"]));
    let stage = &swap.bench.stage;
    let paused = |value| json!({ "metadata": { "annotations": { "local-volume-provisioner/paused": value } } });
    stage.patch_pv(&name(&swap.bound), &paused(Some("true")));
    stage.delete_claim("claim");
    stage.in_phase(&name(&swap.bound), "Released");
    swap.swap();
    stage.patch_pv(&name(&swap.bound), &paused(None));
    swap.is_never_touched();
    assert_eq!(swap.own.left() as u64 * 4096, SIZE, "and the right one, which was pulled in time");
    swap.put_back();
}

fn in_mid_wipe(place: Place) {
    let swap = or_skip!(Swap::set(place, ["/scripts/shred.sh", "8"]));
    let stage = &swap.bench.stage;
    let full = swap.own.beginning();
    // So that it lasts: a busy host takes its time to pull a disk.
    swap.bench.with_vm(|vm| vm.slow_down_to(MIB));
    stage.delete_claim("claim");
    stage.eventually("the wipe is on its way", || swap.own.beginning() != full);
    swap.swap();
    assert!(!swap.own.is_zero(), "it was pulled before the end");
    stage.event("VolumeFailedDelete", "the device at byte");
    swap.is_never_touched();
    assert!(
        stage.pv(&name(&swap.bound)).is_some_and(|pv| is_terminating(&pv)),
        "no claim can bind it"
    );
    swap.put_back();
}

#[test]
fn an_nvme_disk_swapped_while_bound_leaves_the_other_untouched() {
    while_bound(Place::Nvme(16));
}

#[test]
fn a_scsi_disk_swapped_while_bound_leaves_the_other_untouched() {
    while_bound(Place::Scsi(1));
}

#[test]
fn an_nvme_disk_swapped_while_released_leaves_the_other_untouched() {
    while_released(Place::Nvme(16));
}

#[test]
fn an_nvme_disk_swapped_in_mid_wipe_leaves_the_other_untouched() {
    in_mid_wipe(Place::Nvme(16));
}

#[test]
fn a_scsi_disk_swapped_in_mid_wipe_leaves_the_other_untouched() {
    in_mid_wipe(Place::Scsi(1));
}
