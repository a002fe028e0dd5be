//! The whole controller in simulated worlds: the API server, the machines and the clocks are in this process, and a seed
//! decides everything that happens.
//!
//! `SIMULATION_SEED=7` runs one world and prints its log.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod admin;
mod backups;
mod checks;
mod host;
mod job_pod;
mod nodes;
mod objects;
mod process;
mod processes;
mod script;
mod small_key;
mod small_pass;
mod small_state;
mod small_world;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use control_plane::store::EventKind;
use control_plane::{InProcess, NodeOptions, Options, resource};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::types::VolumeMode;
use local_volume_provisioner::view::Tenancy;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::time::sleep;

use process::{Log, Process};
use processes::{Processes, configuration};
use script::Script;
use world::{CLASSES, Disk, NODES, Slot, World, pause};

/// The worlds that are run once for each durable effect.
const CRASHED: u64 = 10;
/// How long a world may take until it is at rest after its script.
const REST_LIMIT: Duration = Duration::from_hours(1);
/// How long volumes may be held until an administrator gives the consents that they require.
const CONSENT_AFTER: Duration = Duration::from_mins(10);

/// How large a world is.
#[derive(Clone, Copy, Debug)]
struct Size {
    nodes: usize,
    /// The disks of a node.
    disks: (usize, usize),
    /// The steps of its script.
    steps: (u32, u32),
    /// The longest pause between two steps, in milliseconds.
    pause: u64,
}

const SMALL: Size = Size {
    nodes: 2,
    disks: (1, 4),
    steps: (40, 80),
    pause: 60_000,
};

/// About an hour with twenty volumes.
const FULL: Size = Size {
    nodes: 2,
    disks: (10, 12),
    steps: (200, 210),
    pause: 120_000,
};

/// Repeated for each of its durable effects.
const TINY: Size = Size {
    nodes: 1,
    disks: (1, 3),
    steps: (15, 30),
    pause: 60_000,
};

/// How a world ended.
struct End {
    log: Vec<String>,
    violations: Vec<String>,
    wipes: u64,
    effects: u64,
}

/// Runs the world of a seed. With `crash_after`, a process crashes after that durable effect.
fn simulate(seed: u64, size: Size, crash_after: Option<u64>) -> End {
    fastrand::seed(seed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(size, crash_after))
}

async fn run(size: Size, crash_after: Option<u64>) -> End {
    process::start_clock();
    let api = InProcess::start(&Options {
        node: Some(NodeOptions::new(NODES[0])),
        eager_rebind: fastrand::bool(),
        ..Options::default()
    });
    let api = api.unwrap();
    create_classes(&api);
    create_nodes(&api, size.nodes);
    let loaded = configuration(false);
    let (disks, slots) = machines(size);
    let world = World::new(api.store().clone(), disks, slots);
    world.lock().crash_after = crash_after;
    let log = Log::default();
    watch(&api, &world, &log);
    let mut processes = Processes {
        api: &api,
        world: &world,
        log,
        loaded,
        running: Vec::new(),
    };
    for node in 0..size.nodes {
        processes.start(node);
    }
    let mut script = Script::new(&api, &world, size.nodes);
    for _ in 0..fastrand::u32(size.steps.0..=size.steps.1) {
        let is_long = fastrand::u8(..4) == 0;
        pause(if is_long { size.pause } else { 4_000 }).await;
        processes.restart_crashed().await;
        let of_processes = processes.step().await;
        let step = of_processes.unwrap_or_else(|| script.step());
        processes.log.add(&format!("# {step}"));
    }
    script.end();
    processes.restart_crashed().await;
    processes.end_updates().await;
    processes.reload(configuration(false));
    processes.log.add("# the end of the script");
    if let Err(why) = rest(&mut processes, &script).await {
        let held = processes.running.iter().flat_map(Process::held);
        let held =
            held.map(|(it, why)| format!("{} {:?} {:?}: {why}", it.path, it.state, it.reason));
        let held: Vec<_> = held.collect();
        world.violation(&format!("{why}\n{}", held.join("\n")));
    }
    let state = world.lock();
    End {
        log: processes.log.lines(),
        violations: state.violations.clone(),
        wipes: state.wipes,
        effects: state.effects,
    }
}

