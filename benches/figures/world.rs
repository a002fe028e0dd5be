//! The world that figures are taken in: a node with volumes, in a cluster with other nodes.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use control_plane::resource::PERSISTENT_VOLUMES;
use control_plane::{Options, Store};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use support::Stage;

use super::Effort;

/// How long a state may take to come about before the measurement is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where a volume's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory.
    Tmpfs,
    /// In a directory on a disk, bind-mounted.
    Bind,
}

/// Runs a measurement on a stage of its own.
pub fn on_stage<T: Send>(
    effort: &Effort,
    measure: impl FnOnce(&Stage) -> Result<T> + Send,
) -> Result<T> {
    on_stage_with(effort, |_| {}, measure)
}

/// The same with other options. The stage's mounts are the thread's: they go with it.
pub fn on_stage_with<T: Send>(
    effort: &Effort,
    change: impl FnOnce(&mut Options) + Send,
    measure: impl FnOnce(&Stage) -> Result<T> + Send,
) -> Result<T> {
    let run = || {
        let binary = effort.binary.to_str().context("the binary's path is not UTF-8")?;
        let mut stage = Stage::set_with(binary, change).context("the stage cannot be set")?;
        stage.add_arg("--log-level=info");
        // The default, which tests shorten.
        stage.add_arg("--config-sync-period=5s");
        measure(&stage)
    };
    thread::scope(|scope| scope.spawn(run).join())
        .map_err(|_| anyhow!("the measurement panicked"))?
}

/// Mounts volumes into the class `fast`. Bind mounts lie in `disk`.
pub fn mount_volumes(stage: &Stage, disk: &Path, kind: Kind, count: usize) -> Result<()> {
    for number in 0..count {
        match kind {
            Kind::Tmpfs => stage.sandbox.tmpfs(&format!("disks/fast/ram-{number}"), "size=1m")?,
            Kind::Bind => {
                let source = disk.join(number.to_string());
                fs::create_dir(&source)?;
                stage.sandbox.bind(&source, &format!("disks/fast/dir-{number}"))?
            }
        };
    }
    Ok(())
}

/// A class with volumes, half of each kind.
pub fn volumes(stage: &Stage, disk: &Path, count: usize) -> Result<()> {
    stage.class("fast", &json!({}));
    mount_volumes(stage, disk, Kind::Tmpfs, count / 2)?;
    mount_volumes(stage, disk, Kind::Bind, count - count / 2)
}

/// Makes PVs for other nodes, a hundred volumes each, and waits until the cluster has seen to them.
/// Past the HTTP server, where they would be counted as requests.
pub fn foreign_pvs(stage: &Stage, count: usize) -> Result<()> {
    let embedded = stage.embedded().context("a real cluster is always spoken to over HTTP")?;
    let store = embedded.store();
    let before = available(store);
    for number in 0..count {
        let (node, disk) = (number / 100, number % 100);
        store
            .create(&PERSISTENT_VOLUMES, "", foreign_pv(&format!("other-{node}"), disk))
            .map_err(|error| anyhow!("a PV for another node: {error:?}"))?;
    }
    until("the foreign PVs are available", || available(store) == before + count)
}

fn foreign_pv(node: &str, disk: usize) -> Value {
    let node_is_this_one = json!({ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
    ]});
    json!({
        "metadata": {
            "name": format!("local-pv-{node}-{disk}"),
            "labels": { "kubernetes.io/hostname": node },
            "annotations": {
                "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{node}"),
            },
        },
        "spec": {
            "capacity": { "storage": "100Gi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
            "local": { "path": format!("/mnt/disks/vol-{disk}") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [node_is_this_one] } },
        },
    })
}

fn available(store: &Store) -> usize {
    let pvs = store.list(&PERSISTENT_VOLUMES, None).items;
    pvs.iter().filter(|pv| pv["status"]["phase"] == "Available").count()
}

/// How many PVs our node has.
pub fn own_pvs(stage: &Stage) -> usize {
    let pvs: Api<PersistentVolume> = Api::all(stage.client.clone());
    let ours = ListParams::default().labels(&format!("kubernetes.io/hostname={}", stage.node()));
    let found = stage.block_on(pvs.list_metadata(&ours));
    found.map_or(0, |found| found.items.len())
}

/// Waits until something is so. Looking takes at most half of the time: the processors are for what is measured.
pub fn until(what: &str, is_so: impl FnMut() -> bool) -> Result<()> {
    until_within(PATIENCE, what, is_so)
}

/// The same for what may take long.
pub fn until_within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let begun = Instant::now();
        if is_so() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(begun.elapsed().max(Duration::from_millis(2)));
    }
}
