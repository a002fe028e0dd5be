//! Devices: handed out raw, or formatted by the kubelet.

use serde_json::{Value, json};
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::stage;

const CLEANED: &str = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";

#[test]
fn a_raw_device_is_reset_and_offered_again() {
    let mut volume = or_skip!(occupied_raw(&json!({})));
    let spec = volume.pv.spec.clone().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(spec.capacity.unwrap()["storage"].0, "32Mi");
    // A filesystem of the pod's own, and data all over it.
    let device = volume.device();
    device.format("ext4").unwrap();
    scribble(device.path());
    device.format("xfs").or_else(|_| device.format("ext4")).unwrap();
    assert!(!wipefs(device.path()).is_empty());

    volume.release();
    // A loop device can drop its contents.
    let fresh = volume.is_cleaned();
    assert_eq!(name(&fresh), name(&volume.pv));
    assert_eq!(identity(&fresh), identity(&volume.pv), "what was on the device does not count");
    assert_eq!(wipefs(volume.device().path()), "");
    let path = volume.path.to_str().unwrap();
    volume.stage.event("VolumeDelete", path);
    assert_eq!(metric(&mut volume.provisioner, CLEANED), Some(1));
}

/// Of a class with these settings, which the metrics call so, a full device comes back as zeros, after at least
/// `least` bytes were written to it.
fn is_zeroed(settings: &Value, label: &str, least: u64) -> Option<Occupied> {
    let mut volume = occupied_raw(settings)?;
    std::fs::write(volume.device().path(), vec![0xa5; 32 << 20]).unwrap();
    let device = std::fs::File::open(volume.device().path()).unwrap();
    device.sync_all().unwrap();
    drop(device);
    let before = volume.device().written().unwrap();
    volume.release();
    volume.is_cleaned();
    let written = volume.device().written().unwrap() - before;
    assert!(written >= least, "{written} bytes were written");
    assert!(volume.device().is_zero().unwrap());
    let count = format!(
        "persistentvolume_delete_duration_seconds_count{{capacity=\"500G\",\
         cleanup_command=\"{label}\",mode=\"Block\",type=\"process\"}}"
    );
    assert_eq!(metric(&mut volume.provisioner, &count), Some(1), "{count}");
    Some(volume)
}

#[test]
fn a_raw_device_is_zeroed_from_end_to_end() {
    let settings = json!({ "blockCleanerCommand": ["/scripts/dd_zero.sh", "2"] });
    let mut volume = or_skip!(is_zeroed(&settings, "/scripts/dd_zero.sh", 64 * MIB));
    let bytes = metric(&mut volume.provisioner, "cleanup_bytes_total").unwrap();
    assert!(bytes >= 64 * MIB, "{bytes} bytes are counted");
}

#[test]
fn a_clean_method_is_chosen_by_its_name() {
    is_zeroed(&json!({ "cleanMethod": "auto" }), "auto", 0);
}

#[test]
fn a_device_that_the_kubelet_formats_is_cleaned_once_it_is_unmounted() {
    let stage = or_skip!(stage());
    let dir = stage.class("formatted", &json!({ "fsType": "ext4" }));
    let device = raw(&stage);
    let path = link(&device, &dir, "disk");
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    let spec = bound.spec.clone().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.local.unwrap().fs_type.as_deref(), Some("ext4"));
    // What a kubelet does.
    device.format("ext4").unwrap();
    let mounted = mount(&stage, &device, "kubelet/plugins/mounts/pv");
    keep_secret(&mounted);
    stage.still(&mut provisioner, "its formatting is no other disk", || {
        is_untouched(&stage, &bound, "Bound") && stage.events("VolumeIdentityMismatch").is_empty()
    });

    stage.delete_claim("claim");
    cleanup_waits(&stage, &mut provisioner, &path);
    stage.still(&mut provisioner, "what is mounted is not touched", || {
        has_secret(&mounted) && is_untouched(&stage, &bound, "Released")
    });
    assert!(stage.events("VolumeInUse").is_empty(), "a short wait is not reported");
    assert_eq!(metric(&mut provisioner, "cleanup_waiting"), Some(1));

    stage.sandbox.umount(&mounted).unwrap();
    let fresh = offered_again(&stage, &path, &bound);
    assert_eq!(wipefs(device.path()), "");
    assert_eq!(identity(&fresh), identity(&bound));
    // The metrics call a device a device, whatever its class makes of it.
    assert_eq!(metric(&mut provisioner, CLEANED), Some(1));
}

#[test]
fn a_device_that_a_process_has_claimed_waits_without_a_slot() {
    let stage = or_skip!(stage());
    stage.configure("maxConcurrentCleanups", "1");
    let mut busy = Occupied::raw(stage, &json!({}));
    let dir = busy.path.parent().unwrap();
    let idle = raw(&busy.stage);
    let idle_path = link(&idle, dir, "idle");
    let idle_pv = busy.stage.used(&busy.stage.bind("idle", &idle_path));
    scribble(idle.path());
    // As LVM or a RAID does, and mkfs.
    let user = busy.device().open_alone().unwrap();
    busy.release();
    busy.waits();
    busy.stage.delete_claim("idle");
    offered_again(&busy.stage, &idle_path, &idle_pv);
    assert!(secrets_on(idle.path()).is_empty(), "one waiting volume does not hold up another");
    assert!(is_as_scribbled(busy.device().path()));
    assert!(!is_terminating(&busy.stage.pv(&name(&busy.pv)).unwrap()));
    drop(user);
    busy.is_cleaned();
}

#[test]
fn a_class_of_raw_devices_refuses_directories() {
    let stage = or_skip!(stage());
    raw_class(&stage, &json!({}));
    let directory = tmpfs(&stage, "disks/raw/dir");
    let mut provisioner = stage.provisioner();
    skipped(&stage, &mut provisioner, &directory, "ModeMismatch");
}
