//! Filesystems that the provisioner makes on disks, mounts, and makes again to clean them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use local_volume_provisioner::names::ANNOTATION_IDENTITY;
use nix::mount::MsFlags;
use serde_json::json;
use support::stage::{annotation, uid};
use support::{LoopDevice, Program, Stage};
use sys_mount::{Mount, MountFlags};

use crate::kit::*;

/// As long as a disk has to be there, and the time for its filesystem.
const TAKEN_IN: Duration = Duration::from_secs(100);

fn by_id(name: &str) -> String {
    format!("/dev/disk/by-id/{name}")
}

/// A class that makes filesystems of this type on disks of this size, and the disk of one entry.
fn made(stage: &Stage, fs_type: &str, size: u64) -> (LoopDevice, PathBuf) {
    // The file has another name than those of other tests, which are other disks.
    let name = format!("disk-{}", std::process::id());
    let file = File::create_new(stage.sandbox.path().join(name)).unwrap();
    file.set_len(size).unwrap();
    let device = LoopDevice::over(&file).unwrap();
    let links = [(device.path(), &*by_id("disk"))];
    stage.sandbox.own_dev(&links).unwrap();
    let rule = json!({
        "match": [by_id("disk")],
        "filesystem": fs_type,
        "mountOptions": ["noatime"],
        "approve": "Auto",
    });
    let class = json!({ "binding": "disk", "devices": rule });
    let dir = stage.class("made", &class);
    (device, dir.join("disk"))
}

/// Changes the mount option of the class.
fn mount_with(stage: &Stage, before: &str, option: &str) {
    let map = stage.config_dir().join("storageClassMap");
    let map = fs::read_to_string(map).unwrap();
    stage.configure("storageClassMap", &map.replace(before, option));
}

fn taken_in(stage: &Stage, path: &Path) -> k8s_openapi::api::core::v1::PersistentVolume {
    let phase = |it: &&_| support::stage::phase(it) == "Available";
    stage
        .within(TAKEN_IN, "the disk is a volume", || stage.pvs_at(path).iter().find(phase).cloned())
}

/// Lets the next provisioner believe that the machine was started again.
fn boot(stage: &Stage, number: &str) {
    let file = stage.sandbox.path().join(format!("boot-{number}"));
    fs::write(&file, format!("{number:0>36}\n")).unwrap();
    let id = "/proc/sys/kernel/random/boot_id";
    Mount::builder().flags(MountFlags::BIND).mount(&file, id).unwrap();
}

/// The type and the options of what is mounted at a path.
fn mounted(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let path = path.to_str().unwrap();
    let mut lines = table.lines().rev();
    let line = lines.find(|line| line.split(' ').nth(1) == Some(path))?;
    Some(line.split(' ').skip(2).take(2).collect::<Vec<_>>().join(" "))
}

/// What no deletion of files removes easily.
fn keep(volume: &Path) {
    keep_secret(volume);
    let deep = volume.join("deep/".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "secret").unwrap();
    let chattr = Command::new("chattr").arg("+i").arg(deep.join("file")).status();
    assert!(chattr.unwrap().success());
}

fn left_alone(program: &mut Program) -> Option<String> {
    let disk = &status(program)["classes"][0]["disks"][0];
    disk["leftAlone"].as_str().map(str::to_owned)
}

