//! Provisioners that end in the middle of a wipe, and those that come after them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name};
use crate::disks::is_on_device;
use crate::release::{NAME, class};
use crate::{Cluster, Disks, Release, disks::MIB};

const SECRET: &str = "not for the next tenant";

/// A device whose wipe takes a while, written to and released; the PV that it had. It is
/// overwritten seven times, half a GiB each.
struct LongWipe {
    device: std::path::PathBuf,
    pv: Value,
}

fn install<'a>(cluster: &'a Cluster, disks: &mut Disks, values: Value) -> (Release<'a>, LongWipe) {
    let device = disks.device("slow", "disk", 512 * MIB);
    let dir = disks.class("slow");
    let settings = json!({
        "volumeMode": "Block", "blockCleanerCommand": ["/scripts/shred.sh", "24"],
    });
    let release = Release::install(cluster, json!([class("slow", &dir, settings)]), values);
    let pv = cluster.available("slow", 1).remove(0);
    cluster.claim("claim", "slow", "Block");
    let write =
        format!("echo '{SECRET}' | dd of=/dev/data bs=1M seek=500 conv=notrunc,fsync 2>/dev/null");
    cluster.run_pod("writer", "claim", "Block", &write);
    assert!(is_on_device(&device, SECRET.as_bytes()));
    cluster.delete_claim("claim");
    (release, LongWipe { device, pv })
}

/// Waits until `/status` shows the wipe of the device.
fn wiping(cluster: &Cluster, release: &Release) {
    cluster.eventually("the wipe runs", || {
        let status: Value = serde_json::from_str(&release.http("/status")).unwrap();
        let volume = &status["classes"][0]["volumes"][0];
        volume["cleanup"]["state"] == "Running"
    });
}

/// How many processes of provisioners have the device open for writing.
pub fn writers(device: &Path) -> usize {
    let device = fs::canonicalize(device).unwrap();
    let processes = procfs::process::all_processes().unwrap().flatten();
    processes
        .filter(|process| {
            let ours = process.cmdline().is_ok_and(|words| {
                words.first().is_some_and(|word| word == "/local-volume-provisioner")
            });
            let open = || {
                let descriptors = process.fd().into_iter().flatten().flatten();
                descriptors.filter(|fd| {
                    let target = matches!(&fd.target, procfs::process::FDTarget::Path(path) if *path == device);
                    target && fd.mode().contains(procfs::process::FDPermissions::WRITE)
                }).count()
            };
            ours && open() > 0
        })
        .count()
}

#[test]
fn a_provisioner_killed_in_the_middle_of_a_wipe_wipes_again_after_its_restart() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("killed");
    let (release, wipe) = install(&cluster, &mut disks, json!({}));
    wiping(&cluster, &release);
    let process = Pid::from_raw(release.process().pid());
    kill(process, Signal::SIGKILL).unwrap();

    let old = cluster.get("persistentvolume", name(&wipe.pv), None).unwrap();
    assert_eq!(old["metadata"]["uid"], wipe.pv["metadata"]["uid"], "not offered half wiped");
    cluster.recycled(&wipe.pv);
    assert!(!is_on_device(&wipe.device, SECRET.as_bytes()));
    let pod = release.pod();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
}

#[test]
fn a_pod_deleted_by_force_in_the_middle_of_a_wipe_leaves_it_to_its_successor() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("deleted");
    let (release, wipe) = install(&cluster, &mut disks, json!({}));
    wiping(&cluster, &release);
    let first = release.pod();
    cluster.kill_pod(name(&first));

    let mut most = 0;
    let fresh = cluster.eventually("the device is offered again", || {
        most = most.max(writers(&wipe.device));
        let pvs = cluster.pvs_in("slow", "Available");
        pvs.into_iter().find(|pv| pv["metadata"]["uid"] != wipe.pv["metadata"]["uid"])
    });
    assert_eq!(most, 1, "wipes of one device at a time");
    assert!(!is_on_device(&wipe.device, SECRET.as_bytes()), "{fresh}");
}

#[test]
fn a_rolling_upgrade_with_surge_never_gives_two_wipes_of_one_device() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("upgraded");
    let (release, wipe) = install(&cluster, &mut disks, json!({}));
    wiping(&cluster, &release);
    let first = release.pod();
    // The new pod starts before the old one ends: two provisioners on one node. The chart refuses this, and kubectl does
    // not. It is also faster than Helm, so the wipe still runs.
    let upgrade = json!({ "spec": {
        "updateStrategy": {
            "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 },
        },
        "template": { "metadata": { "annotations": { "upgraded": "yes" } } },
    } });
    let upgrade = format!("--patch={upgrade}");
    let in_namespace = format!("--namespace={SYSTEM}");
    cluster.kubectl(&["patch", "daemonset", NAME, &in_namespace, &upgrade]).unwrap();

    let (mut most, mut pods) = (0, 0);
    cluster.eventually("the device is offered again", || {
        most = most.max(writers(&wipe.device));
        pods = pods.max(release.pods().len());
        let fresh = cluster.pvs_in("slow", "Available");
        fresh.iter().any(|pv| pv["metadata"]["uid"] != wipe.pv["metadata"]["uid"])
    });
    assert_eq!(pods, 2, "there were two provisioners at a time");
    assert_eq!(most, 1, "wipes of one device at a time");
    assert!(!is_on_device(&wipe.device, SECRET.as_bytes()));
    cluster.eventually("the new pod has taken over", || {
        let pod = release.pod();
        pod["metadata"]["uid"] != first["metadata"]["uid"]
    });
}
