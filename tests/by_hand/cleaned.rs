//! Volumes that are cleaned, and dry runs, which clean nothing.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use support::stage::name;
use support::{Program, has};

use crate::fixture::{
    assert_ends, command, fill, has_secret, is_empty, is_full, raw, stage, volume,
};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn filesystem_is_shown_by_a_dry_run_and_emptied_by_its_path() {
    let stage = or_skip!(stage());
    let mut volumes = vec![(volume(&stage, "ram"), "tmpfs", "NotOffered", None)];
    if has("mkfs.ext4") {
        let device =
            support::LoopDevice::formatted(stage.sandbox.path(), 64 << 20, "ext4").unwrap();
        let root = stage.sandbox.mount(device.path(), "ext4", "disks/fast/disk");
        let root = root.unwrap();
        fill(&root);
        volumes.push((root, "ext4", "Done { bytes: ", Some(device)));
    }
    for (root, fs_type, trimmed, _device) in volumes {
        let path = text(&root);
        let identity = format!("v1:fs={fs_type},");
        let shown = ["will be", "pv        none", &identity, "nothing was touched"];
        assert_ends(&mut command(&stage, &[path, "--dry-run"]), 0, &shown);
        assert!(is_full(&root));
        let done = ["Cleaned /mnt/", "removed=2", trimmed];
        let go = [path, "--yes", "--v=4"];
        assert_ends(&mut command(&stage, &go), 0, &done);
        assert!(is_empty(&root), "{fs_type}");
        assert_ends(&mut command(&stage, &go), 0, &["removed=0"]);
    }
}

#[test]
fn retained_volume_is_cleaned_by_the_name_of_its_pv() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let provisioner = stage.provisioner();
    let pv = name(&stage.bind("claim", &root));
    let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    stage.patch_pv(&pv, &retain);
    stage.delete_claim("claim");
    stage.in_phase(&pv, "Released");
    drop(provisioner);
    let shown = format!("pv        {pv} (Released)");
    assert_ends(&mut command(&stage, &[&pv, "--yes"]), 0, &[&shown, "Cleaned"]);
    assert!(is_empty(&root));
}

#[test]
fn device_is_cleaned_as_its_class_or_the_command_line_says() {
    let stage = or_skip!(stage());
    let ramfs = stage.sandbox.ramfs("ramfs").unwrap();
    // The file below can neither punch nor discard.
    let (device, path) = raw(&stage, &json!({ "cleanMethod": "quick" }), &ramfs);
    let holds = ["crypto_LUKS at byte 0", "quick reset", "nothing was touched"];
    assert_ends(&mut command(&stage, &[text(&path), "--dry-run"]), 0, &holds);
    assert!(has_secret(&device));
    let quick = ["signatures only", "may still be readable"];
    assert_ends(&mut command(&stage, &[text(&path), "--yes"]), 0, &quick);
    assert!(has_secret(&device));
    let zero = [text(&path), "--yes", "--method=zero"];
    let zeros = ["no known signature", "the device reads as zeros"];
    assert_ends(&mut command(&stage, &zero), 0, &zeros);
    assert!(device.is_zero().unwrap());
}

/// Whatever it holds, and although a command makes no links.
#[test]
fn volume_that_would_be_bound_to_its_disk_is_cleaned() {
    let stage = or_skip!(stage());
    for (class, policy) in [("any", "Any"), ("empty", "EmptyOnly")] {
        let settings = json!({ "binding": "disk", "discoveryPolicy": policy });
        stage.class(class, &settings);
        let root = format!("disks/{class}/volume");
        let root = stage.sandbox.tmpfs(&root, "size=16m").unwrap();
        fill(&root);
        let done = ["Cleaned /mnt/"];
        assert_ends(&mut command(&stage, &[text(&root), "--yes"]), 0, &done);
        assert!(is_empty(&root), "{policy}");
    }
}

#[test]
fn external_cleaner_of_the_class_is_run() {
    let stage = or_skip!(stage());
    let script = "wipefs=x; dd if=/dev/zero of=\"$LOCAL_PV_BLKDEVICE\" bs=1M count=64 conv=fsync";
    let cleaner = json!({ "blockCleanerCommand": ["/bin/sh", "-c", script] });
    let (device, path) = raw(&stage, &cleaner, stage.sandbox.path());
    let done = ["Cleaned /mnt/"];
    assert_ends(&mut command(&stage, &[text(&path), "--yes"]), 0, &done);
    assert!(device.is_zero().unwrap());
}

#[test]
fn interrupted_cleaning_ends_within_seconds_and_is_reported() {
    let stage = or_skip!(stage());
    let ramfs = stage.sandbox.ramfs("ramfs").unwrap();
    let cleaner = json!({ "blockCleanerCommand": ["/scripts/shred.sh", "10000"] });
    let (device, path) = raw(&stage, &cleaner, &ramfs);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let log = stage.sandbox.path().join("log");
        let mut program = Program::start(command(&stage, &[text(&path), "--yes"]), log).unwrap();
        let before = device.written().unwrap();
        stage.eventually("bytes are written", || device.written().unwrap() > before + (1 << 20));
        program.signal(signal).unwrap();
        // Ten thousand passes take much longer.
        let status = program.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(130));
        let log = program.log();
        for words in ["interrupted (", "is half cleaned"] {
            assert!(log.contains(words), "{log}");
        }
    }
}

#[test]
fn interrupted_external_cleaner_is_reported_as_interrupted() {
    let stage = or_skip!(stage());
    let begun = stage.sandbox.path().join("begun");
    let script = format!("touch {}; sleep 1000", begun.display());
    let cleaner = json!({ "blockCleanerCommand": ["/bin/sh", "-c", script] });
    let (_device, path) = raw(&stage, &cleaner, stage.sandbox.path());
    let log = stage.sandbox.path().join("log");
    let mut program = Program::start(command(&stage, &[text(&path), "--yes"]), log).unwrap();
    stage.eventually("the cleaner runs", || begun.exists());
    program.signal(Signal::SIGINT).unwrap();
    let status = program.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(status.code(), Some(130), "{}", program.log());
    assert!(program.log().contains("interrupted ("), "{}", program.log());
}

#[test]
fn device_that_refuses_writes_is_not_clean() {
    let stage = or_skip!(stage());
    let (device, path) = raw(&stage, &json!({}), stage.sandbox.path());
    let small = stage.sandbox.tmpfs("small", "size=4m").unwrap();
    let broken = support::LoopDevice::new(&small, 64 << 20).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(broken.path(), &path).unwrap();
    let args = [text(&path), "--yes", "--method=overwrite"];
    let words = ["failed: cannot write", "is not clean"];
    assert_ends(&mut command(&stage, &args), 1, &words);
    assert!(has_secret(&device));
}

#[test]
fn dry_run_without_an_output_touches_nothing() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    for go in ["--dry-run", "--yes"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(&stage, &[text(&root), go]);
        assert_ends(command.stdout(full), 2, &[]);
        assert!(is_full(&root));
    }
}
