//! A class takes in blank disks while the machine runs.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::passes::volumes;
use support::stage::{annotation, name, uid};

use crate::bench::Bench;
use crate::disk::{MIB, Place};
use crate::moved::link;

const SIZE: u64 = 16 * MIB;
/// How long a disk has to be there before it is taken in.
const SETTLED: Duration = Duration::from_mins(1);
/// After this time, a disk without a user is read again.
const MAX_AGE: Duration = Duration::from_secs(30);
/// What it takes at least to read one.
const READS: u64 = 256;
const IDENTITY: &str = "local-volume-provisioner/identity";

/// What `/status` shows of a class.
fn class(bench: &Bench, name: &str) -> Option<Value> {
    let status: Value = serde_json::from_str(&bench.status()?).unwrap();
    let name = bench.stage.named(name);
    let mut classes = status["classes"].as_array()?.iter();
    classes.find(|it| it["name"] == *name).cloned()
}

/// Why a class leaves a disk alone; empty if it does not.
fn left_alone(class: &Value, link: &str) -> Option<String> {
    let disk = class["disks"].as_array()?.iter();
    let disk = disk.clone().find(|it| it["link"] == link)?;
    Some(disk["leftAlone"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_blank_disk_is_taken_in_used_cleaned_and_known_at_another_slot() {
    let mut bench = or_skip!(Bench::set());
    bench.has_marks = true;
    let stage = &bench.stage;
    let rule = |glob: &str, approve: &str| {
        json!({
            "binding": "disk", "cleanMethod": "zero",
            "devices": { "match": [glob], "approve": approve },
        })
    };
    let fast = bench.raw_class("fast", &rule("/dev/disk/by-id/nvme-*", "Auto"));
    let asked = bench.raw_class("asked", &rule("/dev/disk/by-path/*-scsi-*", "Plan"));
    let formatted = bench.empty_disk("formatted", SIZE);
    formatted.format("ext4");
    let parted = bench.empty_disk("parted", SIZE);
    parted.partition("label: gpt\nsize=4MiB\n");
    let blank = bench.empty_disk("blank", SIZE);
    // Large enough that it seeks for each place that is read.
    let rotating = bench.empty_disk("rotating", 1024 * MIB).rotating();
    let (slot, elsewhere, unit) = (Place::Nvme(16), Place::Nvme(20), Place::Scsi(1));
    let by_id = |serial: &str| format!("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{serial}");
    let path = fast.join("nvme-QEMU_NVMe_Ctrl_blank");
    let path_of_rotating = asked.join(unit.path().file_name().unwrap());
    bench.power_on(&[(&formatted, Place::Nvme(17)), (&parted, Place::Nvme(18))]);
    stage.eventually("the first scan", || left_alone(&class(&bench, "fast")?, &by_id("parted")));

    let plugged = Instant::now();
    bench.with_vm(|vm| {
        vm.plug(&blank, slot)?;
        vm.plug(&rotating, unit)
    });
    stage.eventually("the disk is found, and has to wait", || {
        let why = left_alone(&class(&bench, "fast")?, &by_id("blank"))?;
        why.contains("less than a minute").then_some(())
    });
    let lasted = plugged.elapsed();
    println!("{lasted:.1?} from hot-plug to the disk in /status");
    let offered = stage.available(&path, None);
    let lasted = plugged.elapsed();
    let after = lasted.checked_sub(SETTLED).expect("it waits for a minute");
    println!("{lasted:.1?} from hot-plug to the PV, {after:.1?} without the minute");

    // An operator approves the list of the other class.
    let hash = stage.eventually("a list to approve", || {
        Some(class(&bench, "asked")?["toApprove"].as_str()?.to_owned())
    });
    stage.event("DevicesFound", &hash);
    assert!(stage.pvs_at(&path_of_rotating).is_empty());
    let key = format!("approve.local-volume-provisioner/{}", stage.named("asked"));
    let approval = json!({ "metadata": { "annotations": { key: hash } } });
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let (approved, params) = (Instant::now(), PatchParams::default());
    stage.request(nodes.patch(&stage.node(), &params, &Patch::Merge(&approval)));
    stage.available(&path_of_rotating, None);
    println!("{:.1?} from the approval to the PV", approved.elapsed());

    // No other disk is taken, not even the one that has the state directory. A survey may be late on a busy machine.
    let partition = by_id("parted-part1");
    let own = Place::Scsi(63).path();
    for (name, link, why) in [
        ("fast", &*by_id("formatted"), "ext"),
        ("fast", &by_id("parted"), "it has the partitions"),
        ("fast", &partition, " "),
        ("asked", own.to_str().unwrap(), "it is in use"),
    ] {
        stage.eventually(&format!("{link} is left alone: {why}"), || {
            let said = left_alone(&class(&bench, name)?, link)?;
            said.contains(why).then_some(())
        });
    }
    assert_eq!(stage.pvs().len(), 2);

    // A tenant comes and goes.
    let bound = stage.used(&stage.bind("claim", &path));
    let reads = || bench.with_vm(|vm| vm.reads(&rotating));
    let (since, before) = (Instant::now(), reads());
    let tenant = link(&bound);
    bench.run(&format!(
        "until [ -b {tenant} ]; do sleep 0.1; done; yes secret | dd of={tenant} bs=1M iflag=fullblock count=16 conv=fsync"
    ));
    assert!(!blank.is_zero());
    stage.delete_claim("claim");
    let again = bench.offered_again(&path, &bound);
    assert!(blank.is_zero());

    // It is the same volume at another slot.
    bench.with_vm(|vm| vm.pull(&blank));
    stage.eventually("the volume is missing", || {
        let status: Value = serde_json::from_str(&bench.status()?).unwrap();
        let mut volumes = volumes(&status);
        let volume = volumes.find(|it| it["path"].as_str().map(Path::new) == Some(&path))?;
        (volume["state"] == "Missing").then_some(())
    });
    bench.with_vm(|vm| vm.plug(&blank, elsewhere));
    let moved = stage.used(&stage.bind("another", &path));
    assert_eq!(uid(&moved), uid(&again));
    assert_eq!(annotation(&moved, IDENTITY), annotation(&offered, IDENTITY));
    let tenant = link(&moved);
    bench.run(&format!("until [ -b {tenant} ]; do sleep 0.1; done"));
    let leads_to = |path: &Path| bench.run(&format!("readlink -f {}", path.display()));
    assert_eq!(leads_to(Path::new(&tenant)), leads_to(&elsewhere.path()));
    std::thread::sleep(MAX_AGE.saturating_sub(since.elapsed()));
    bench.stays(&moved);
    assert!(reads() - before < READS, "a volume is read again");
    assert_eq!(stage.pvs().len(), 2, "{:?}", stage.pvs().iter().map(name));
}
