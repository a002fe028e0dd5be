//! Crashes of the provisioner: at each of its crash points ([`points`]), and by `kill -9` at random moments of
//! cleanups of all kinds, beside volumes that stay in use.

mod disk;
mod points;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use support::stage::{is_terminating, phase};
use support::{LoopDevice, Random, Stage};

use super::BINARY;
use disk::{DEVICE_SIZE, Disk};
use tenants::{Tenants, cleaners_of};

const KILLS: usize = 30;
/// The same in the slow tier.
const SLOW_KILLS: usize = 500;
/// Microseconds after the release, or after the PV's deletion.
const LATEST_KILL: u64 = 15_000;

fn kills() -> usize {
    if support::slow() { SLOW_KILLS } else { KILLS }
}

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

/// Kills the provisioner in the cleanups of each class in turn. Returns how many kills interrupted a cleanup.
fn kill_and_restart(
    stage: &Stage,
    volumes: &BTreeMap<&'static str, PathBuf>,
    releases: &Receiver<&'static str>,
) -> usize {
    let mut random = Random::seeded();
    let mut interrupted = 0;
    let mut ready = BTreeSet::new();
    let mut provisioner = stage.provisioner();
    for (class, path) in volumes.iter().cycle().take(kills()) {
        while !ready.remove(class) {
            match releases.recv_timeout(3 * stage.timeout()) {
                Ok(class) => {
                    ready.insert(class);
                }
                // A tenant has failed; joining its thread reports why.
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                    return interrupted;
                }
            }
        }
        // Every second time at any moment from the release on, else when data is being destroyed.
        let amid = random.below(2) == 1;
        let delay = random.below(LATEST_KILL);
        stage.eventually("the volume is being cleaned", || {
            let pvs = stage.pvs_at(path);
            let due = |pv| phase(pv) != "Bound" && (!amid || is_terminating(pv));
            pvs.iter().all(due)
        });
        std::thread::sleep(Duration::from_micros(delay));
        provisioner.kill();
        let is_due = |pv: &PersistentVolume| is_terminating(pv) || phase(pv) == "Released";
        interrupted += usize::from(stage.pvs_at(path).iter().any(is_due));
        provisioner = stage.provisioner();
    }
    interrupted
}

#[test]
fn kill_9_at_any_moment_never_leaks_data_and_never_wipes_what_can_be_bound() {
    let set = Stage::set_with(BINARY, |options| options.eager_rebind = true);
    let stage = or_skip!(set);
    let kinds = kinds(&stage);
    let mut devices = Vec::new();
    let mut stay = Vec::new();
    let mut volumes = BTreeMap::new();
    for kind in &kinds {
        let dir = stage.class(kind.class, &kind.settings);
        for name in ["stays", "changes-hands"] {
            let (path, device) = volume(&stage, kind, &dir, name);
            devices.extend(device);
            if name == "stays" {
                stay.push((format!("{}-stays", kind.class), disk(kind, &path), path));
            } else {
                volumes.insert(kind.class, path);
            }
        }
    }
    let first = stage.provisioner();
    for (claim, disk, path) in &stay {
        stage.bind(claim, path);
        disk.write(claim);
    }
    drop(first);

    let stop = Arc::new(AtomicBool::new(false));
    let (released, turns) = channel();
    let tenants: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let disk = disk(kind, &volumes[kind.class]);
            Tenants::spawn(&stage, kind.class, disk, &stop, &released)
        })
        .collect();
    drop(released);
    let interrupted = kill_and_restart(&stage, &volumes, &turns);
    stop.store(true, Ordering::Release);
    let mut provisioner = stage.provisioner();
    let join = |tenant: std::thread::JoinHandle<usize>| {
        tenant
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    let served: Vec<usize> = tenants.into_iter().map(join).collect();
    let kills = kills();
    eprintln!("{interrupted} of {kills} kills hit a cleanup; tenants served: {served:?}");
    assert!(interrupted > 0, "no kill hit a cleanup");
    assert!(
        served.iter().all(|served| *served >= kills / kinds.len()),
        "{served:?}"
    );

    // Nothing is left: one clean, free PV for each volume, and no file and no process.
    for (kind, path) in kinds.iter().map(|kind| (kind, &volumes[kind.class])) {
        stage.available(path, None);
        assert!(disk(kind, path).is_clean(), "{}", kind.class);
        assert_eq!(cleaners_of(path), [""; 0]);
    }
    stage.still(&mut provisioner, "one PV each", || {
        let (bound, free) = (stay.len(), volumes.len());
        let pvs = stage.pvs();
        let with = |wanted: &str| pvs.iter().filter(|pv| phase(pv) == wanted).count();
        pvs.len() == bound + free && with("Bound") == bound && with("Available") == free
    });
    for (claim, disk, _) in &stay {
        assert!(disk.is_intact(claim), "{claim} was touched");
    }
}
