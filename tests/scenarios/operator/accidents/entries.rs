//! Entries of a discovery directory that are not offered.

use std::fs;
use std::os::unix::fs::symlink;

use k8s_openapi::api::storage::v1::StorageClass;

use super::*;

/// The class `raw`, with a device that is offered; its directory.
fn raw_devices(stage: &Stage) -> (PathBuf, LoopDevice) {
    let dir = class(stage, "raw", &json!({ "volumeMode": "Block" }));
    let device = raw(stage);
    link(&device, &dir, "another");
    (dir, device)
}

#[test]
fn directory_is_offered_after_it_is_mounted() {
    let stage = or_skip!(installed());
    let path = stage.sandbox.dir("disks/fast/vol").unwrap();
    let mut it = Accident::at(stage, path);
    let next = "next: it is offered as soon as it is mounted";
    it.is_remark("NotMounted", "it is a mount point", &[next]);
    fast(&it.stage, "vol");
    it.is_solved("Available");
}

#[test]
fn directory_in_a_class_of_devices_is_offered_by_a_class_of_filesystems() {
    let stage = or_skip!(installed());
    let (_dir, _device) = raw_devices(&stage);
    let path = tmpfs(&stage, "disks/raw/vol");
    let mut it = Accident::at(stage, path);
    let next = "next: move it to a class with volumeMode Filesystem";
    it.is_remark("ModeMismatch", "as its class", &[next]);
    it.stage.sandbox.umount(&it.path).unwrap();
    fs::remove_dir(&it.path).unwrap();
    it.path = fast(&it.stage, "vol");
    it.is_solved("Available");
}

/// A second entry of a device that is offered.
fn second_link() -> Option<(Accident, PathBuf, LoopDevice)> {
    let stage = installed()?;
    let (dir, device) = raw_devices(&stage);
    let first = dir.join("another");
    let mut it = Accident::at(stage, first.clone());
    it.is_in("Available");
    it.path = dir.join("second");
    symlink(device.path(), &it.path).unwrap();
    let shares = format!("shares its storage with {}", first.display());
    let next = "next: it is offered when it is the only one: remove one of the two";
    it.is_problem("DuplicateDevice", "shares its storage", &[&shares, next]);
    Some((it, first, device))
}

#[test]
fn second_link_to_a_device_is_removed() {
    let (mut it, first, _device) = or_skip!(second_link());
    fs::remove_file(&it.path).unwrap();
    it.path = first;
    it.is_solved("Available");
}

/// The PV of the first link has the device until it is deleted.
#[test]
fn second_link_to_a_device_is_offered_after_the_first_and_its_pv_are_removed() {
    let (mut it, first, _device) = or_skip!(second_link());
    let pv = name(&it.stage.available(&first, None));
    fs::remove_file(&first).unwrap();
    let texts = [&pv, "or delete that PV"];
    it.is_problem("IdentityOnOtherPV", "no other PV has the disk", &texts);
    it.stage.delete_pv(&pv);
    it.is_solved("Available");
}

#[test]
fn outer_one_of_two_nested_volumes_is_removed() {
    let stage = or_skip!(installed());
    let disk = ext4(&stage);
    let whole = mount(&stage, &disk, "whole");
    fs::create_dir(whole.join("dir")).unwrap();
    let inner = stage.sandbox.bind(&whole.join("dir"), "disks/fast/inner");
    let inner = inner.unwrap();
    let mut it = Accident::at(stage, inner.clone());
    it.is_in("Available");
    it.path = it.stage.sandbox.bind(&whole, "disks/fast/outer").unwrap();
    let texts = [inner.to_str().unwrap(), "next: remove one of the two"];
    it.is_remark("NestedVolume", "shares its storage", &texts);
    it.stage.sandbox.umount(&it.path).unwrap();
    fs::remove_dir(&it.path).unwrap();
    it.path = inner;
    it.is_solved("Available");
}

#[test]
fn device_is_offered_after_it_is_unmounted_elsewhere() {
    let stage = or_skip!(installed());
    let (dir, _device) = raw_devices(&stage);
    let disk = ext4(&stage);
    let point = mount(&stage, &disk, "elsewhere");
    let path = link(&disk, &dir, "vol");
    let mut it = Accident::at(stage, path);
    let user = point.to_str().unwrap();
    let next = "next: it is offered within seconds after its user is gone";
    it.is_problem("DeviceInUse", "nothing else uses the device", &[user, next]);
    it.stage.sandbox.umount(&point).unwrap();
    it.is_solved("Available");
}

