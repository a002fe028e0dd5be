//! The whole controller in simulated worlds: the API server, the disks and the clock are in this process, and a seed
//! decides everything that happens.
//!
//! `SIMULATION_SEED=7` runs one world and prints its log.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod host;
mod job_pod;
mod nodes;
mod process;
mod script;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use control_plane::store::EventKind;
use control_plane::{InProcess, NodeOptions, Options, resource};
use local_volume_provisioner::config::{Loaded, from_files};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::host::mark::MarkOnDisk;
use local_volume_provisioner::types::VolumeMode;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::time::sleep;

use process::{Log, NODE, Process};
use script::Script;
use world::{Disk, World, pause};

const CLASSES: [&str; 2] = ["c0", "c1"];
/// The worlds of a run of the tests.
const WORLDS: u64 = 100;
/// How long a world may take until it is at rest after its script.
const REST_LIMIT: Duration = Duration::from_mins(40);

/// How a world ended.
struct End {
    log: Vec<String>,
    violations: Vec<String>,
    wipes: u64,
}

/// Runs the world of a seed.
fn simulate(seed: u64) -> End {
    fastrand::seed(seed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run())
}

async fn run() -> End {
    process::start_clock();
    let api = InProcess::start(&Options {
        node: Some(NodeOptions::new(NODE)),
        eager_rebind: fastrand::bool(),
        ..Options::default()
    });
    let api = api.unwrap();
    create_classes(&api);
    let mut loaded = configuration();
    let world = World::new(api.store().clone(), disks());
    let mut events = api.store().subscribe();
    let watched = Arc::clone(&world);
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            match event.resource.kind {
                _ if event.kind != EventKind::Added => {}
                "PersistentVolume" => watched.check_offer(&event.object),
                "Pod" => drop(tokio::spawn(job_pod::run(
                    Arc::clone(&watched),
                    event.object,
                ))),
                _ => {}
            }
        }
    });
    let log = Log::default();
    let start = |loaded: &Loaded| Process::start(api.service(), NODE, &world, loaded, &log);
    let mut process = start(&loaded);
    let mut script = Script::new(&api, &world);
    for _ in 0..fastrand::u32(30..80) {
        pause(if fastrand::u8(..4) == 0 {
            60_000
        } else {
            4_000
        })
        .await;
        let step = if fastrand::u8(..16) == 0 {
            if fastrand::u8(..3) == 0 {
                process.stop().await;
            } else {
                process.kill().await;
            }
            pause(10_000).await;
            process = start(&loaded);
            "the process was restarted"
        } else if fastrand::u8(..24) == 0 {
            loaded = configuration();
            process.reload(&loaded);
            "the configuration was changed"
        } else {
            script.step()
        };
        let passes = process.pass.borrow().number;
        log.add(&format!("# {step} (pass {passes})"));
    }
    script.end();
    log.add("# the end of the script");
    if let Err(why) = rest(&world, &log).await {
        let not_ready = process.pass.borrow().not_ready.join("; ");
        world.violation(format!("{why} (not ready: {not_ready})"));
    }
    let (violations, wipes) = {
        let state = world.lock();
        (state.violations.clone(), state.wipes)
    };
    End {
        log: log.lines(),
        violations,
        wipes,
    }
}

fn create_classes(api: &InProcess) {
    for class in CLASSES {
        let class = json!({
            "metadata": { "name": class },
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        });
        let store = api.store();
        store.create(&resource::STORAGE_CLASSES, "", class).unwrap();
    }
}

fn configuration() -> Loaded {
    let class = |(at, name): (usize, &str)| {
        let mode = ["Filesystem", "Block"][at];
        let policy = ["Any", "EmptyOnly"][fastrand::usize(..2)];
        format!(
            "{name}: {{hostDir: /mnt/{name}, mountDir: /mnt/{name}, volumeMode: {mode}, discoveryPolicy: {policy}, cleanMethod: quick}}\n"
        )
    };
    let classes: String = CLASSES.into_iter().enumerate().map(class).collect();
    let files = BTreeMap::from([
        ("storageClassMap".to_owned(), classes),
        (
            "maxConcurrentCleanups".to_owned(),
            fastrand::u8(1..4).to_string(),
        ),
        (
            "protectReleasedData".to_owned(),
            fastrand::bool().to_string(),
        ),
        ("setPVOwnerRef".to_owned(), fastrand::bool().to_string()),
        ("useJobForCleaning".to_owned(), fastrand::bool().to_string()),
    ]);
    let loaded = from_files(&files).unwrap();
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    loaded
}

