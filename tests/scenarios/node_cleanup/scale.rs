//! Many nodes at once.

use std::collections::BTreeMap;
use std::fs;

use control_plane::Store;
use control_plane::resource::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};

use control_plane::store::DeleteOptions;

use super::*;
use support::{skip, slow};

/// How much is lost, and how many requests a second are allowed.
struct Size {
    nodes: usize,
    /// Half of them bound.
    volumes: usize,
    rate: usize,
}

/// What a real cluster may lose; a tenth of it is enough to find most faults.
const ALL: Size = Size { nodes: 500, volumes: 10_000, rate: 500 };
const TENTH: Size = Size { nodes: 50, volumes: 1_000, rate: 100 };

/// The highest resident memory of a process so far, in MiB.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() / 1024
}

/// What stalls on its way comes all at once later, so that a single second proves nothing.
const SECONDS: usize = 20;

/// The most requests in that time but those that the rate does not bind.
fn peak(stage: &Stage) -> usize {
    let all = stage.requests().all();
    let bound = all.iter().filter(|r| r.verb != Verb::Watch);
    let mut spans: BTreeMap<u64, usize> = BTreeMap::new();
    let begun = all[0].at;
    for request in bound {
        let second = request.at.duration_since(begun).as_secs();
        *spans.entry(second / SECONDS as u64).or_default() += 1;
    }
    spans.into_values().max().unwrap()
}

/// Nodes, PVs of theirs, and claims for every other one.
fn fill(stage: &Stage, store: &Store, nodes: usize, volumes: usize) {
    stage.storage_class("fast", "Delete", "Immediate");
    for number in 0..nodes {
        let name = format!("lost-{number}");
        let labels = json!({ "kubernetes.io/hostname": name });
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        store.create(&NODES, "", node).unwrap();
    }
    let (class, namespace) = (stage.named("fast"), stage.namespace());
    for number in 0..volumes {
        let (pv, node) = (format!("pv-{number}"), format!("lost-{}", number % nodes));
        let mut object = json!({
            "metadata": { "name": pv, "labels": { "kubernetes.io/hostname": node } },
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "20Mi" },
                "persistentVolumeReclaimPolicy": "Delete",
                "volumeMode": "Filesystem",
                "local": { "path": format!("/mnt/disks/{pv}") },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
                ] }] } },
            },
        });
        object["metadata"]["annotations"] = json!({
            "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{node}"),
        });
        if number % 2 == 0 {
            object["spec"]["claimRef"] = json!({ "namespace": namespace, "name": pv });
            let claim = json!({
                "metadata": { "name": pv },
                "spec": {
                    "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "volumeMode": "Filesystem", "volumeName": pv,
                    "resources": { "requests": { "storage": "1Mi" } },
                },
            });
            store.create(&PERSISTENT_VOLUME_CLAIMS, &namespace, claim).unwrap();
        }
        store.create(&PERSISTENT_VOLUMES, "", object).unwrap();
    }
}

#[test]
fn many_nodes_with_many_volumes_are_lost_at_once() {
    let Size { nodes, volumes, rate } = if slow() { ALL } else { TENTH };
    let stage = or_skip!(stage());
    let Some(control_plane) = stage.embedded() else {
        return skip("it fills a cluster that others use");
    };
    let store = control_plane.store();
    fill(&stage, store, nodes, volumes);
    let in_phase = |phase: &str| {
        let pvs = store.list(&PERSISTENT_VOLUMES, None).items;
        pvs.iter().filter(|pv| pv["status"]["phase"] == phase).count()
    };
    stage.within(Duration::from_mins(3), "half of them are bound", || {
        std::thread::sleep(Duration::from_millis(500));
        in_phase("Bound") == volumes / 2 && in_phase("Available") == volumes / 2
    });

    let limit = format!("--requests-per-second={rate}");
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=5s", &limit, "--v=0"]);
    let idle = peak_memory(cleanup.pid());
    let begun = Instant::now();
    for number in 0..nodes {
        store.delete(&NODES, "", &format!("lost-{number}"), &DeleteOptions::default()).unwrap();
    }
    stage.within(Duration::from_mins(8), "all is gone", || {
        std::thread::sleep(Duration::from_millis(500));
        let pvs = store.list(&PERSISTENT_VOLUMES, None).items.len();
        let claims = store.list(&PERSISTENT_VOLUME_CLAIMS, None).items.len();
        pvs + claims == 0
    });
    let took = begun.elapsed();
    let (peak, memory) = (peak(&stage), peak_memory(cleanup.pid()));
    let total = stage.requests().count(|r| r.verb != Verb::Watch && r.resource != "leases");
    eprintln!(
        "{volumes} PVs of {nodes} nodes, half of them bound: {took:.0?}, {total} requests, {peak} in the busiest {SECONDS} s; {idle} MiB before, {memory} MiB in the end"
    );
    let most = SECONDS * (rate + rate / 10);
    assert!(peak <= most, "{peak} requests in {SECONDS} s");
    assert!(memory < 100, "{memory} MiB");
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), volumes / 2, "each once");
    assert_eq!(writes(&stage, Verb::Delete, PVS), volumes, "each once");
    assert_eq!(
        metric(&mut cleanup, "persistentvolumeclaim_delete_total"),
        Some(volumes as u64 / 2)
    );
    let reports = cleanup.log().matches("remaining objects of lost nodes").count();
    assert!(reports >= 3, "progress is reported: {reports}");
}
