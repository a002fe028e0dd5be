//! Disks that report a discard that they have not done.

use serde_json::json;

use crate::bench::Bench;
use crate::disk::{MIB, Place};

const SIZE: u64 = 16 * MIB;

/// Cleans a disk of each kind that ignores discards. What is left of its data?
fn cleaned_by(method: &str) -> Option<[usize; 2]> {
    let bench = Bench::set()?;
    let dir = bench.raw_class("raw", &json!({ "cleanMethod": method }));
    let places = [Place::Nvme(16), Place::Scsi(1)];
    let disks = ["nvme", "scsi"].map(|name| bench.disk(name, SIZE));
    let liars = disks.clone().map(|disk| disk.ignoring_discards());
    let paths = places.map(|place| place.offer(&dir));
    bench.power_on(&[(&liars[0], places[0]), (&liars[1], places[1])]);
    for (disk, place) in disks.iter().zip(places) {
        // It does report it: otherwise there is nothing to detect.
        let device = place.path();
        bench.run(&format!("blkdiscard {}", device.display()));
        assert_eq!(disk.left() as u64 * 4096, SIZE, "{place:?} ignores discards");
    }
    let stage = &bench.stage;
    for (claim, path) in ["a", "b"].into_iter().zip(&paths) {
        let bound = stage.used(&stage.bind(claim, path));
        stage.delete_claim(claim);
        bench.offered_again(path, &bound);
    }
    Some(disks.map(|disk| disk.left()))
}

#[test]
fn the_method_discard_sees_through_a_lie() {
    if let Some(left) = cleaned_by("discard") {
        assert_eq!(left, [0, 0]);
    }
}

#[test]
fn the_method_auto_does_not_ask_a_liar() {
    if let Some(left) = cleaned_by("auto") {
        assert_eq!(left, [0, 0]);
    }
}
