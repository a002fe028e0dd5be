//! One disk, one PV, one place in the sums.

use serde_json::json;

use crate::kit::*;
use crate::stage;

#[test]
fn fault_6_two_links_to_one_disk_make_one_pv() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    let (device, other) = (raw(&stage), raw(&stage));
    let first = link(&device, &dir, "a");
    let second = link(&device, &dir, "b");
    let third = link(&other, &dir, "c");
    let mut provisioner = stage.provisioner();
    stage.available(&first, None);
    stage.available(&third, None);
    skipped(&stage, &mut provisioner, &second, "DuplicateDevice");
    let detail = status_of(&mut provisioner, &second)["detail"].to_string();
    assert!(detail.contains(first.to_str().unwrap()), "both paths are named: {detail}");

    // A link that is added later, while the disk is in use.
    let bound = stage.bind("claim", &first);
    scribble(device.path());
    let fourth = link(&device, &dir, "0");
    skipped(&stage, &mut provisioner, &fourth, "DuplicateDevice");
    assert_eq!(secrets_on(device.path()).len(), 4);
    std::fs::remove_file(&fourth).unwrap();
    std::fs::remove_file(&second).unwrap();
    stage.delete_claim("claim");
    offered_again(&stage, &first, &bound);
    assert!(secrets_on(device.path()).is_empty());
}

#[test]
fn fault_9_the_capacity_gauge_is_the_total_of_all_volumes_for_good() {
    let (stage, []) = or_skip!(fast_stage([]));
    stage.class("slow", &json!({}));
    let dir = raw_class(&stage, &json!({}));
    let device = raw(&stage);
    let volumes = [
        fast(&stage, "vol-1"),
        stage.sandbox.tmpfs("disks/slow/vol-2", "size=30m").unwrap(),
        link(&device, &dir, "disk"),
    ];
    let mut provisioner = stage.provisioner();
    for volume in &volumes {
        stage.available(volume, None);
    }
    let total = |provisioner: &mut _, mode| {
        metric(provisioner, &format!("persistentvolume_capacity_bytes{{mode=\"{mode}\"}}"))
    };
    let mib = |mib: u64| Some(mib * MIB);
    stage.bind("claim", &volumes[0]);
    let all_count = |provisioner: &mut _| {
        total(provisioner, "Filesystem") == mib(50) && total(provisioner, "Block") == mib(32)
    };
    stage.eventually("all volumes count, with a PV or without", || all_count(&mut provisioner));
    stage.still(&mut provisioner, "the volumes", || stage.pvs().len() == 3);
    assert!(all_count(&mut provisioner), "for good");
    stage.sandbox.tmpfs("disks/slow/vol-3", "size=40m").unwrap();
    stage.eventually("a new volume counts", || total(&mut provisioner, "Filesystem") == mib(90));
}