fn is_made_mounted_and_made_again(fs_type: &str, size: u64) {
    let stage = or_skip!(crate::stage());
    let (_device, path) = made(&stage, fs_type, size);
    let mut program = stage.provisioner();
    let pv = taken_in(&stage, &path);
    let options = mounted(&path).unwrap();
    assert!(options.starts_with(fs_type) && options.contains("noatime"), "{options}");
    let identity = annotation(&pv, ANNOTATION_IDENTITY).unwrap().to_owned();

    // Recycled, whatever the tenant left. The volume stays the same one.
    let bound = stage.used(&stage.bind("first", &path));
    keep(&path);
    stage.delete_claim("first");
    let fresh = stage.available(&path, Some(&uid(&bound)));
    assert!(!has_secret(&path) && !path.join("deep").exists());
    assert_eq!(annotation(&fresh, ANNOTATION_IDENTITY), Some(&*identity));
    assert_eq!(mounted(&path).as_ref(), Some(&options));

    // Not while it is in use, also in a way that its inspection does not see.
    let bound = stage.used(&stage.bind("second", &path));
    keep_secret(&path);
    let file = File::open(&path).unwrap();
    stage.delete_claim("second");
    stage.event("VolumeFailedDelete", "cannot be unmounted");
    assert!(has_secret(&path));
    drop(file);
    stage.within(TAKEN_IN, "it is cleaned", || (!has_secret(&path)).then_some(()));
    stage.available(&path, Some(&uid(&bound)));

    // Not mounted again where an operator has unmounted it, but after a boot, with its data.
    let bound = stage.used(&stage.bind("third", &path));
    keep_secret(&path);
    stage.sandbox.umount(&path).unwrap();
    stage.eventually("it tells how to mount it", || {
        left_alone(&mut program)?.contains("it was unmounted").then_some(())
    });
    drop(program);
    boot(&stage, "1");
    program = stage.provisioner();
    stage.eventually("it is mounted", || has_secret(&path).then_some(()));
    assert_eq!(mounted(&path).as_ref(), Some(&options));
    stage.in_phase(&support::stage::name(&bound), "Bound");

    // Not if an operator took it out of service.
    drop(program);
    stage.sandbox.umount(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    boot(&stage, "2");
    program = stage.provisioner();
    stage.eventually("it tells how to offer it again", || {
        left_alone(&mut program)?.contains("mkdir").then_some(())
    });
    fs::create_dir(&path).unwrap();
    stage.eventually("it is mounted", || has_secret(&path).then_some(()));
}

#[test]
fn ext4() {
    is_made_mounted_and_made_again("ext4", 64 * MIB);
}

#[test]
fn xfs() {
    is_made_mounted_and_made_again("xfs", 512 * MIB);
}

#[test]
fn class_is_refused_where_the_host_does_not_see_what_is_mounted() {
    let stage = or_skip!(crate::stage());
    let (_device, path) = made(&stage, "ext4", 64 * MIB);
    let says = |program: &mut Program, text: &str| {
        stage.eventually(text, || {
            let status = status(program);
            let faults = status["classes"][0]["faults"].to_string();
            (faults.contains(text) && status["classes"][0]["ready"] == false).then_some(())
        });
    };
    let dir = path.parent().unwrap();
    let elsewhere = stage.sandbox.dir("elsewhere").unwrap();
    let mount = |source: &Path, target: &Path, flags| {
        Mount::builder().flags(flags).mount(source, target).unwrap();
    };
    mount(dir, dir, MountFlags::BIND);
    let change = |flags| nix::mount::mount(None::<&str>, dir, None::<&str>, flags, None::<&str>);
    change(MsFlags::MS_SHARED).unwrap();
    mount(dir, &elsewhere, MountFlags::BIND);
    change(MsFlags::MS_SLAVE).unwrap();
    let mut program = stage.provisioner();
    says(&mut program, "set mountPropagation: Bidirectional");
    drop(program);
    stage.sandbox.umount(&elsewhere).unwrap();
    stage.sandbox.umount(dir).unwrap();
}

#[test]
fn filesystem_that_cannot_be_mounted_is_reported_and_is_not_made_twice() {
    let stage = or_skip!(crate::stage());
    let (device, path) = made(&stage, "ext4", 64 * MIB);
    mount_with(&stage, "noatime", "no-such-option");
    let program = stage.provisioner_with(&[("PATH", "/nowhere")]);
    let why = stage.within(TAKEN_IN, "it is reported", || stage.events("DeviceFailed").pop());
    assert!(why.contains("mkfs.ext4 is not in this image"), "{why}");
    assert!(device.is_zero().unwrap() && !path.exists());
    drop(program);
    let mut program = stage.provisioner();
    let why = stage.within(TAKEN_IN, "it is reported", || {
        let mut events = stage.events("DeviceFailed").into_iter();
        events.find(|why| why.contains("see mountOptions"))
    });
    assert_eq!(left_alone(&mut program), Some(why));
    let before = fs::read(device.path()).unwrap();
    assert!(stage.pvs_at(&path).is_empty() && mounted(&path).is_none());
    mount_with(&stage, "no-such-option", "nodev");
    let since = std::time::SystemTime::now();
    taken_in(&stage, &path);
    let root = fs::metadata(path.join("lost+found")).unwrap();
    assert!(root.modified().unwrap() < since && !before.iter().all(|byte| *byte == 0));
}
