//! A device in use is not offered, whatever uses it and wherever that can be seen. Once it is free, it is.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::libc::O_EXCL;
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use support::{LoopDevice, Program, Stage, skip};

use crate::kit::*;
use crate::stage;

/// A user that no event announces is noticed to be gone only by asking again.
fn often() -> Option<Stage> {
    stage_with(&["--discovery-period=1s"])
}

/// Waits until the volume is skipped as in use, and `/status` names its user.
fn in_use(stage: &Stage, provisioner: &mut Program, path: &Path, user: &str) {
    skipped(stage, provisioner, path, "DeviceInUse");
    let detail = status_of(provisioner, path)["detail"].clone();
    let named = detail.as_str().is_some_and(|detail| detail.contains(user));
    assert!(named, "{user:?} is not in {detail}");
}

/// Runs a program of this machine; `false`, with a skip, where it is not installed.
fn run(command: &mut Command) -> bool {
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(&format!("no {}", command.get_program().display()));
            false
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{command:?}: {output:?}");
            true
        }
    }
}

fn mkfs(kind: &str) -> Command {
    Command::new(format!("mkfs.{kind}"))
}

#[test]
fn disk_with_a_mounted_partition_is_not_offered() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    let disk = LoopDevice::halved(stage.sandbox.path(), 64 * MIB).unwrap();
    let part = disk.partition(2);
    assert!(run(mkfs("ext4").arg("-q").arg(&part)));
    let point = stage.sandbox.mount(&part, "ext4", "elsewhere").unwrap();
    let path = link(&disk, &dir, "disk");
    let mut provisioner = stage.provisioner();
    in_use(&stage, &mut provisioner, &path, point.to_str().unwrap());
    stage.sandbox.umount(&point).unwrap();
    stage.available(&path, None);
}

#[test]
fn partition_of_a_mounted_disk_is_not_offered() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    let disk = LoopDevice::halved(stage.sandbox.path(), 64 * MIB).unwrap();
    assert!(run(mkfs("ext4").args(["-q", "-F"]).arg(disk.path())));
    let point = mount(&stage, &disk, "elsewhere");
    let path = dir.join("part");
    symlink(disk.partition(1), &path).unwrap();
    let mut provisioner = stage.provisioner();
    in_use(&stage, &mut provisioner, &path, point.to_str().unwrap());
    stage.sandbox.umount(&point).unwrap();
    stage.available(&path, None);
}

/// The kernel lets a loop device be claimed although the disk behind it is mounted.
#[test]
fn loop_device_over_a_mounted_disk_is_not_offered() {
    let stage = or_skip!(often());
    let dir = raw_class(&stage, &json!({}));
    let disk = ext4(&stage);
    let point = mount(&stage, &disk, "elsewhere");
    let over = LoopDevice::over(disk.file()).unwrap();
    let path = link(&over, &dir, "loop");
    let mut provisioner = stage.provisioner();
    in_use(&stage, &mut provisioner, &path, "is a loop device over");
    stage.sandbox.umount(&point).unwrap();
    stage.available(&path, None);
}

/// Mounts a device in a mount namespace of its own, until the process is dropped.
fn mounted_in_another_namespace(device: &Path, point: &Path) -> Guest {
    let script = format!(
        "mount -t ext4 {device} {point} && echo mounted && exec sleep 60",
        device = device.display(),
        point = point.display()
    );
    let unshare = ["--mount", "--propagation", "private", "sh", "-c", &script];
    Guest::ready(Command::new("unshare").args(unshare))
}

#[test]
fn device_mounted_in_another_mount_namespace_is_not_offered() {
    let stage = or_skip!(often());
    let dir = raw_class(&stage, &json!({}));
    let point = stage.sandbox.dir("elsewhere").unwrap();
    let whole = ext4(&stage);
    let disk = LoopDevice::halved(stage.sandbox.path(), 64 * MIB).unwrap();
    assert!(run(mkfs("ext4").arg("-q").arg(disk.partition(1))));
    let [mounted, parted] = [&whole, &disk].map(|disk| {
        let name = disk.path().file_name().unwrap().to_str().unwrap();
        link(disk, &dir, name)
    });
    let users = [whole.path(), &disk.partition(1)]
        .map(|device| mounted_in_another_namespace(device, &point));
    let mut provisioner = stage.provisioner();
    for path in [&mounted, &parted] {
        in_use(&stage, &mut provisioner, path, "perhaps in another namespace");
    }
    drop(users);
    stage.available(&mounted, None);
    stage.available(&parted, None);
}

