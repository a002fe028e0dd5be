//! One device, one PV: by whatever name, mount or layer it is reached.

use std::fs;

use serde_json::json;
use support::stage::name;

use crate::kit::*;
use crate::stage;

#[test]
fn a_directory_within_another_volume_gets_no_pv() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let disk = ext4(&stage);
    let whole = stage.sandbox.mount(disk.path(), "ext4", "source").unwrap();
    for dir in ["x/y", "z", "xy"] {
        fs::create_dir_all(whole.join(dir)).unwrap();
    }
    let outer = stage
        .sandbox
        .bind(&whole.join("x"), "disks/fast/outer")
        .unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &outer));
    keep_secret(&outer);
    keep_secret(&whole.join("z"));
    let inner = stage
        .sandbox
        .bind(&whole.join("x/y"), "disks/fast/inner")
        .unwrap();
    let around = stage.sandbox.bind(&whole, "disks/fast/around").unwrap();
    let again = stage
        .sandbox
        .bind(&whole.join("x"), "disks/fast/outer-again")
        .unwrap();
    let beside = stage
        .sandbox
        .bind(&whole.join("xy"), "disks/fast/beside")
        .unwrap();
    stage.available(&beside, None);
    skipped(&stage, &mut provisioner, &inner, "NestedVolume");
    skipped(&stage, &mut provisioner, &around, "NestedVolume");
    in_state(&stage, &mut provisioner, &again, "Skipped");
    assert!(stage.pvs_at(&again).is_empty());

    stage.delete_claim("claim");
    let waits = stage.event("VolumeInUse", "as well; unmount it there");
    assert!(waits.contains(inner.to_str().unwrap()), "{waits}");
    assert!(has_secret(&outer));
    stage.sandbox.umount(&inner).unwrap();
    offered_anew(&stage, &outer, &bound);
    assert!(!outer.join("secret").exists());
    assert!(
        has_secret(&whole.join("z")),
        "what is beside the volume is not the volume's"
    );
    assert_eq!(stage.pvs().len(), 2);
}

#[test]
fn neither_of_two_nested_volumes_with_pvs_is_cleaned() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let disk = ext4(&stage);
    let whole = stage.sandbox.mount(disk.path(), "ext4", "source").unwrap();
    fs::create_dir_all(whole.join("x/y")).unwrap();
    let outer = stage
        .sandbox
        .bind(&whole.join("x"), "disks/fast/outer")
        .unwrap();
    let inner = stage
        .sandbox
        .bind(&whole.join("x/y"), "disks/fast/inner")
        .unwrap();
    // The Go program did not mind.
    let capacity = {
        let statistics = nix::sys::statvfs::statvfs(&outer).unwrap();
        format!(
            "{}Mi",
            statistics.blocks() * statistics.fragment_size() / MIB
        )
    };
    let [outer_pv, inner_pv] = [("outer", &outer), ("inner", &inner)].map(|(claim, path)| {
        let pv = stage.named(claim);
        stage
            .create_pv(pv_by_hand(&stage, &pv, "fast", path, &capacity))
            .unwrap();
        stage.claim(claim, "fast", Some(&pv)).unwrap();
        keep_secret(path);
        stage.in_phase(&pv, "Bound")
    });
    let mut provisioner = stage.provisioner().unwrap();
    let [outer_pv, inner_pv] = [&outer_pv, &inner_pv].map(|pv| {
        stage.used(pv);
        stage.eventually("it is adopted", || stage.pv(&name(pv)).filter(is_protected))
    });
    stage.delete_claim("outer");
    let text = stage.event("VolumeDuplicate", "so nothing was touched");
    assert!(text.contains(inner.to_str().unwrap()), "{text}");
    stage.still(&mut provisioner, "the inner tenant's data is safe", || {
        has_secret(&inner) && has_secret(&outer) && is_untouched(&stage, &outer_pv, "Released")
    });

    // An operator removes the inner one.
    stage.delete_claim("inner");
    stage.event("VolumeDuplicate", &format!("(PV {})", name(&outer_pv)));
    stage.sandbox.umount(&inner).unwrap();
    fs::remove_dir(&inner).unwrap();
    stage
        .patch_pv(
            &name(&inner_pv),
            &json!({ "metadata": { "finalizers": null } }),
        )
        .unwrap();
    stage.delete_pv(&name(&inner_pv)).unwrap();
    offered_anew(&stage, &outer, &outer_pv);
    assert!(entries(&outer).is_empty());
}

#[test]
fn a_filesystem_and_its_device_are_one_volume() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let raw_dir = raw_class(&stage, &json!({}));
    let disk = ext4(&stage);
    let mounted = stage
        .sandbox
        .mount(disk.path(), "ext4", "disks/fast/vol-1")
        .unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &mounted));
    keep_secret(&mounted);
    let device = link(&disk, &raw_dir, "disk");
    stage.eventually("the device is not offered", || {
        (status_of(&mut provisioner, &device)["state"] == "Skipped").then_some(())
    });
    assert!(stage.pvs_at(&device).is_empty());
    assert!(has_secret(&mounted));
    assert!(is_untouched(&stage, &bound, "Bound"));
}

#[test]
fn an_entry_that_two_classes_match_is_offered_once() {
    let Some(stage) = stage() else { return };
    let dir = stage.class("a", &json!({})).unwrap();
    stage
        .class("b", &json!({ "hostDir": dir, "mountDir": dir }))
        .unwrap();
    let volume = stage.sandbox.tmpfs("disks/a/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let pv = stage.available(&volume, None);
    assert_eq!(
        pv.spec.as_ref().unwrap().storage_class_name.as_deref(),
        Some(stage.named("a").as_str())
    );
    stage.still(&mut provisioner, "once", || stage.pvs().len() == 1);
    let (_, metrics) = provisioner.http_get("/metrics").unwrap();
    assert!(
        metrics.contains(&format!("skipped_entries{{class=\"{}\"", stage.named("b"))),
        "the other class says why not"
    );
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.delete_claim("claim");
    assert_eq!(name(&offered_anew(&stage, &volume, &bound)), name(&bound));
}
