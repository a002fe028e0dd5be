//! `binding: disk`: the kubelet mounts the verified volume of a claim, or nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use crate::cluster::{NODE, USERS, name, path};
use crate::disks::{Disks, MIB, entries, is_on_device};
use crate::{Cluster, Release};

const CLASS: &str = "bound";
const LINKS: &str = "/run/local-volume-provisioner";
const ANNOTATION: &str = "local-volume-provisioner/path";

fn install<'a>(cluster: &'a Cluster, disks: &Disks, mode: &str) -> Release<'a> {
    let settings = json!({ "binding": "disk", "volumeMode": mode });
    Release::over(cluster, disks, CLASS, settings)
}

/// Whether the link of a PV leads to its entry.
fn is_linked(pv: &Value) -> bool {
    let entry = pv["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    fs::read_link(path(pv)).is_ok_and(|target| target == Path::new(entry))
}

/// The next Available PV of an entry.
fn offered_again(cluster: &Cluster, old: &Value) -> Value {
    cluster.eventually("the volume is offered again", || {
        let pvs = cluster.pvs_in(CLASS, "Available");
        let is_next = |pv: &Value| pv["metadata"]["uid"] != old["metadata"]["uid"];
        pvs.into_iter().find(is_next)
    })
}

fn labels_of_disks(cluster: &Cluster) -> Vec<String> {
    let node = cluster.get("node", NODE, None).unwrap();
    let labels = node["metadata"]["labels"].as_object().unwrap().keys();
    labels.filter(|it| it.starts_with("disk.local-volume-provisioner.")).cloned().collect()
}

/// A pod with `fsGroup` that mounts a subdirectory of its volume, and whose container restarts.
fn pod_with_group(cluster: &Cluster, claim: &str, script: &str) {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "grouped", "namespace": USERS },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "fsGroup": 4321 },
            "containers": [{
                "name": "main", "image": "test/busybox:1", "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "volumeMounts": [{ "name": "data", "mountPath": "/data", "subPath": "below" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        },
    }));
}

fn restarts(cluster: &Cluster) -> u64 {
    let pod = cluster.get("pod", "grouped", Some(USERS)).unwrap();
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}

#[test]
fn filesystem_is_mounted_by_its_link_and_recycled_without_it() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new(CLASS);
    let entry = disks.filesystem(CLASS, "a", "ext4", 32 * MIB);
    let _release = install(&cluster, &disks, "Filesystem");
    let free = cluster.available(CLASS, 1).remove(0);
    assert_eq!(path(&free).parent(), Some(Path::new(LINKS)));
    assert!(fs::symlink_metadata(path(&free)).is_err(), "an Available PV has no link");

    let pv = cluster.write("claim", CLASS);
    assert!(is_linked(&pv));
    assert!(entry.join("file").exists());
    pod_with_group(&cluster, "claim", "echo more >>/data/more; sleep 1");
    cluster.eventually("its container has restarted", || restarts(&cluster) > 0);
    assert!(entry.join("below/more").exists());
    cluster.delete("pod", "grouped", &[]);
    let labels = labels_of_disks(&cluster);
    assert_eq!(labels.len(), 1, "{labels:?}");

    cluster.delete_claim("claim");
    let next = offered_again(&cluster, &pv);
    assert!(entries(&entry).is_empty(), "{:?}", entries(&entry));
    assert!(fs::symlink_metadata(path(&pv)).is_err(), "its link is gone");
    assert_ne!(path(&next), path(&pv));
    assert_eq!(labels_of_disks(&cluster), labels, "the label of a disk stays");
}

#[test]
fn device_is_mapped_by_its_link_and_recycled() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new(CLASS);
    let device = disks.device(CLASS, "a", 16 * MIB);
    let _release = install(&cluster, &disks, "Block");
    cluster.available(CLASS, 1);
    cluster.claim("claim", CLASS, "Block");
    let write = "printf 'data of claim' | dd of=/dev/data bs=1M seek=8 conv=notrunc,fsync";
    cluster.run_pod("writer", "claim", "Block", write);
    let pv = cluster.bound("claim");
    assert!(is_linked(&pv));
    assert!(is_on_device(&device, b"data of claim"));
    cluster.delete_claim("claim");
    offered_again(&cluster, &pv);
    assert!(!is_on_device(&device, b"data of claim"));
}

/// Another filesystem is mounted at the path of a claim's volume, and a pod starts.
#[test]
fn nothing_is_mounted_while_another_disk_is_at_the_path() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new(CLASS);
    let entry = disks.filesystem(CLASS, "a", "ext4", 32 * MIB);
    let release = install(&cluster, &disks, "Filesystem");
    cluster.available(CLASS, 1);
    let pv = cluster.write("claim", CLASS);
    // This one runs all the time.
    pod_with_group(&cluster, "claim", "while :; do date >/data/alive; sleep 1; done");
    cluster.eventually("it writes", || entry.join("below/alive").exists());

    let other = support::LoopDevice::formatted(disks.class("other").as_path(), 32 * MIB, "ext4");
    let other = other.unwrap();
    mount(Some(other.path()), &entry, Some("ext4"), MsFlags::empty(), None::<&str>).unwrap();
    let exchanged = Instant::now();
    let mounted = Mounted(entry.clone());
    cluster.eventually("the link is withdrawn", || !is_linked(&pv));
    println!("the link was withdrawn after {:?}", exchanged.elapsed());
    let claim = cluster.get("pvc", "claim", Some(USERS)).unwrap();
    cluster.event(&claim, "VolumeUnverified");
    cluster.event(&pv, "VolumeIdentityMismatch");
    cluster.pod("second", "claim", "Filesystem", "echo foreign >/data/foreign");
    cluster.eventually("the kubelet does not find the path", || {
        let events = cluster.events("second");
        events.iter().any(|it| it["reason"] == "FailedMount")
    });
    release.still("nothing is mounted for it", || {
        let pod = cluster.get("pod", "second", Some(USERS)).unwrap();
        pod["status"]["phase"] == "Pending" && entries(&entry).is_empty()
    });
    assert_eq!(restarts(&cluster), 0, "a pod that runs is not touched");

    drop(mounted);
    cluster.eventually("the link is back", || is_linked(&pv));
    cluster.pod_in_phase("second", "Succeeded");
    assert!(entry.join("foreign").exists(), "that of the claim");
}

/// After a boot, `/run` is empty.
#[test]
fn links_are_made_again_after_a_boot() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new(CLASS);
    let entry = disks.filesystem(CLASS, "a", "ext4", 32 * MIB);
    let release = install(&cluster, &disks, "Filesystem");
    cluster.available(CLASS, 1);
    let pv = cluster.write("claim", CLASS);
    fs::remove_file(path(&pv)).unwrap();
    cluster.kill_pod(name(&release.pod()));
    cluster.pod("second", "claim", "Filesystem", "cat /data/file");
    cluster.pod_in_phase("second", "Succeeded");
    assert!(is_linked(&pv));
    assert!(entry.join("file").exists());
}

/// A mount, until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
