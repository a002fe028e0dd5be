//! Each key of the configuration with each kind of value, on a node with a claim: the claim keeps its data, the provisioner
//! says what is wrong and so does `check-config`, and all is as before when the key is right again.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control_plane::{InProcess, NodeOptions, Options, resource};
use local_volume_provisioner::args::{CheckConfig, ConfigDir};
use local_volume_provisioner::cmd::check_config;
use local_volume_provisioner::config::{Config, Files, Loaded, from_files, rows};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::types::VolumeMode;
use serde_json::json;
use tokio::time::sleep;

use crate::on_all_processors;
use crate::process::{self, Log, Process};
use crate::run::{create_classes, in_virtual_time, watch};
use crate::world::{CLASSES, Disk, NODES, Slot, World};

/// A key, its default, and another valid value.
type Key = (&'static str, &'static str, &'static str);

const KEYS: [Key; 14] = [
    ("nodeLabelsForPV", "[]", "[kubernetes.io/hostname]"),
    ("labelsForPV", "{}", "{tier: a}"),
    ("useAlphaAPI", "false", "no"),
    ("useJobForCleaning", "false", "true"),
    ("jobTolerations", "[]", "[{operator: Exists}]"),
    ("useNodeNameOnly", "false", "true"),
    ("setPVOwnerRef", "false", "true"),
    ("removeNodeNotReadyTaint", "false", "true"),
    (
        "provisionerNotReadyNodeTaintKey",
        "sig-storage-local-static-provisioner/agent-not-ready",
        "example.com/not-ready",
    ),
    ("pauseCleaning", "false", "true"),
    ("protectReleasedData", "false", "true"),
    ("maxConcurrentCleanups", "4", "1"),
    ("logLevel", "info", "debug"),
    ("minResyncPeriod", "5m", "1m"),
];

const KEYS_OF_CLASSES: [Key; 17] = [
    ("hostDir", "/mnt/c0", "/mnt/other"),
    ("mountDir", "/mnt/c0", "/mnt/other"),
    ("blockCleanerCommand", "[/scripts/quick_reset.sh]", "[/scripts/shred.sh, '2']"),
    ("cleanMethod", "quick", "zero"),
    ("cleanupTimeout", "1h", "90s"),
    ("trim", "true", "false"),
    ("volumeMode", "Filesystem", "Block"),
    ("accessMode", "ReadWriteOnce", "ReadWriteMany"),
    ("fsType", "ext4", "xfs"),
    ("namePattern", "'*'", "d*"),
    ("selector", "[]", "[{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]"),
    ("weakIdentity", "Consent", "Accept"),
    ("discoveryPolicy", "Any", "EmptyOnly"),
    ("missingVolumePolicy", "Report", "Delete"),
    ("binding", "path", "disk"),
    ("devices", "{match: [spare*]}", "{match: [spare*], approve: Auto}"),
    ("unknownKey", "1", "2"),
];

/// Values of a wrong type or size, and absent ones, for any key.
const OTHERS: [&str; 10] =
    ["null", "''", "nonsense", "[]", "{}", "[{a: [b]}]", "-1", "1.5", "true", "HUGE"];

/// A key with a value, of the first class or outside of the classes.
#[derive(Clone, Debug)]
struct Case {
    key: &'static str,
    value: &'static str,
    of_class: bool,
}

fn cases() -> Vec<Case> {
    let of = |keys: &[Key], of_class| {
        let mut cases = Vec::new();
        for (key, default, other) in keys.iter().copied() {
            let values = [default, other].into_iter().chain(OTHERS);
            cases.extend(values.map(|value| Case { key, value, of_class }));
        }
        cases
    };
    [of(&KEYS, false), of(&KEYS_OF_CLASSES, true)].concat()
}

/// The configuration, with a case or as it was before.
fn files(case: Option<&Case>) -> Files {
    let mut keys = BTreeMap::from([
        ("hostDir", "/mnt/c0".to_owned()),
        ("mountDir", "/mnt/c0".to_owned()),
        ("cleanMethod", "quick".to_owned()),
    ]);
    let mut files = Files::new();
    if let Some(case) = case {
        let value = match case.value {
            "HUGE" => "9".repeat(70_000),
            value => value.to_owned(),
        };
        if case.of_class {
            if case.key == "blockCleanerCommand" {
                keys.remove("cleanMethod");
            }
            keys.insert(case.key, value);
        } else {
            files.insert(case.key.to_owned(), value);
        }
    }
    let keys: Vec<_> = keys.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let other = "c1: {hostDir: /mnt/c1, mountDir: /mnt/c1, volumeMode: Block, cleanMethod: quick}";
    files.insert("storageClassMap".to_owned(), format!("c0: {{{}}}\n{other}\n", keys.join(", ")));
    files
}

/// What a key with a value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// The configuration is refused as a whole.
    Refused,
    /// A fault; the rest is used.
    Fault,
    /// The value is used, and the volume is recycled.
    Recycled,
    /// The value is used, and a report says why the volume is not.
    Held,
}