/// Checks new PVs, and runs the pods of Jobs.
fn watch(api: &InProcess, world: &Arc<World>, log: &Log) {
    let mut events = api.store().subscribe();
    let (world, log) = (Arc::clone(world), log.clone());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            let (kind, name) = (event.resource.kind, &event.object["metadata"]["name"]);
            log.add(&format!(
                "= {kind} {name} {:?} {}",
                event.kind, event.object["metadata"]["resourceVersion"]
            ));
            match event.resource.kind {
                "PersistentVolume" if event.kind == EventKind::Deleted => {
                    let uid = checks::uid(&event.object).to_owned();
                    world.lock().gone_at.insert(uid, process::elapsed());
                }
                _ if event.kind != EventKind::Added => {}
                "PersistentVolume" => world.check_offer(&event.object),
                "Pod" => {
                    let pod = job_pod::run(Arc::clone(&world), event.object);
                    tokio::spawn(pod);
                }
                _ => {}
            }
        }
    });
}

fn create_nodes(api: &InProcess, nodes: usize) {
    for name in &NODES[1..nodes] {
        let labels = json!({ "kubernetes.io/hostname": name });
        let node = json!({ "metadata": { "name": name, "labels": labels }, "spec": {} });
        api.store().create(&resource::NODES, "", node).unwrap();
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

/// The disks and slots of all nodes. Each directory has an empty slot.
fn machines(size: Size) -> (Vec<Disk>, Vec<Slot>) {
    let (mut disks, mut slots) = (Vec::new(), Vec::new());
    for node in 0..size.nodes {
        let mut entries = [0; CLASSES.len()];
        for _ in 0..fastrand::usize(size.disks.0..=size.disks.1) {
            let class = fastrand::usize(..CLASSES.len());
            let is_block = class == 1 || fastrand::bool();
            let kind = if is_block {
                VolumeMode::Block
            } else {
                VolumeMode::Filesystem
            };
            let at = disks.len();
            let global = GlobalIdentity {
                hash: format!("{at:032}"),
                is_unique: fastrand::bool(),
                is_shared: false,
            };
            disks.push(Disk::new(kind, 1 + at as u64, global));
            slots.push(Slot::new(node, class, entries[class], Some(at)));
            entries[class] += 1;
        }
        for (class, entry) in entries.into_iter().enumerate() {
            slots.push(Slot::new(node, class, entry, None));
        }
    }
    (disks, slots)
}

/// Waits until every volume is in use or offered, and the API server has been idle for ten passes. Volumes that stay held
/// get the consents that their reports name.
async fn rest(processes: &mut Processes<'_>, script: &Script<'_>) -> Result<(), String> {
    let mut waited = Duration::ZERO;
    let idle = Duration::from_secs(105);
    loop {
        let before = processes.log.lines().len();
        sleep(idle).await;
        waited += idle;
        processes.restart_crashed().await;
        let lines = processes.log.lines();
        // A PV whose label an administrator removed is read each minute while its claim keeps it.
        let is_read = |line: &str| line.contains("GET /api/v1/persistentvolumes/");
        let is_request = |line: &&String| {
            !line.contains(" = ")
                && !line.contains("watch=true")
                && (script.is_calm || !is_read(line))
        };
        let request = lines[before..].iter().find(is_request);
        let pvs = script.world.pvs();
        let is_gone = |it: &Tenancy| pvs.iter().all(|pv| checks::uid(pv) != it.pv_uid);
        let left = processes.running.iter().flat_map(Process::cleanups);
        let left: Vec<_> = left.filter(is_gone).collect();
        let unsettled = script.world.unsettled();
        let why = match (&unsettled, request) {
            (None, _) if !left.is_empty() => format!("cleanups are not forgotten: {left:?}"),
            (None, None) => return Ok(()),
            (Some(why), _) => why.clone(),
            (None, Some(request)) => format!("the API server is not idle: {request}"),
        };
        if waited > REST_LIMIT {
            return Err(why);
        }
        // Without an administrator's fault, no volume needs a decision.
        if waited > CONSENT_AFTER && script.is_calm {
            return Err(why);
        }
        if unsettled.is_some() && waited > CONSENT_AFTER {
            for process in &processes.running {
                script.consent(process);
            }
        }
    }
}

/// Runs worlds on all processors, or until the first failure if `SIMULATION_FIRST` is set. Returns the wipes, and the worlds
/// in which something is wrong.
fn simulate_all<W>(worlds: &[W], simulate: impl Fn(&W) -> End + Sync) -> (u64, Vec<(&W, End)>)
where
    W: Sync,
{
    let (next, wipes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let is_first = number("SIMULATION_FIRST").is_some();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(world) = worlds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let end = simulate(world);
                    if is_first && !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    wipes.fetch_add(end.wipes, Ordering::Relaxed);
                    if !end.violations.is_empty() {
                        failed.lock().unwrap().push((world, end));
                    }
                }
            });
        }
    });
    (wipes.into_inner(), failed.into_inner().unwrap())
}

