//! Crashes of the provisioner at each of its crash points ([`points`]), beside a volume that stays in use.

mod disk;
mod points;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{LoopDevice, Stage};

use super::BINARY;
use disk::{DEVICE_SIZE, Disk};

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
}

fn kinds(stage: &Stage) -> Vec<Kind> {
    let raw = |class, below, cleaner: Value| {
        let mut settings = cleaner;
        settings["volumeMode"] = json!("Block");
        Kind {
            class,
            settings,
            below,
        }
    };
    vec![
        Kind {
            class: "contents",
            settings: json!({}),
            below: Below::Nothing,
        },
        raw("quick", Below::Tmpfs, json!({ "cleanMethod": "quick" })),
        raw("zero", Below::Ramfs, json!({ "cleanMethod": "zero" })),
        raw(
            "overwrite",
            Below::Ramfs,
            json!({ "blockCleanerCommand": ["/scripts/shred.sh", "1"] }),
        ),
        raw("discard", Below::Tmpfs, json!({ "cleanMethod": "discard" })),
        raw(
            "command",
            Below::Ramfs,
            json!({ "blockCleanerCommand": ["/bin/sh", cleaner(stage)] }),
        ),
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
        Below::Nothing => Disk::Filesystem(path.to_owned()),
        _ => Disk::Device(path.to_owned()),
    }
}

/// The processes of an external cleaner of a device, with whatever it left behind.
fn cleaners_of(device: &Path) -> Vec<String> {
    let wanted = format!("LOCAL_PV_BLKDEVICE={}", device.display());
    let is_one = |process: &Path| {
        // Without an environment it is dead.
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|process| is_one(process))
        .map(|process| fs::read_to_string(process.join("stat")).unwrap_or_default())
        .collect()
}