#[test]
fn each_value_of_each_key_is_used_or_refused_and_taken_back() {
    let known = |keys: BTreeMap<String, String>, of: &[Key]| {
        for key in keys.keys() {
            assert!(of.iter().any(|it| it.0 == key), "no case has the key {key}");
        }
    };
    known(rows(&Config::default()), &KEYS);
    let classes = from_files(&files(None)).unwrap().config.classes;
    known(rows(&*classes["c0"]), &KEYS_OF_CLASSES);
    let cases = cases();
    let failed = Mutex::new(Vec::new());
    let effects = Mutex::new(BTreeMap::<Effect, usize>::new());
    on_all_processors(&cases, |case| {
        let live = catch_unwind(|| in_virtual_time(7, run(case)));
        match live.unwrap_or_else(|_| Err("it panics".into())) {
            Ok(effect) => *effects.lock().unwrap().entry(effect).or_default() += 1,
            Err(why) => failed.lock().unwrap().push(format!("{case:?}: {why}")),
        }
        ControlFlow::Continue(())
    });
    let effects = effects.into_inner().unwrap();
    println!("{} cases: {effects:?}", cases.len());
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), cases.len(), failed.join("\n"));
    // A key that is no longer used, or no longer refused, is a change that docs/develop/testing.md has to show.
    let documented =
        [(Effect::Refused, 1), (Effect::Fault, 185), (Effect::Recycled, 181), (Effect::Held, 5)];
    assert_eq!(effects, BTreeMap::from(documented));
}

/// What `check-config` says of the files: its exit code, and its text.
fn checked(files: &Files) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let config = ConfigDir { config: dir.path().into() };
    let mut out = Vec::new();
    match check_config::run(&CheckConfig { config, filename: None }, &mut out) {
        Ok(code) => (code == std::process::ExitCode::SUCCESS, String::from_utf8(out).unwrap()),
        Err(why) => (false, why.to_string()),
    }
}

