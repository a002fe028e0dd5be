//! `kill -9` at random moments of cleanups of all kinds, while somebody wants the volumes all the time,
//! and beside volumes that stay in use.

mod disk;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use support::stage::{is_terminating, phase};
use support::{LoopDevice, Stage};

use super::BINARY;
use disk::{DEVICE_SIZE, Disk};
use tenants::{Tenants, cleaners_of};

const KILLS: usize = 30;
/// The same in the slow tier.
const SLOW_KILLS: usize = 500;
/// So many more, for cleanups that were never hit because they are over in a moment.
const MORE_KILLS: usize = 60;
/// Microseconds after the release: most cleanups have ended by then.
const LATEST_KILL: usize = 80_000;
/// Microseconds after the PV's deletion.
const AMID_WIPE: usize = 15_000;
/// Nobody comes earlier than that on purpose.
const EARLIEST: usize = 200;

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

/// xorshift64*: good enough to spread kills.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed: u64 = match std::env::var("CRASH_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap()
                .subsec_nanos()
                .into(),
        };
        eprintln!("to have the same delays again: CRASH_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(random).unwrap() % limit
    }
}

/// How many kills hit a class's cleanup before, while and after its PV was Terminating.
#[derive(Debug, Default)]
struct Hits {
    released: usize,
    terminating: usize,
    over: usize,
}

impl Hits {
    fn count(&mut self, pv: Option<&PersistentVolume>) {
        match pv {
            Some(pv) if is_terminating(pv) => self.terminating += 1,
            Some(pv) if phase(pv) == "Released" => self.released += 1,
            _ => self.over += 1,
        }
    }

    /// In many kills a cleanup is hit in either state, in few at least in one.
    fn are_enough(&self) -> bool {
        let (released, terminating) = (self.released > 0, self.terminating > 0);
        if support::slow() {
            released && terminating
        } else {
            released || terminating
        }
    }
}

/// When to kill during the cleanups of a class: earlier after each that was over by then, since how
/// long they take is the machine's and the API server's affair.
struct Aim {
    released: usize,
    terminating: usize,
}

impl Aim {
    const FIRST: Self = Self {
        released: LATEST_KILL,
        terminating: AMID_WIPE,
    };

    fn limit(&mut self, amid: bool) -> &mut usize {
        if amid {
            &mut self.terminating
        } else {
            &mut self.released
        }
    }

    fn missed(&mut self, amid: bool) {
        let limit = self.limit(amid);
        *limit = (*limit / 2).max(EARLIEST);
    }
}

type AllHits = BTreeMap<&'static str, Hits>;

fn is_at(pv: &PersistentVolume, path: &Path) -> bool {
    let local = pv.spec.as_ref().and_then(|spec| spec.local.as_ref());
    local.is_some_and(|local| Path::new(&local.path) == path)
}

/// Each class in turn: none is killed so often that it never comes to its end. Then more of those
/// that were not hit.
fn kill_and_restart(
    stage: &Stage,
    random: &mut Random,
    volumes: &BTreeMap<&'static str, PathBuf>,
    releases: &Receiver<&'static str>,
) -> AllHits {
    let mut hits: AllHits = volumes
        .keys()
        .map(|class| (*class, Hits::default()))
        .collect();
    let mut aims: BTreeMap<_, _> = volumes.keys().map(|class| (*class, Aim::FIRST)).collect();
    let mut ready = BTreeSet::new();
    let mut provisioner = stage.provisioner().unwrap();
    let turns = volumes.iter().cycle().enumerate();
    for (turn, (class, path)) in turns.take(kills() + MORE_KILLS) {
        if turn >= kills() && hits[class].are_enough() {
            continue;
        }
        while !ready.remove(class) {
            match releases.recv_timeout(3 * stage.patience()) {
                Ok(class) => {
                    ready.insert(class);
                }
                // A tenant has failed; who joins it learns why.
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return hits,
            }
        }
        // Every second time at any moment from the release on, else when data is being destroyed.
        let amid = random.below(2) == 1;
        let aim = aims.get_mut(class).unwrap();
        let delay = random.below(*aim.limit(amid));
        stage.eventually("the volume is being cleaned", || {
            let pvs = stage.pvs_at(path);
            let due = |pv| phase(pv) != "Bound" && (!amid || is_terminating(pv));
            pvs.iter().all(due).then_some(())
        });
        std::thread::sleep(Duration::from_micros(delay as u64));
        let pvs = stage.pvs();
        for (class, path) in volumes {
            let pv = pvs.iter().find(|pv| is_at(pv, path));
            hits.get_mut(class).unwrap().count(pv);
        }
        if !pvs
            .iter()
            .any(|pv| is_at(pv, path) && (is_terminating(pv) || phase(pv) == "Released"))
        {
            aim.missed(amid);
        }
        provisioner.kill();
        provisioner = stage.provisioner().unwrap();
    }
    hits
}

#[test]
fn kill_9_at_any_moment_never_leaks_data_and_never_wipes_what_can_be_bound() {
    let set = Stage::set_with(BINARY, |options| options.eager_rebind = true);
    let Some(stage) = set else { return };
    let kinds = kinds(&stage);
    let mut devices = Vec::new();
    let mut stay = Vec::new();
    let mut volumes = BTreeMap::new();
    for kind in &kinds {
        let dir = stage.class(kind.class, &kind.settings).unwrap();
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
    let first = stage.provisioner().unwrap();
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
    let hits = kill_and_restart(&stage, &mut Random::seeded(), &volumes, &turns);
    stop.store(true, Ordering::Release);
    let mut provisioner = stage.provisioner().unwrap();
    let join = |tenant: std::thread::JoinHandle<usize>| {
        tenant
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    let served: Vec<usize> = tenants.into_iter().map(join).collect();
    let kills = kills();
    eprintln!("{kills} kills or more: {hits:#?}; tenants served: {served:?}");
    for (class, hits) in &hits {
        assert!(hits.are_enough(), "cleanups of {class}: {hits:?}");
    }
    assert!(hits.values().any(|hits| hits.terminating > 0), "{hits:?}");
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
