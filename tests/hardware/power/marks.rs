//! The power fails after a mark was written, and before what follows.

use std::fs::{self, File};

use control_plane::faults::{Answer, Fault};
use control_plane::requests::Verb;
use local_volume_provisioner::names::pv_name;
use serde_json::Value;
use support::{LoopDevice, run};

use super::*;

/// The volumes of each method, by what their marks say at the cut.
const STATES: [&str; 5] = ["pending", "offered", "used", "wiping", "free"];

/// Bytes per second. At this pace, the wipe has not ended when the test has.
const NEARLY_STOPPED: u64 = 8 << 10;

/// What the mark of a volume says. The machine is off.
fn state_of(bench: &Bench, volume: &Volume) -> String {
    let disk = match volume.fs_type {
        Some(_) => &volume.disk,
        None => &bench.state,
    };
    let image = File::options().read(true).write(true).open(disk.image());
    let device = LoopDevice::over(&image.unwrap()).unwrap();
    let sandbox = &bench.stage.sandbox;
    let root = sandbox.mount(device.path(), "ext4", "mounted").unwrap();
    let text = if volume.fs_type.is_some() {
        let mut text = vec![0; 4096];
        let length = rustix::fs::getxattr(&root, "security.local-volume", &mut text[..]);
        text.truncate(length.unwrap());
        String::from_utf8(text).unwrap()
    } else {
        let entry = format!("\"entry\":\"{}\"", entry(volume));
        let file = run("grep", &["-rlF", &entry, root.to_str().unwrap()]);
        fs::read_to_string(file.trim()).unwrap()
    };
    sandbox.umount(&root).unwrap();
    let content: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    content["mark"]["state"].as_str().unwrap().to_owned()
}

fn entry(volume: &Volume) -> &str {
    volume.path.file_name().unwrap().to_str().unwrap()
}

/// All but the first requests for these PVs fail from now on.
fn refuse(bench: &Bench, verb: Verb, skip: usize, volumes: &[Volume]) -> Vec<Fault> {
    let faults = bench.stage.faults();
    let refuse = |volume: &Volume| {
        let class = bench.stage.named(volume.method);
        let name = pv_name(entry(volume), &bench.stage.node(), &class);
        let requests = faults.on(verb).resource("persistentvolumes").name(&name);
        requests.skip(skip).answer(Answer::code(500))
    };
    volumes.iter().map(refuse).collect()
}

#[test]
fn a_power_cut_after_each_write_of_a_mark_loses_no_data_and_no_volume() {
    let mut bench = or_skip!(Bench::set());
    bench.has_marks = true;
    let stage = &bench.stage;
    let mut methods = Method::all().to_vec();
    methods.retain(|it| ["zero", "ext4"].contains(&it.name));
    let mut volumes = volumes(&bench, &methods, STATES.len());
    // By state, and of each state one of each method.
    volumes.sort_by_key(|it| it.disk.name().chars().last());
    let is_refused = |faults: &[Fault]| faults.iter().all(|fault| fault.hits() > 0);

    let mut faults = refuse(&bench, Verb::Create, 0, &volumes[..2]);
    boot(&bench, &volumes);
    bench.start_provisioner();
    for volume in &mut volumes[2..4] {
        volume.bound = Some(stage.available(&volume.path, None));
    }
    stage.eventually("volumes are pending", || is_refused(&faults));
    occupy(&bench, &mut volumes[6..]);
    let used = refuse(&bench, Verb::Patch, 0, &volumes[4..6]);
    fill(&bench, &mut volumes[4..6]);
    stage.eventually("volumes are used", || is_refused(&used));
    // The patch of the commit succeeds.
    let free = refuse(&bench, Verb::Patch, 1, &volumes[8..]);
    for volume in &volumes[8..] {
        stage.delete_claim(&volume.claim());
    }
    stage.eventually("volumes are free", || is_refused(&free));
    bench.with_vm(|vm| vm.slow_down_to(NEARLY_STOPPED));
    // The device last: its wipe takes all that the disks can write.
    for volume in volumes[6..8].iter().rev() {
        stage.delete_claim(&volume.claim());
        let text = format!("cleaning {}", volume.path.display());
        stage.event("VolumeDelete", &text);
    }
    bench.cut_power();
    for (volume, state) in volumes.iter().zip(STATES.iter().flat_map(|it| [it, it])) {
        assert_eq!(state_of(&bench, volume), *state, "{}", volume.disk.name());
    }

    faults.extend(used.into_iter().chain(free));
    for fault in faults {
        fault.clear();
    }
    boot(&bench, &volumes);
    let data = left(&bench, volumes[4..6].iter());
    // Of 120 files and a device.
    assert!(data.len() > 120, "{data:?}");
    bench.start_provisioner();
    // Nothing tells for how long a device was pending in another boot.
    let (devices, pending): (Vec<_>, Vec<_>) =
        volumes.drain(..2).partition(|it| it.fs_type.is_none());
    all_clean(&bench, &pending);
    for device in &devices {
        let text =
            format!("{} may hold the data of a tenant: its mark is pending", device.path.display());
        bench.stage.eventually(&text, || bench.log().contains(&text));
    }
    all_clean(&bench, &volumes[4..]);
    for volume in &volumes[2..4] {
        stage.used(volume.bound.as_ref().unwrap());
    }
    for volume in &volumes[..4] {
        bench.stays(volume.bound.as_ref().unwrap());
    }
    assert_eq!(left(&bench, volumes[2..4].iter()), data);
    let log = bench.log();
    let (_, log) = log.rsplit_once("--- power on ---").unwrap();
    let cleaned: Vec<_> = log.lines().filter(|it| it.contains("cleaning the volume")).collect();
    assert_eq!(cleaned.len(), 2, "only what was not wiped: {cleaned:?}");
}
