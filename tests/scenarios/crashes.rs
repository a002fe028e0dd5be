//! Crashes of the provisioner at each of its crash points ([`points`]), beside a volume that stays in use.

mod disk;
mod points;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{LoopDevice, Stage};

use super::BINARY;
use disk::{DEVICE_SIZE, Disk};

/// The volume that is cleaned, and one that stays in use.
const NAMES: [&str; 2] = ["dies", "in-use"];

/// A class of volumes, and how they are cleaned.
struct Kind {
    class: &'static str,
    settings: Value,
    below: Below,
}

/// What a volume is made on.
#[derive(Clone, Copy, PartialEq)]
enum Below {
    /// A tmpfs is the volume itself.
    Nothing,
    /// A device that can drop its contents.
    Tmpfs,
    /// A device that cannot, so that it is written all over.
    Ramfs,
    /// A device on which the provisioner makes a filesystem.
    Made,
}

fn kinds(stage: &Stage) -> Vec<Kind> {
    let raw = |class, below, cleaner: Value| {
        let mut settings = cleaner;
        settings["volumeMode"] = json!("Block");
        Kind { class, settings, below }
    };
    vec![
        Kind { class: "contents", settings: json!({}), below: Below::Nothing },
        Kind {
            class: "reformat",
            settings: json!({
                "binding": "disk",
                "devices": { "match": NAMES.map(by_id), "filesystem": "ext4", "approve": "Auto" },
            }),
            below: Below::Made,
        },
        raw("quick", Below::Tmpfs, json!({ "cleanMethod": "quick" })),
        raw("zero", Below::Ramfs, json!({ "cleanMethod": "zero" })),
        raw(
            "overwrite",
            Below::Ramfs,
            json!({ "blockCleanerCommand": ["/scripts/shred.sh", "1"] }),
        ),
        raw("discard", Below::Tmpfs, json!({ "cleanMethod": "discard" })),
        raw("command", Below::Ramfs, json!({ "blockCleanerCommand": ["/bin/sh", cleaner(stage)] })),
    ]
}

/// A cleaner that takes its time, and tries to leave something behind.
fn cleaner(stage: &Stage) -> PathBuf {
    let file = stage.sandbox.path().join("cleaner.sh");
    let script = r#"
        (setsid sleep 1000 &)
        (setsid sh -c 'trap "" TERM; sleep 1000; dd if=/dev/urandom of="$LOCAL_PV_BLKDEVICE"' &)
        for part in 0 1 2 3; do
            dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=1 seek=$part conv=notrunc,fsync 2>&1
        done
    "#;
    fs::write(&file, script).unwrap();
    file
}

fn by_id(name: &str) -> String {
    format!("/dev/disk/by-id/{name}")
}

/// Volumes of a kind, with what keeps their devices.
fn volumes(stage: &Stage, kind: &Kind, dir: &Path) -> [(PathBuf, Option<LoopDevice>); 2] {
    if kind.below != Below::Made {
        return NAMES.map(|name| volume(stage, kind, dir, name));
    }
    let devices = NAMES.map(|name| {
        // The file has another name than those of other tests, which are other disks.
        let name = format!("{name}-{}", std::process::id());
        let file = File::create_new(stage.sandbox.path().join(name)).unwrap();
        file.set_len(64 << 20).unwrap();
        LoopDevice::over(&file).unwrap()
    });
    let [a, b] = NAMES.map(by_id);
    let links = [(devices[0].path(), &*a), (devices[1].path(), &*b)];
    stage.sandbox.own_dev(&links).unwrap();
    let [a, b] = devices;
    [(dir.join(NAMES[0]), Some(a)), (dir.join(NAMES[1]), Some(b))]
}

/// A volume of a kind, with what keeps its device.
fn volume(stage: &Stage, kind: &Kind, dir: &Path, name: &str) -> (PathBuf, Option<LoopDevice>) {
    // No other test on this machine has volumes of this name.
    let name = format!("{name}-{}", std::process::id());
    let sandbox = &stage.sandbox;
    if kind.below == Below::Nothing {
        let mounted = format!("disks/{}/{name}", kind.class);
        return (sandbox.tmpfs(&mounted, "size=4m").unwrap(), None);
    }
    let files = if kind.below == Below::Ramfs {
        let place = format!("ramfs-{}-{name}", kind.class);
        sandbox.ramfs(&place).unwrap()
    } else {
        sandbox.path().to_owned()
    };
    let device = LoopDevice::new(&files, DEVICE_SIZE).unwrap();
    let path = dir.join(name);
    std::os::unix::fs::symlink(device.path(), &path).unwrap();
    (path, Some(device))
}

fn disk(kind: &Kind, path: &Path) -> Disk {
    match kind.below {
        Below::Nothing | Below::Made => Disk::Filesystem(path.to_owned()),
        _ => Disk::Device(path.to_owned()),
    }
}

/// The processes of an external cleaner of a device, with whatever it left behind.
fn cleaners_of(device: &Path) -> Vec<String> {
    let wanted = format!("LOCAL_PV_BLKDEVICE={}", device.display());
    let is_one = |process: &Path| {
        // Without an environment it is dead.
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|process| is_one(process))
        .map(|process| fs::read_to_string(process.join("stat")).unwrap_or_default())
        .collect()
}