#[test]
fn volume_is_offered_after_the_pod_that_mounts_its_path_is_deleted() {
    let stage = or_skip!(installed());
    let path = fast(&stage, "vol");
    stage.pod_with_host_path("user", path.to_str().unwrap());
    stage.pod_in_phase("user", "Running");
    let mut it = Accident::at(stage, path);
    let user = format!("by hostPath: {}/user", it.stage.namespace());
    let next = "next: it is offered within seconds after its user is gone";
    it.is_problem("VolumeInUse", "no pod uses it", &[&user, next]);
    it.stage.delete_pod("user", true);
    it.is_solved("Available");
}

#[test]
fn volume_with_data_in_a_class_of_empty_volumes_is_offered_after_it_is_cleaned_by_hand() {
    let stage = or_skip!(installed());
    class(&stage, "empty", &json!({ "discoveryPolicy": "EmptyOnly" }));
    tmpfs(&stage, "disks/empty/another");
    let path = tmpfs(&stage, "disks/empty/vol");
    keep_secret(&path);
    let mut it = Accident::at(stage, path);
    let command = format!("local-volume-provisioner clean {}", it.path.display());
    let next = "next: if its data is not needed, clean it by hand (docs/clean-by-hand.md)";
    it.is_remark("NotEmpty", "it is empty", &[&command, next]);
    let mut clean = it.stage.command();
    clean.args(["clean", "--yes", "--kubelet-dir"]);
    clean.arg(it.stage.kubelet_dir()).arg("--config");
    clean.arg(it.stage.config_dir()).arg(&it.path);
    answers(&CommandResult::of(&mut clean), 0, &[]);
    it.is_wiped();
}

#[test]
fn volume_is_offered_after_its_storage_class_is_created() {
    let stage = or_skip!(installed());
    let path = stage.sandbox.path().join("disks/fast/vol");
    let mut it = Accident::at(stage, path);
    let class = it.stage.named("fast");
    let classes: Api<StorageClass> = Api::all(it.stage.client.clone());
    it.stage.request(classes.delete(&class, &DeleteParams::default()));
    fast(&it.stage, "vol");
    let missing = format!("there is no StorageClass \"{class}\"; create it");
    let next = "next: it is offered as soon as the StorageClass exists: create it";
    it.is_problem("ClassMissing", "its StorageClass exists", &[&missing, next]);
    it.stage.storage_class("fast", "Delete", "WaitForFirstConsumer");
    it.is_solved("Available");
}

#[test]
fn volume_is_offered_after_the_pv_of_another_provisioner_is_deleted() {
    let stage = or_skip!(installed());
    let path = fast(&stage, "vol");
    let other = stage.named("by-hand");
    let mut pv = pv_by_hand(&stage, &other, "other", &path, "20Mi");
    pv["metadata"]["annotations"] = Value::Null;
    stage.create_pv(pv);
    let mut it = Accident::at(stage, path);
    let next = "next: delete the PV that is wrong; the volume is offered within a minute";
    it.is_problem("PathClaimedByOtherPV", "no other PV has its path", &[&other, next]);
    it.stage.delete_pv(&other);
    it.is_solved("Available");
}

#[test]
fn disk_that_was_mounted_under_another_name_is_mounted_back() {
    let stage = or_skip!(installed());
    let disk = ext4(&stage);
    let first = mount(&stage, &disk, "disks/fast/vol");
    let mut it = Accident::at(stage, first.clone());
    let pv = name(&it.stage.used(&it.stage.bind("claim", &first)));
    keep_secret(&first);
    it.stage.sandbox.umount(&first).unwrap();
    it.path = mount(&it.stage, &disk, "disks/fast/moved");
    let next = "next: mount the disk where that PV names it, or delete that PV";
    let texts = [&pv, first.to_str().unwrap(), next];
    it.is_problem("IdentityOnOtherPV", "no other PV has the disk", &texts);
    it.stage.sandbox.umount(&it.path).unwrap();
    fs::remove_dir(&it.path).unwrap();
    it.path = mount(&it.stage, &disk, "disks/fast/vol");
    it.is_kept("Bound");
}