fn disks() -> Vec<Disk> {
    let some = |at: u32| {
        let class = fastrand::usize(..2);
        let is_block = class == 1 || fastrand::bool();
        let global = GlobalIdentity {
            hash: format!("{at:032}"),
            is_unique: fastrand::bool(),
            is_shared: false,
        };
        disk(at, class, is_block, global)
    };
    (0..fastrand::u32(1..7)).map(some).collect()
}

fn disk(at: u32, class: usize, is_block: bool, global: GlobalIdentity) -> Disk {
    Disk {
        class: CLASSES[class].to_owned(),
        path: format!("/mnt/{}/d{at}", CLASSES[class]),
        kind: if is_block {
            VolumeMode::Block
        } else {
            VolumeMode::Filesystem
        },
        global,
        is_present: true,
        hangs: false,
        mark: MarkOnDisk::Absent,
        data: None,
        mounted_for: BTreeSet::new(),
        is_wiped: false,
        next_wipe_fails: false,
        lock: None,
        is_locked_by_job: false,
    }
}

/// Waits until every volume is in use or offered, and the API server has been idle for a minute.
async fn rest(world: &World, log: &Log) -> Result<(), String> {
    let mut waited = Duration::ZERO;
    let minute = Duration::from_mins(1);
    loop {
        let before = log.lines().len();
        sleep(minute).await;
        waited += minute;
        let lines = log.lines();
        let mut requests = lines[before..].iter();
        let request = requests.find(|line| !line.contains("watch=true"));
        let why = match (unsettled(world), request) {
            (None, None) => return Ok(()),
            (Some(why), _) => why,
            (None, Some(request)) => format!("the API server is not idle: {request}"),
        };
        if waited > REST_LIMIT {
            return Err(why);
        }
    }
}

/// Why the world is not at rest.
fn unsettled(world: &World) -> Option<String> {
    let pvs = world.pvs();
    let state = world.lock();
    state.disks.iter().find_map(|disk| {
        let path = &disk.path;
        let pvs = pvs.iter().filter(|pv| pv["spec"]["local"]["path"] == *path);
        let [pv] = pvs.collect::<Vec<_>>()[..] else {
            return Some(format!("{path} is not offered"));
        };
        let (phase, name) = (&pv["status"]["phase"], &pv["metadata"]["name"]);
        if pv["metadata"]["deletionTimestamp"].is_string() {
            return Some(format!("PV {name} of {path} is Terminating"));
        }
        match phase.as_str() {
            Some("Bound") => None,
            Some("Available") if disk.data.is_none() => None,
            _ => Some(format!(
                "PV {name} of {path} is {phase}, data: {:?}",
                disk.data
            )),
        }
    })
}

fn assert_holds(seed: u64, end: &End) {
    let last = end.log.len().saturating_sub(60);
    assert!(
        end.violations.is_empty(),
        "{}\n{}\nSIMULATION_SEED={seed} runs this world again",
        end.log[last..].join("\n"),
        end.violations.join("\n"),
    );
}

#[test]
fn same_seed_gives_the_same_requests() {
    for seed in 0..5 {
        let (one, other) = (simulate(seed).log, simulate(seed).log);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("seed {seed}, line {at}:\n{}\n{}", one[at], other[at]);
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

#[test]
fn data_is_kept_and_every_volume_is_offered_again() {
    if let Ok(seed) = std::env::var("SIMULATION_SEED") {
        let seed = seed.parse().unwrap();
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
        log.without_time().with_test_writer().init();
        let end = simulate(seed);
        println!("{}", end.log.join("\n"));
        return assert_holds(seed, &end);
    }
    let first = support::seed() * 1_000_000;
    let (next, wipes) = (AtomicU64::new(first), AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + WORLDS {
                        return;
                    }
                    let end = simulate(seed);
                    assert_holds(seed, &end);
                    wipes.fetch_add(end.wipes, Ordering::Relaxed);
                }
            });
        }
    });
    let wipes = wipes.into_inner();
    println!("{wipes} wipes");
    assert!(wipes > WORLDS, "too little happens: {wipes} wipes");
}
