//! The power fails while volumes are being cleaned.
//!
//! QEMU is killed: what the machine had not yet given to its disks is lost. What a disk had in a cache of
//! its own is not.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::Random;
use support::stage::{is_terminating, name, phase, uid};

use crate::bench::Bench;
use crate::disk::{Disk, MIB, Place};

mod marks;

/// Volumes of each method. All of two methods are cleaned at a time.
fn each() -> usize {
    if support::slow() { 8 } else { 4 }
}

/// Volumes of each method that have to be hit in mid-cleanup, each at its own moment: 30, or a tenth of that without
/// the slow tests.
fn moments() -> usize {
    if support::slow() { 30 } else { 3 }
}

/// Cuts after which that must have happened.
const CUTS: u32 = 15;
/// The longest time, in milliseconds, from the beginning of some cleanups to the cut.
const LATEST_CUT: u64 = 500;
/// What all disks together write in a second while the cut is awaited.
const SLOWLY: u64 = 4 * MIB;

/// One way to clean, and how often the power was cut in the middle of it.
#[derive(Clone)]
struct Method {
    name: &'static str,
    fs_type: Option<&'static str>,
    moments: usize,
}

impl Method {
    fn all() -> [Self; 6] {
        let method = |name, fs_type| Self { name, fs_type, moments: 0 };
        [
            method("quick", None),
            method("zero", None),
            method("overwrite", None),
            method("discard", None),
            method("ext4", Some("ext4")),
            method("xfs", Some("xfs")),
        ]
    }
}

/// How far the cleaning of a volume is.
#[derive(PartialEq, Eq)]
enum State {
    Waiting,
    /// Its PV was committed to it, and is still there.
    Cleaning,
    Done,
}

/// A volume, and the PV that it is bound to or was last.
struct Volume {
    method: &'static str,
    fs_type: Option<&'static str>,
    disk: Disk,
    place: Place,
    path: PathBuf,
    bound: Option<PersistentVolume>,
}

impl Volume {
    fn claim(&self) -> String {
        format!("of-{}", self.disk.name())
    }

    /// Whether a new PV offers it.
    fn is_offered_again(&self, bench: &Bench) -> bool {
        let old = self.bound.as_ref().map(uid);
        bench
            .stage
            .pvs_at(&self.path)
            .iter()
            .any(|pv| Some(uid(pv)) != old && phase(pv) == "Available")
    }

    /// What became of it after its release, as these PVs show.
    fn state(&self, pvs: &[PersistentVolume]) -> State {
        let old = self.bound.as_ref().map(uid);
        match pvs.iter().find(|pv| Some(uid(pv)) == old) {
            None => State::Done,
            Some(pv) if is_terminating(pv) => State::Cleaning,
            Some(_) => State::Waiting,
        }
    }
}

/// What is left of tenants' data on some volumes: read all at once, as the machine is slow.
fn left<'a>(bench: &Bench, volumes: impl Iterator<Item = &'a Volume>) -> Vec<String> {
    let (devices, filesystems): (Vec<_>, Vec<_>) =
        volumes.partition(|volume| volume.fs_type.is_none());
    let dirty = devices.iter().filter(|volume| !volume.disk.is_zero());
    let mut left: Vec<_> = dirty.map(|volume| volume.disk.name().to_owned()).collect();
    let paths: Vec<_> =
        filesystems.iter().map(|volume| volume.path.display().to_string()).collect();
    if !paths.is_empty() {
        let paths = paths.join(" ");
        let found = bench.run(&format!("find {paths} -mindepth 1 ! -name lost+found"));
        left.extend(found.lines().map(str::to_owned));
    }
    left
}

fn volumes(bench: &Bench, methods: &[Method], each: usize) -> Vec<Volume> {
    let mut volumes = Vec::new();
    for method in methods {
        let settings = match method.fs_type {
            Some(_) => json!({}),
            None if method.name == "overwrite" => {
                json!({ "blockCleanerCommand": ["/scripts/shred.sh", "1"] })
            }
            None => json!({ "cleanMethod": method.name }),
        };
        let dir = match method.fs_type {
            Some(_) => bench.stage.class(method.name, &settings),
            None => bench.raw_class(method.name, &settings),
        };
        for nth in 0..each {
            let place = Place::Scsi(u8::try_from(volumes.len()).unwrap());
            let name = format!("{}-{nth}", method.name);
            // The smallest that mkfs.xfs makes.
            let size = if method.fs_type == Some("xfs") { 300 } else { 4 } * MIB;
            let disk = bench.empty_disk(&name, size);
            let path = if let Some(fs_type) = method.fs_type {
                disk.format(fs_type);
                bench.stage.sandbox.dir(&format!("disks/{}/{name}", method.name)).unwrap()
            } else {
                place.offer(&dir)
            };
            let fs_type = method.fs_type;
            volumes.push(Volume { method: method.name, fs_type, disk, place, path, bound: None });
        }
    }
    volumes
}

