//! One disk, one PV, one place in the sums.

use control_plane::requests::Verb;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use support::stage::name;

use crate::kit::*;
use crate::stage;

#[test]
fn fault_6_two_links_to_one_disk_make_one_pv() {
    let Some(stage) = stage() else { return };
    let dir = raw_class(&stage, &json!({}));
    let (device, other) = (raw(&stage), raw(&stage));
    let first = link(&device, &dir, "a");
    let second = link(&device, &dir, "b");
    let third = link(&other, &dir, "c");
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&first, None);
    stage.available(&third, None);
    skipped(&stage, &mut provisioner, &second, "DuplicateDevice");
    let detail = status_of(&mut provisioner, &second)["detail"].to_string();
    assert!(
        detail.contains(first.to_str().unwrap()),
        "both paths are named: {detail}"
    );

    // A link that comes later, while the disk is somebody's.
    let bound = stage.bind("claim", &first);
    scribble(device.path());
    let fourth = link(&device, &dir, "0");
    skipped(&stage, &mut provisioner, &fourth, "DuplicateDevice");
    assert_eq!(secrets_on(device.path()).len(), 4);
    std::fs::remove_file(&fourth).unwrap();
    std::fs::remove_file(&second).unwrap();
    stage.delete_claim("claim");
    offered_anew(&stage, &first, &bound);
    assert!(secrets_on(device.path()).is_empty());
}

#[test]
fn fault_9_the_capacity_gauge_is_the_total_of_all_volumes_for_good() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    stage.class("slow", &json!({})).unwrap();
    let dir = raw_class(&stage, &json!({}));
    let device = raw(&stage);
    let volumes = [
        stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap(),
        stage.sandbox.tmpfs("disks/slow/vol-2", "size=30m").unwrap(),
        link(&device, &dir, "disk"),
    ];
    let mut provisioner = stage.provisioner().unwrap();
    for volume in &volumes {
        stage.available(volume, None);
    }
    let total = |provisioner: &mut _, mode| {
        metric(
            provisioner,
            &format!("persistentvolume_capacity_bytes{{mode=\"{mode}\"}}"),
        )
    };
    let mib = |mib: u64| Some(mib * MIB);
    stage.bind("claim", &volumes[0]);
    let mut all_count = || {
        total(&mut provisioner, "Filesystem") == mib(50)
            && total(&mut provisioner, "Block") == mib(32)
    };
    let what = "all volumes count, with a PV or without";
    stage.eventually(what, || all_count().then_some(()));
    stage.stays(Duration::from_millis(300), what, all_count);
    stage.sandbox.tmpfs("disks/slow/vol-3", "size=40m").unwrap();
    stage.eventually("a new volume counts", || {
        (total(&mut provisioner, "Filesystem") == mib(90)).then_some(())
    });
}

#[test]
fn fault_12_two_volumes_whose_names_collide_have_a_pv_each() {
    let Some(stage) = stage() else { return };
    // Entry, node and class run together to "anode-1node-1c-1" for both.
    let node = stage.node();
    let class = format!("{node}c");
    stage.class("c", &json!({})).unwrap();
    stage.class(&class, &json!({})).unwrap();
    let volumes = [("c", format!("a{node}")), (&class, "a".into())].map(|(class, entry)| {
        stage
            .sandbox
            .tmpfs(&format!("disks/{class}/{entry}"), "size=20m")
            .unwrap()
    });
    let mark = stage.requests().mark();
    let _provisioner = stage.provisioner().unwrap();
    let names: BTreeSet<_> = volumes
        .iter()
        .map(|volume| name(&stage.available(volume, None)))
        .collect();
    let mut lengths: Vec<_> = names
        .iter()
        .map(|name| name["local-pv-".len()..].len())
        .collect();
    lengths.sort_unstable();
    assert!(
        names.len() == 2 && lengths[0] <= 8 && lengths[1] == 16,
        "{names:?}"
    );

    // Each goes its own way.
    for (claim, volume) in ["first", "second"].into_iter().zip(&volumes) {
        let bound = stage.bind(claim, volume);
        keep_secret(volume);
        stage.delete_claim(claim);
        offered_anew(&stage, volume, &bound);
        assert!(entries(volume).is_empty());
    }
    let creations = stage.requests().since(mark);
    let creations = creations
        .iter()
        .filter(|request| request.verb == Verb::Create && request.resource == "persistentvolumes");
    // One for each life of each volume, and one more whenever the short name was taken.
    let count = creations.count();
    assert!((4..=8).contains(&count), "{count} creations");
}