/// The mount table names one device of the filesystem, and the kernel gives it no holder.
#[test]
fn device_of_a_mounted_btrfs_is_not_offered() {
    let stage = or_skip!(often());
    let dir = raw_class(&stage, &json!({}));
    let devices = [(); 2].map(|()| LoopDevice::new(stage.sandbox.path(), 128 * MIB).unwrap());
    let paths = devices.each_ref().map(LoopDevice::path);
    if !run(mkfs("btrfs").args(["-q", "-f"]).args(paths)) {
        return;
    }
    let point = stage.sandbox.dir("elsewhere").unwrap();
    let options = format!("device={}", paths[1].display());
    let mut mount = Command::new("mount");
    mount.args(["-t", "btrfs", "-o", &options]).arg(paths[0]);
    assert!(run(mount.arg(&point)));
    let entries = [link(&devices[0], &dir, "a"), link(&devices[1], &dir, "b")];
    let mut provisioner = stage.provisioner();
    for path in &entries {
        in_use(&stage, &mut provisioner, path, "btrfs");
    }
    stage.sandbox.umount(&point).unwrap();
    for path in &entries {
        stage.available(path, None);
    }
}

/// A filesystem that is mounted with another device as its journal: that device is not offered.
fn journal_is_not_offered(
    kind: &str,
    size: u64,
    make: impl FnOnce(&Path, &Path) -> Option<Vec<String>>,
) {
    let stage = or_skip!(often());
    let dir = raw_class(&stage, &json!({}));
    let [data, journal] =
        [(); 2].map(|()| LoopDevice::new(stage.sandbox.path(), size * MIB).unwrap());
    let options = or_skip!(make(data.path(), journal.path()));
    let point = stage.sandbox.dir("elsewhere").unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", kind]).args(options);
    assert!(run(mount.arg(data.path()).arg(&point)));
    let path = link(&journal, &dir, "journal");
    let mut provisioner = stage.provisioner();
    in_use(&stage, &mut provisioner, &path, "journal");
    stage.sandbox.umount(&point).unwrap();
    stage.available(&path, None);
}

#[test]
fn journal_device_of_a_mounted_ext4_is_not_offered() {
    journal_is_not_offered("ext4", 64, |data, journal| {
        let blocks = ["-q", "-F", "-b", "4096"];
        let mut make = mkfs("ext4");
        make.args(blocks).args(["-O", "journal_dev"]).arg(journal);
        assert!(run(&mut make));
        let on_it = format!("device={}", journal.display());
        assert!(run(mkfs("ext4").args(blocks).args(["-J", &on_it]).arg(data)));
        Some(Vec::new())
    });
}

#[test]
fn log_device_of_a_mounted_xfs_is_not_offered() {
    journal_is_not_offered("xfs", 320, |data, log| {
        let on_it = format!("logdev={},size=64m", log.display());
        run(mkfs("xfs").args(["-q", "-f", "-l", &on_it]).arg(data))
            .then(|| vec!["-o".into(), format!("logdev={}", log.display())])
    });
}

/// As LVM, md, swap and mkfs claim one.
#[test]
fn device_that_a_process_has_claimed_is_not_offered() {
    let stage = or_skip!(often());
    let (device, path) = raw_volume(&stage, &json!({}));
    let user = device.open_alone().unwrap();
    let mut provisioner = stage.provisioner();
    skipped(&stage, &mut provisioner, &path, "DeviceInUse");
    ready(&stage, &mut provisioner);
    drop(user);
    stage.available(&path, None);
}

/// Otherwise the kubelet's mount, or the assembly of an array, would fail now and then.
#[test]
fn device_with_a_pv_is_never_opened_exclusively() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    let also = stage.class("also", &json!({ "volumeMode": "Block" }));
    let device = raw(&stage);
    let disk = LoopDevice::halved(stage.sandbox.path(), 32 * MIB).unwrap();
    let available = link(&device, &dir, "disk");
    let bound = dir.join("part");
    symlink(disk.partition(1), &bound).unwrap();
    let mut provisioner = stage.provisioner();
    stage.available(&available, None);
    stage.used(&stage.bind("claim", &bound));
    // The same storage by other names, in both directions.
    let twice = [link(&device, &also, "twice"), link(&disk, &also, "whole")];
    for path in &twice {
        skipped(&stage, &mut provisioner, path, "DuplicateDevice");
    }

    let over = AtomicBool::new(false);
    let hold = |device: PathBuf| {
        let over = &over;
        move || {
            // A process that another test starts would have our descriptors for a moment, and the device.
            unshare(CloneFlags::CLONE_FILES).unwrap();
            let mut options = File::options();
            options.read(true).custom_flags(O_EXCL);
            let mut refused = 0;
            while !over.load(Ordering::Relaxed) {
                match options.open(&device) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => refused += 1,
                    opened => drop(opened.unwrap()),
                }
            }
            refused
        }
    };
    let refused = thread::scope(|scope| {
        let devices = [device.path().to_owned(), disk.partition(1)];
        let threads = devices.map(|device| scope.spawn(hold(device)));
        let passes = "loop_duration_seconds_count";
        let begun = metric(&mut provisioner, passes).unwrap();
        for round in 0.. {
            // A change in the directory makes another pass.
            let file = dir.join(format!("file-{}", round % 2));
            fs::write(&file, "").unwrap();
            fs::remove_file(&file).unwrap();
            if metric(&mut provisioner, passes).unwrap() >= begun + 100 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(refused, [0, 0], "the provisioner had the device");
}