async fn run(case: &Case) -> Result<Effect, String> {
    process::start_clock();
    let node = Some(NodeOptions::new(NODES[0]));
    let api = InProcess::start(&Options { node, ..Options::default() }).unwrap();
    create_classes(&api);
    let disk = |kind, at: usize| {
        let hash = format!("{at:032}");
        Disk::new(kind, 1, GlobalIdentity { hash, is_unique: true, is_shared: false })
    };
    let disks = vec![disk(VolumeMode::Filesystem, 0), disk(VolumeMode::Block, 1)];
    let slots = [0, 1].map(|at| Slot::new(0, at, 0, Some(at)));
    let world = World::new(api.store().clone(), disks, slots.into());
    let log = Log::default();
    watch(&api, &world, &log);
    let good = from_files(&files(None)).unwrap();
    let mut process = Process::start(api.service(), 0, &world, &good, &log);
    settled(&world, "at the start").await?;

    // A tenant writes data.
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "storageClassName": CLASSES[0],
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1" } },
        },
    });
    let claims = &resource::PERSISTENT_VOLUME_CLAIMS;
    let claim = api.store().create(claims, "default", claim).unwrap();
    sleep(Duration::from_mins(1)).await;
    world.lock().disks[0].data = claim["metadata"]["uid"].as_str().map(str::to_owned);

    // The key is changed while the process runs, and then the process starts again.
    let files = files(Some(case));
    let loaded = from_files(&files);
    let (is_good, text) = checked(&files);
    let faults = messages(&loaded);
    if is_good != faults.is_empty() {
        return Err(format!("check-config says otherwise: {text}, {faults:?}"));
    }
    for fault in &faults {
        if !fault.to_lowercase().contains(&case.key.to_lowercase()) {
            return Err(format!("the fault does not name the key: {fault}"));
        }
        if !text.contains(fault.as_str()) {
            return Err(format!("check-config does not say: {fault}; but {text}"));
        }
    }
    process.read(&loaded);
    sleep(Duration::from_mins(2)).await;
    is_kept(&world, "after the change")?;
    if let Ok(loaded) = &loaded {
        process.stop().await;
        process = Process::start(api.service(), 0, &world, loaded, &log);
        sleep(Duration::from_mins(2)).await;
        is_kept(&world, "after a start")?;
        for fault in &loaded.faults {
            let pass = process.pass.borrow().clone();
            let said = pass.classes.iter().flat_map(|it| &it.faults).chain(&pass.degraded);
            if !said.chain(&pass.not_ready).any(|it| it.contains(&fault.message)) {
                return Err(format!("the provisioner does not say: {fault}"));
            }
        }
    }

    // The claim is deleted.
    world.delete(claims, &claim);
    sleep(Duration::from_mins(10)).await;
    let is_clean = world.lock().disks[0].data.is_none();
    let effect = match (&loaded, faults.is_empty()) {
        (Err(_), _) => Effect::Refused,
        (_, false) => Effect::Fault,
        _ if is_clean => Effect::Recycled,
        _ => Effect::Held,
    };
    if effect == Effect::Held {
        let held = process.held();
        let of_volume = held.iter().find(|(it, _)| it.path.starts_with("/mnt/c0/"));
        if of_volume.is_none_or(|(it, why)| why.is_empty() && it.reason.is_none()) {
            return Err(format!("no report says why the volume is not clean: {held:?}"));
        }
    }
    let before = log.lines().len();
    sleep(Duration::from_secs(105)).await;
    let lines = log.lines();
    let mut requests = lines[before..].iter();
    let request = requests.find(|it| !it.contains(" = ") && !it.contains("watch=true"));
    if let Some(request) = request {
        return Err(format!("the API server is not idle: {request}"));
    }

    process.read(&Ok(good.clone()));
    sleep(Duration::from_mins(1)).await;
    // A container's mounts never change.
    let asks = process.pass.borrow().degraded.iter().any(|it| it.contains("replace the pod"));
    if asks {
        process.stop().await;
        process = Process::start(api.service(), 0, &world, &good, &log);
    }
    settled(&world, "after the key was taken back").await?;
    process.stop().await;
    let violations = world.lock().violations.join("; ");
    if violations.is_empty() { Ok(effect) } else { Err(violations) }
}

/// The faults of a configuration.
fn messages(loaded: &Result<Loaded, String>) -> Vec<String> {
    match loaded {
        Ok(loaded) => loaded.faults.iter().map(ToString::to_string).collect(),
        Err(why) => vec![why.clone()],
    }
}

/// Whether the tenant's data is still there, in a bound PV.
fn is_kept(world: &Arc<World>, when: &str) -> Result<(), String> {
    let is_bound = world.pvs().iter().any(|pv| pv["status"]["phase"] == "Bound");
    let is_there = world.lock().disks[0].data.is_some();
    if is_bound && is_there {
        return Ok(());
    }
    Err(format!("{when}: bound: {is_bound}, data: {is_there}"))
}

/// Waits until both volumes are offered.
async fn settled(world: &Arc<World>, when: &str) -> Result<(), String> {
    for _ in 0..20 {
        sleep(Duration::from_mins(1)).await;
        if world.unsettled().is_none() {
            return Ok(());
        }
    }
    Err(format!("{when}: {}", world.unsettled().unwrap_or_default()))
}