/// Switches the machine on and mounts the filesystems, before the provisioner is started.
fn boot(bench: &Bench, volumes: &[Volume]) {
    let disks: Vec<_> = volumes.iter().map(|volume| (volume.disk.slow(), volume.place)).collect();
    let disks: Vec<_> = disks.iter().map(|(disk, place)| (disk, *place)).collect();
    bench.boot(&disks);
    bench.with_vm(|vm| vm.slow_down_to(0));
    let mounts = volumes.iter().filter_map(|volume| {
        let (device, path) = (volume.place.path(), volume.path.display());
        Some(format!("mount -t {} {} {path}", volume.fs_type?, device.display()))
    });
    bench.run(&mounts.collect::<Vec<_>>().join(" && "));
}

/// Waits until all volumes are offered by new PVs, and reads what is left on them.
fn all_clean(bench: &Bench, volumes: &[Volume]) {
    for volume in volumes {
        let what = format!("{} is offered", volume.path.display());
        bench.stage.eventually(&what, || volume.is_offered_again(bench));
    }
    assert_eq!(left(bench, volumes.iter()), [""; 0], "offered with data");
}

/// Tenants take all volumes and write to all of them.
fn fill(bench: &Bench, volumes: &mut [Volume]) {
    let stage = &bench.stage;
    for volume in volumes.iter_mut() {
        let pv = stage.available(&volume.path, None);
        let (class, mode) = match volume.fs_type {
            Some(fs_type) => (fs_type, "Filesystem"),
            None => (volume.method, "Block"),
        };
        stage.claim_in_mode(&volume.claim(), class, Some(&name(&pv)), mode);
        volume.bound = Some(pv);
    }
    bench.run("head -c 4194304 /dev/urandom >/run/secret; mkdir -p /run/tree/deep");
    bench.run("cd /run/tree; for f in $(seq 60); do echo secret >$f; echo secret >deep/$f; done");
    let fills = volumes.iter().map(|volume| {
        let path = volume.path.display();
        match volume.fs_type {
            Some(_) => format!("cp -r /run/tree {path}"),
            None => format!("dd if=/run/secret of={path} bs=1M oflag=direct"),
        }
    });
    let fills: Vec<_> = fills.collect();
    bench.run(&format!("({}) 2>&1 && sync", fills.join(" && ")));
}

/// Tenants take all volumes and use all of them.
fn occupy(bench: &Bench, volumes: &mut [Volume]) {
    fill(bench, volumes);
    for volume in volumes.iter() {
        bench.stage.used(volume.bound.as_ref().unwrap());
    }
}

/// Takes all volumes away from their tenants, and the power from the machine.
fn release_and_cut(bench: &Bench, random: &mut Random, volumes: &[Volume], methods: &mut [Method]) {
    bench.with_vm(|vm| vm.slow_down_to(SLOWLY));
    // Aimed at what was hit least, and so released first: filesystems are emptied in no time.
    methods.sort_by_key(|method| method.moments);
    let aim = methods.first().map(|method| method.name);
    for method in &*methods {
        for volume in volumes.iter().filter(|it| it.method == method.name) {
            bench.stage.delete_claim(&volume.claim());
        }
    }
    let wanted = 1 + random.below(each() as u64);
    bench.stage.eventually("the cleanups begin", || {
        let pvs = bench.stage.pvs();
        let has_begun =
            |volume: &&Volume| Some(volume.method) == aim && volume.state(&pvs) != State::Waiting;
        volumes.iter().filter(has_begun).count() as u64 >= wanted
    });
    let delay = random.below(LATEST_CUT);
    std::thread::sleep(Duration::from_millis(delay));
    bench.cut_power();
    let pvs = bench.stage.pvs();
    for method in methods {
        let hit = |volume: &&Volume| {
            volume.method == method.name && volume.state(&pvs) == State::Cleaning
        };
        method.moments += volumes.iter().filter(hit).count();
    }
}

#[test]
fn a_power_cut_at_any_moment_leaks_nothing_and_the_cleanup_starts_again() {
    let bench = or_skip!(Bench::set());
    // If all volumes are inspected at once, a busy machine answers none of them in time.
    let at_once = (2 * each()).to_string();
    bench.stage.configure("maxConcurrentCleanups", &at_once);
    let mut methods = Method::all();
    let mut volumes = volumes(&bench, &methods, each());
    let mut random = Random::seeded();
    let mut cuts = 0;
    let begun = Instant::now();
    boot(&bench, &volumes);
    bench.start_provisioner();
    all_clean(&bench, &volumes);
    let wanted = moments();
    while methods.iter().any(|method| method.moments < wanted) {
        assert!(cuts < CUTS, "not all methods were hit {wanted} times in {cuts} cuts");
        cuts += 1;
        occupy(&bench, &mut volumes);
        release_and_cut(&bench, &mut random, &volumes, &mut methods);
        let hits: Vec<_> = methods.iter().map(|method| (method.name, method.moments)).collect();
        eprintln!("{:?}: {cuts} cuts, cleanups hit: {hits:?}", begun.elapsed());
        boot(&bench, &volumes);
        // Before anything is cleaned once more.
        let offered = volumes.iter().filter(|volume| volume.is_offered_again(&bench));
        assert_eq!(left(&bench, offered), [""; 0], "was offered with data");
        bench.start_provisioner();
        all_clean(&bench, &volumes);
    }
}
