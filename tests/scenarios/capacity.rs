//! The capacity of a PV grows with its volume; that of a Bound one in an expandable class only. The PV of an unused device
//! that shrank is replaced.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::stage::name;
use support::{LoopDevice, Program, Stage};

use crate::kit::*;

/// No event announces that a volume has another size.
fn often() -> Option<Stage> {
    stage_with(&["--discovery-period=1s"])
}

fn capacity(pv: &PersistentVolume) -> String {
    let spec = pv.spec.clone().unwrap_or_default();
    spec.capacity.unwrap_or_default()["storage"].0.clone()
}

/// Waits until a PV, which is still the same and Available, has a capacity.
fn has_capacity(stage: &Stage, pv: &PersistentVolume, wanted: &str) -> PersistentVolume {
    stage.eventually(&format!("a capacity of {wanted}"), || {
        let now = stage.pv(&name(pv))?;
        assert!(is_same(stage, pv, "Available"));
        (capacity(&now) == wanted).then_some(now)
    })
}

fn remount(volume: &Path, options: &str) {
    let mut remount = Command::new("mount");
    remount.args(["-o", &format!("remount,{options}")]);
    assert!(remount.arg(volume).status().unwrap().success());
}

/// Waits until the provisioner has made so many passes more.
fn passes(stage: &Stage, provisioner: &mut Program, more: u64) {
    let count = "loop_duration_seconds_count";
    let before = metric(provisioner, count).unwrap();
    stage
        .eventually("more passes", || (metric(provisioner, count)? >= before + more).then_some(()));
}

#[test]
fn capacity_of_an_unused_pv_follows_a_device_that_is_resized() {
    let stage = or_skip!(often());
    let dir = raw_class(&stage, &json!({}));
    let file = stage.sandbox.path().join("image");
    let backing = File::options().read(true).write(true).create_new(true).open(&file).unwrap();
    backing.set_len(32 * MIB).unwrap();
    let device = LoopDevice::over(&backing).unwrap();
    let path = link(&device, &dir, "disk");
    let _provisioner = stage.provisioner();
    let pv = stage.available(&path, None);
    assert_eq!(capacity(&pv), "32Mi");
    let resize = |size| {
        backing.set_len(size * MIB).unwrap();
        let mut losetup = Command::new("losetup");
        losetup.arg("--set-capacity").arg(device.path());
        assert!(losetup.status().unwrap().success());
    };
    resize(48);
    has_capacity(&stage, &pv, "48Mi");
    resize(24);
    let smaller = offered_again(&stage, &path, &pv);
    assert_eq!(capacity(&smaller), "24Mi");
}

#[test]
fn capacity_of_a_bound_pv_grows_in_a_class_that_allows_expansion() {
    let stage = or_skip!(often());
    stage.class("fast", &json!({}));
    let classes: Api<StorageClass> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "allowVolumeExpansion": true }));
    let (class, params) = (stage.named("fast"), PatchParams::default());
    let patched = classes.patch(&class, &params, &patch);
    stage.block_on(patched).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol", "size=20m").unwrap();
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &volume));
    let now = || capacity(&stage.pv(&name(&bound)).unwrap());
    remount(&volume, "size=40m");
    stage.eventually("it has grown", || now() == "40Mi");
    remount(&volume, "size=15m");
    stage.eventually("a pass has seen the size", || {
        status_of(&mut provisioner, &volume)["capacity"] == 15 * MIB
    });
    passes(&stage, &mut provisioner, 2);
    assert_eq!(now(), "40Mi");
}
