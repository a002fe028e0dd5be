//! Pods that are gone from the API while their containers live on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::cluster::path;
use crate::disks::entries;
use crate::{Cluster, Release};

#[test]
fn a_force_deleted_pods_volume_waits_until_the_kubelet_has_unmounted_it() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, release) = Release::with_disks(&cluster, "forced", 1, json!({}));
    let first = cluster.pvs().remove(0);
    let path = path(&first);
    cluster.claim("claim", "forced", "Filesystem");
    // Deaf to SIGTERM, and always writing.
    let write = "trap '' TERM; while :; do date >/data/alive; usleep 100000; done";
    cluster.pod("deaf", "claim", "Filesystem", write);
    cluster.pod_in_phase("deaf", "Running");
    cluster.eventually("the pod writes", || path.join("alive").exists());

    // A kubelet that hangs: the container is not ended.
    let kubelet = Kubelet::hang();
    cluster.delete("pod", "deaf", &["--force", "--grace-period=0"]);
    cluster.delete_claim("claim");
    cluster.in_phase(&first, "Released");
    release.still("the volume is as it was", || {
        let pvs = cluster.pvs();
        pvs.len() == 1
            && pvs[0]["metadata"]["uid"] == first["metadata"]["uid"]
            && pvs[0]["metadata"]["deletionTimestamp"].is_null()
            && path.join("alive").exists()
    });
    assert!(is_written(&path.join("alive")), "the container lives on after its pod");

    drop(kubelet);
    cluster.recycled(&first);
    assert!(entries(path).is_empty(), "{:?}", entries(path));
}

/// Whether a file is written to just now.
fn is_written(file: &Path) -> bool {
    let modified = || fs::metadata(file).unwrap().modified().unwrap();
    let before = modified();
    std::thread::sleep(Duration::from_secs(1));
    modified() != before
}

/// The kubelet, stopped until this is dropped.
struct Kubelet(Pid);

impl Kubelet {
    fn hang() -> Self {
        let mut processes = procfs::process::all_processes().unwrap().flatten();
        let kubelet = processes.find(|process| {
            let words = process.cmdline().unwrap_or_default();
            words.first().is_some_and(|word| word == "kubelet")
        });
        let pid = Pid::from_raw(kubelet.unwrap().pid());
        kill(pid, Signal::SIGSTOP).unwrap();
        Self(pid)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
