//! Classes that come, change and go.

use std::fs;
use std::time::Duration;

use serde_json::json;
use support::stage::uid;

use super::{add_class, edit_classes, logged, reloaded, remove_class, serving, set};
use crate::kit::*;

#[test]
fn an_added_class_offers_its_volumes_once_its_storage_class_is_there() {
    let (stage, first, mut provisioner) = or_skip!(serving());
    let before = stage.available(&first, None);
    let second = tmpfs(&stage, "disks/slow/vol");
    add_class(&stage, "slow");
    let slow = stage.named("slow");
    logged(&stage, &provisioner, "configuration reloaded");
    stage.eventually("its StorageClass is missed", || {
        let (code, why) = provisioner.http_get("/ready").ok()?;
        (code == 503 && why.contains("there is no StorageClass") && why.contains(&slow))
            .then_some(())
    });
    assert!(stage.pvs_at(&second).is_empty());
    stage.storage_class("slow", "Delete", "Immediate");
    stage.available(&second, None);
    ready(&stage, &mut provisioner);
    // Its directory is watched, too.
    let third = tmpfs(&stage, "disks/slow/vol-2");
    stage.within(Duration::from_secs(8), "a PV for a new entry", || {
        !stage.pvs_at(&third).is_empty()
    });
    assert_eq!(uid(&stage.available(&first, None)), uid(&before));
}

#[test]
fn what_a_removed_class_has_left_is_named_and_not_touched() {
    let (stage, []) = or_skip!(fast_stage([]));
    stage.class("slow", &json!({}));
    let [bound, free] = ["bound", "free"].map(|entry| {
        let entry = format!("disks/slow/{entry}");
        tmpfs(&stage, &entry)
    });
    let other = fast(&stage, "vol");
    let mut provisioner = stage.provisioner();
    let free_pv = stage.available(&free, None);
    let bound_pv = stage.used(&stage.bind("claim", &bound));
    keep_secret(&bound);
    stage.available(&other, None);
    fs::write(stage.sandbox.path().join("disks/slow/file"), "").unwrap();
    let slow = stage.named("slow");
    let series = |provisioner: &mut support::Program| -> Vec<String> {
        let (_, metrics) = provisioner.http_get("/metrics").unwrap();
        let of_class = metrics.lines().filter(|line| {
            let is_gauge = line.contains("volumes{") || line.contains("entries{");
            is_gauge && line.contains(&slow)
        });
        of_class.map(str::to_owned).collect()
    };
    stage.eventually("its gauges", || series(&mut provisioner).len() == 3);

    let class = remove_class(&stage, "slow");
    stage.eventually("its gauges are gone", || {
        let left = series(&mut provisioner);
        let states = left.iter().all(|line| line.contains("state=\"ClassGone\""));
        left.len() == 1 && states
    });
    for volume in [&bound, &free] {
        in_state(&stage, &mut provisioner, volume, "ClassGone");
    }
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 200);
    let late = tmpfs(&stage, "disks/slow/late");
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", &slow);
    stage.still(&mut provisioner, "nothing is done about it", || {
        has_secret(&bound)
            && is_untouched(&stage, &bound_pv, "Released")
            && is_untouched(&stage, &free_pv, "Available")
            && stage.pvs_at(&late).is_empty()
    });
    assert_eq!(stage.events("VolumeFailedDelete").len(), 1);

    let back = || {
        edit_classes(&stage, |classes| {
            classes.insert(slow.clone(), class.clone());
        });
    };
    back();
    offered_again(&stage, &bound, &bound_pv);
    assert!(entries(&bound).is_empty());
    stage.available(&late, None);
    assert!(is_untouched(&stage, &free_pv, "Available"));
    for _ in 0..2 {
        remove_class(&stage, "slow");
        in_state(&stage, &mut provisioner, &free, "ClassGone");
        back();
        in_state(&stage, &mut provisioner, &free, "Available");
    }
}

/// A container's mounts do not change with its configuration: what is at the old mountDir is still the
/// old directory, whose disks must not get the new one's names.
#[test]
fn another_host_dir_for_the_same_mount_dir_waits_for_a_restart() {
    let (stage, volume, mut provisioner) = or_skip!(serving());
    let (dir, before) = (volume.parent().unwrap(), stage.available(&volume, None));
    let elsewhere = stage.sandbox.dir("disks/elsewhere").unwrap();
    set(&stage, "fast", "hostDir", elsewhere.to_str().unwrap());
    let event = stage.event("ConfigReloadFailed", "replace the pod");
    assert!(event.contains(dir.to_str().unwrap()), "{event}");
    let late = fast(&stage, "late");
    stage.available(&late, None);
    assert!(stage.pvs_at(&elsewhere.join("vol")).is_empty());
    assert!(is_untouched(&stage, &before, "Available"));

    set(&stage, "fast", "hostDir", dir.to_str().unwrap());
    reloaded(&stage, &mut provisioner, true);
}
