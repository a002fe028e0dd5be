//! Devices: handed out raw, or formatted by the kubelet.

use std::time::Duration;

use serde_json::json;
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::stage;

#[test]
fn a_raw_device_is_reset_and_offered_again() {
    let Some(stage) = stage() else { return };
    let (device, path) = raw_volume(&stage, &json!({}));
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.bind("claim", &path);
    let spec = bound.spec.clone().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(spec.capacity.unwrap()["storage"].0, "32Mi");
    // A filesystem of the pod's own, and data all over it.
    device.format("ext4").unwrap();
    scribble(device.path());
    device
        .format("xfs")
        .or_else(|_| device.format("ext4"))
        .unwrap();
    assert!(!wipefs(device.path()).is_empty());

    stage.delete_claim("claim");
    let fresh = offered_anew(&stage, &path, &bound);
    assert_eq!(name(&fresh), name(&bound));
    assert_eq!(
        identity(&fresh),
        identity(&bound),
        "what was on the device does not count"
    );
    assert!(
        secrets_on(device.path()).is_empty(),
        "a loop device can drop its contents"
    );
    assert_eq!(wipefs(device.path()), "");
    stage.event("VolumeDelete", path.to_str().unwrap());
    let total = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";
    assert_eq!(metric(&mut provisioner, total), Some(1));
}

#[test]
fn a_raw_device_is_zeroed_from_end_to_end() {
    let Some(stage) = stage() else { return };
    let settings = json!({ "blockCleanerCommand": ["/scripts/dd_zero.sh", "2"] });
    let (device, path) = raw_volume(&stage, &settings);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.bind("claim", &path);
    std::fs::write(device.path(), vec![0xa5; 32 << 20]).unwrap();
    stage.delete_claim("claim");
    offered_anew(&stage, &path, &bound);
    let content = std::fs::read(device.path()).unwrap();
    assert_eq!(content.len(), 32 << 20);
    assert!(content.iter().all(|byte| *byte == 0));
    let bytes = metric(&mut provisioner, "cleanup_bytes_total").unwrap();
    assert!(bytes >= 32 * MIB, "{bytes} bytes are counted");
}

#[test]
fn a_device_that_the_kubelet_formats_is_cleaned_once_it_is_unmounted() {
    let Some(stage) = stage() else { return };
    let dir = stage
        .class("formatted", &json!({ "fsType": "ext4" }))
        .unwrap();
    let device = raw(&stage);
    let path = link(&device, &dir, "disk");
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    let spec = bound.spec.clone().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.local.unwrap().fs_type.as_deref(), Some("ext4"));
    // What a kubelet does.
    device.format("ext4").unwrap();
    let mounted = stage
        .sandbox
        .mount(device.path(), "ext4", "kubelet/plugins/mounts/pv")
        .unwrap();
    keep_secret(&mounted);
    stage.stays(
        Duration::from_millis(300),
        "its formatting is no other disk",
        || {
            is_untouched(&stage, &bound, "Bound")
                && stage.events("VolumeIdentityMismatch").is_empty()
        },
    );

    stage.delete_claim("claim");
    stage.eventually("the cleanup waits", || {
        (status_of(&mut provisioner, &path)["cleanup"]["state"] == "Waiting").then_some(())
    });
    stage.stays(
        Duration::from_millis(1500),
        "what is mounted is not touched",
        || has_secret(&mounted) && is_untouched(&stage, &bound, "Released"),
    );
    assert!(
        stage.events("VolumeInUse").is_empty(),
        "a moment's wait is nobody's worry"
    );
    assert_eq!(metric(&mut provisioner, "cleanup_waiting"), Some(1));

    stage.sandbox.umount(&mounted).unwrap();
    stage.within(
        Duration::from_secs(8),
        "the device is cleaned a moment later",
        || wipefs(device.path()).is_empty().then_some(()),
    );
    let fresh = offered_anew(&stage, &path, &bound);
    assert_eq!(identity(&fresh), identity(&bound));
    // The metrics call a device a device, whatever its class makes of it.
    let total = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";
    assert_eq!(metric(&mut provisioner, total), Some(1));
}

#[test]
fn a_device_that_somebody_has_claimed_waits_without_a_permit() {
    let Some(stage) = stage() else { return };
    stage.configure("maxConcurrentCleanups", "1").unwrap();
    let dir = raw_class(&stage, &json!({}));
    let (busy, idle) = (raw(&stage), raw(&stage));
    let (busy_path, idle_path) = (link(&busy, &dir, "busy"), link(&idle, &dir, "idle"));
    let mut provisioner = stage.provisioner().unwrap();
    let busy_pv = stage.used(&stage.bind("busy", &busy_path));
    let idle_pv = stage.used(&stage.bind("idle", &idle_path));
    scribble(busy.path());
    scribble(idle.path());
    // As LVM or a RAID does, and mkfs.
    let user = busy.open_alone().unwrap();
    stage.delete_claim("busy");
    stage.eventually("the cleanup waits", || {
        (status_of(&mut provisioner, &busy_path)["cleanup"]["state"] == "Waiting").then_some(())
    });
    stage.delete_claim("idle");
    offered_anew(&stage, &idle_path, &idle_pv);
    assert!(
        secrets_on(idle.path()).is_empty(),
        "one waiting volume does not hold up another"
    );
    assert_eq!(secrets_on(busy.path()).len(), 4);
    assert!(!is_terminating(&stage.pv(&name(&busy_pv)).unwrap()));
    drop(user);
    stage.within(
        Duration::from_secs(8),
        "the device is cleaned a moment later",
        || secrets_on(busy.path()).is_empty().then_some(()),
    );
    offered_anew(&stage, &busy_path, &busy_pv);
}

#[test]
fn a_mounted_device_is_not_offered() {
    let Some(stage) = stage() else { return };
    let dir = raw_class(&stage, &json!({}));
    let device = ext4(&stage);
    let path = link(&device, &dir, "disk");
    let mounted = stage
        .sandbox
        .mount(device.path(), "ext4", "elsewhere")
        .unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    skipped(&stage, &mut provisioner, &path, "DeviceInUse");
    stage.sandbox.umount(&mounted).unwrap();
    stage.available(&path, None);
}
