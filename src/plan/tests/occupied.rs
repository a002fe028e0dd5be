//! The index of occupied storage finds what comparing each with each would find.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::kit::*;
use crate::host::footprint::{Footprint, overlap};
use crate::host::mounts::DeviceNumber;
use crate::plan::{Occupant, Occupied};

fn occupant(at: &str, footprint: Footprint) -> Occupant {
    Occupant { path: path(at), footprint, pv: None }
}

#[test]
fn a_volume_is_found_by_its_path_and_does_not_conflict_with_itself() {
    let mut occupied = Occupied::default();
    let at = path("/mnt/fast/a");
    assert_eq!(occupied.at(&at), None);
    assert_eq!(occupied.conflict(&fs(1).footprint, &at), None);
    let volume = occupant("/mnt/fast/a", fs(1).footprint);
    occupied.insert(volume.clone());
    assert_eq!(occupied.at(&at), Some(&volume));
    assert_eq!(occupied.conflict(&fs(1).footprint, &at), None);
    let other = occupied.conflict(&fs(1).footprint, &path("/mnt/fast/b"));
    assert_eq!(other.map(|(other, _)| other), Some(&volume));
}

fn numbers() -> impl Strategy<Value = BTreeSet<DeviceNumber>> {
    prop::collection::btree_set((0..8_u32).prop_map(device), 0..3)
}

fn device(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 8, minor }
}

fn footprint() -> impl Strategy<Value = Footprint> {
    let roots = prop::sample::select(vec!["/", "/x", "/x/y", "/x/y/z", "/xy", "/z"]);
    let filesystem = (numbers(), 0..3_u32, roots).prop_map(|(devices, fs, root)| {
        Footprint::Filesystem { devices, fs: device(fs), root: root.into() }
    });
    let wwids = prop::option::weighted(0.3, prop::sample::select(vec!["v", "w"]));
    let raw = (0..8_u32, numbers(), wwids).prop_map(|(number, mut below, wwid)| {
        let number = device(number);
        below.insert(number);
        Footprint::Device { number, below, wwid: wwid.map(Into::into) }
    });
    prop_oneof![filesystem, raw]
}

proptest! {
    #[test]
    fn conflicts_are_those_of_comparing_each_with_each(
        volumes in prop::collection::vec(footprint(), 0..8),
        candidate in footprint(),
        at in 0..8_usize,
    ) {
        let mut occupied = Occupied::default();
        for (at, footprint) in volumes.iter().enumerate() {
            occupied.insert(occupant(&format!("/v/{at}"), footprint.clone()));
        }
        let sharing: Vec<_> = volumes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .filter_map(|(other, footprint)| Some((other, overlap(footprint, &candidate)?)))
            .map(|(other, how)| (format!("/v/{other}"), how))
            .collect();
        match occupied.conflict(&candidate, &path(&format!("/v/{at}"))) {
            None => prop_assert_eq!(sharing, []),
            Some((other, how)) => prop_assert!(sharing.contains(&(other.path.to_string(), how))),
        }
    }
}