/// Fails with the story of the first world in which something is wrong, and a line for each other one.
fn assert_none<W: std::fmt::Debug>(failed: &[(&W, End)]) {
    for (world, end) in failed {
        println!("world {world:?}: {}", end.violations.join("; "));
    }
    if let [(world, end), ..] = failed {
        let fault = end.violations.first().map(|it| it.lines().next());
        println!("found: {}", fault.flatten().unwrap_or_default());
        let last = end.log.len().saturating_sub(60);
        panic!(
            "{} worlds failed; {world:?}:\n{}\n{}",
            failed.len(),
            end.log[last..].join("\n"),
            end.violations.join("\n"),
        );
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

/// This number of worlds, always the same ones; or as many others as the environment says.
fn seeds(count: u64) -> Range<u64> {
    number("SIMULATION_WORLDS").map_or(0..count, |count| {
        let first = support::seed() * 1_000_000;
        first..first + count
    })
}

/// Worlds of a size. The environment says how many, or which one, with its log.
fn worlds(size: Size, count: u64) {
    if let Some(seed) = number("SIMULATION_SEED") {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
        let _ = log.without_time().with_test_writer().try_init();
        let end = simulate(seed, size, None);
        println!("{}", end.log.join("\n"));
        return assert_none(&[(&seed, end)]);
    }
    let seeds: Vec<_> = seeds(count).collect();
    let (wipes, failed) = simulate_all(&seeds, |seed| simulate(*seed, size, None));
    let first = failed.iter().map(|it| *it.0).min();
    let searched = first.map_or(seeds.len() as u64, |first| first - seeds[0] + 1);
    println!("searched: {searched} worlds");
    println!("{} worlds, {wipes} wipes", seeds.len());
    assert_none(&failed);
    assert!(
        wipes > seeds.len() as u64,
        "too little happens: {wipes} wipes"
    );
}

#[test]
fn same_seed_gives_the_same_requests() {
    for seed in 0..5 {
        let [one, other] = [(); 2].map(|()| simulate(seed, SMALL, None).log);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("seed {seed}, line {at}:\n{}\n{}", one[at], other[at]);
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

#[test]
fn data_is_kept_and_every_volume_is_offered_again() {
    worlds(SMALL, 1000);
}

#[test]
fn twenty_volumes_are_kept_and_offered_again() {
    worlds(FULL, 100);
}

/// A process dies right after each of its durable effects, one in each run.
#[test]
fn a_crash_after_any_durable_effect_leaks_nothing() {
    let mut moments = Vec::new();
    for seed in seeds(CRASHED) {
        let effects = simulate(seed, TINY, None).effects;
        moments.extend((1..=effects).map(|after| (seed, after)));
    }
    let (_, failed) = simulate_all(&moments, |(seed, after)| {
        simulate(*seed, TINY, Some(*after))
    });
    println!("{} crashes", moments.len());
    assert_none(&failed);
}
