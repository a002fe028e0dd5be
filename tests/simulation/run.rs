//! One world, from its begin until it is at rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use control_plane::store::EventKind;
use control_plane::{InProcess, NodeOptions, Options, resource};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::types::VolumeMode;
use local_volume_provisioner::view::Tenancy;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::process::{self, Log, Process};
use crate::processes::{Processes, configuration};
use crate::script::Script;
use crate::world::{CLASSES, Disk, NODES, Slot, World, pause};
use crate::{checks, job_pod};

/// How long a world may take until it is at rest after its script.
const REST_LIMIT: Duration = Duration::from_hours(1);
/// How long volumes may be held until an administrator gives the consents that they require.
const CONSENT_AFTER: Duration = Duration::from_mins(10);

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    /// The disks of a node.
    pub disks: (usize, usize),
    /// The steps of its script.
    pub steps: (u32, u32),
    /// The longest pause between two steps, in milliseconds.
    pub pause: u64,
    /// The binding of all classes.
    pub binding: &'static str,
    /// Whether the classes take in disks by rule.
    pub has_rules: bool,
    /// Whether the first class makes filesystems on them.
    pub makes_filesystems: bool,
}

/// Which world it is.
#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    pub size: Size,
    /// A process crashes after this durable effect.
    pub crash_after: Option<u64>,
    /// The steps of the script that are left out.
    pub without: BTreeSet<u32>,
}

/// How a world ended.
#[derive(Debug)]
pub struct End {
    pub log: Vec<String>,
    pub violations: Vec<String>,
    pub wipes: u64,
    /// How often a link was followed.
    pub links: u64,
    /// How many PVs another node has taken over.
    pub taken: u64,
    /// How many disks were taken in by rule.
    pub entries: u64,
    pub effects: u64,
    /// How many steps its script had.
    pub steps: u32,
}

impl Run {
    pub fn new(seed: u64, size: Size) -> Self {
        Self { seed, size, crash_after: None, without: BTreeSet::new() }
    }

    pub fn simulate(&self) -> End {
        in_virtual_time(self.seed, run(self))
    }
}

/// Runs a world on this thread, with random numbers from a seed and a clock that jumps to the next timer.
pub fn in_virtual_time<T>(seed: u64, world: impl Future<Output = T>) -> T {
    fastrand::seed(seed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(world)
}

async fn run(this: &Run) -> End {
    let size = this.size;
    process::start_clock();
    let api = InProcess::start(&Options {
        node: Some(NodeOptions::new(NODES[0])),
        eager_rebind: fastrand::bool(),
        ..Options::default()
    });
    let api = api.unwrap();
    create_classes(&api);
    create_nodes(&api, size.nodes);
    let approve = ["Auto", "Plan"][usize::from(this.seed.is_multiple_of(2))];
    let approve = Some(approve).filter(|_| size.has_rules);
    let loaded = configuration(false, size, approve);
    let (disks, slots) = machines(size);
    let world = World::new(api.store().clone(), disks, slots);
    world.lock().crash_after = this.crash_after;
    world.lock().spares.approve = approve;
    world.lock().spares.makes = size.makes_filesystems;
    if size.makes_filesystems {
        world.lock().add_blank(size.nodes);
    }
    let log = Log::default();
    watch(&api, &world, &log);
    let mut processes =
        Processes { api: &api, world: &world, log, loaded, size, running: Vec::new(), off: None };
    for node in 0..size.nodes {
        processes.start(node);
    }
    let mut script = Script::new(&api, &world, size.nodes);
    let steps = fastrand::u32(size.steps.0..=size.steps.1);
    for step in 0..steps {
        // A step that is left out changes no other one.
        fastrand::seed(this.seed ^ u64::from(step + 1).rotate_left(32));
        let is_long = fastrand::u8(..4) == 0;
        pause(if is_long { size.pause } else { 4_000 }).await;
        processes.restart_crashed().await;
        if this.without.contains(&step) {
            continue;
        }
        let mut done = None;
        if size.binding == "disk" && !script.is_calm {
            done = processes.step_of_machines().await;
        }
        if done.is_none() {
            done = processes.step_of_filesystems().await;
        }
        done = done.or_else(|| processes.step_of_disks(script.is_calm));
        if done.is_none() {
            done = processes.step().await;
        }
        let step = done.unwrap_or_else(|| script.step());
        processes.log.add(&format!("# {step}"));
    }
    processes.power_on();
    script.end();
    processes.restart_crashed().await;
    processes.end_updates().await;
    processes.boot_some(size.nodes).await;
    processes.reload(configuration(false, size, approve));
    processes.log.add("# the end of the script");
    if let Err(why) = rest(&mut processes, &script).await {
        let held = processes.running.iter().flat_map(Process::held);
        let held =
            held.map(|(it, why)| format!("{} {:?} {:?}: {why}", it.path, it.state, it.reason));
        let held: Vec<_> = held.chain(processes.left_alone()).collect();
        world.violation(&format!("{why}\n{}", held.join("\n")));
    }
    let state = world.lock();
    End {
        log: processes.log.lines(),
        violations: state.violations.clone(),
        wipes: state.wipes,
        links: state.bindings.mounts,
        taken: state.bindings.homes.taken,
        entries: state.spares.entries,
        effects: state.effects,
        steps,
    }
}

/// Checks new PVs, and runs the pods of Jobs.
pub fn watch(api: &InProcess, world: &Arc<World>, log: &Log) {
    let mut events = api.store().subscribe();
    let (world, log) = (Arc::clone(world), log.clone());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            let (kind, name) = (event.resource.kind, &event.object["metadata"]["name"]);
            log.add(&format!(
                "= {kind} {name} {:?} {}",
                event.kind, event.object["metadata"]["resourceVersion"]
            ));
            if event.resource.kind == "PersistentVolume" && event.kind != EventKind::Deleted {
                world.check_home(&event.object);
            }
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

pub fn create_nodes(api: &InProcess, nodes: usize) {
    for name in &NODES[1..nodes] {
        let labels = json!({ "kubernetes.io/hostname": name });
        let node = json!({ "metadata": { "name": name, "labels": labels }, "spec": {} });
        api.store().create(&resource::NODES, "", node).unwrap();
    }
}

pub fn create_classes(api: &InProcess) {
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
            let kind = if is_block { VolumeMode::Block } else { VolumeMode::Filesystem };
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
        processes.approve_all();
        processes.follow_all();
        let unsettled = script.world.unsettled();
        let unsettled = unsettled.or_else(|| script.world.lock().untaken());
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
                script.world.check_told(process);
                script.consent(process);
            }
        }
    }
}
