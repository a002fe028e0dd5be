//! Volumes that are not to be cleaned yet, or cannot be.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount, umount};
use serde_json::{Value, json};

use super::machines::in_use;
use super::procedure::Procedure;
use crate::cluster::{USERS, name, path};
use crate::disks::entries;
use crate::{Cluster, Release, disks::MIB};

/// The user's part of a release.
fn release(cluster: &Cluster, claim: &str, pod: &str) {
    cluster.delete("pod", pod, &[]);
    cluster.delete_claim(claim);
}

/// Waits until an event of a PV has a text in it.
fn wait_for_event(cluster: &Cluster, pv: &Value, reason: &str, text: &str) {
    cluster.eventually(&format!("event {reason}: {text}"), || {
        let events = cluster.events(name(pv));
        events.iter().any(|event| {
            event["reason"] == reason
                && event["message"].as_str().unwrap_or_default().contains(text)
        })
    });
}

fn holds_data(cluster: &Cluster, installed: &Release, pv: &Value) {
    cluster.in_phase(pv, "Released");
    installed.still("nothing is cleaned", || entries(path(pv)) == ["file"]);
}

pub fn pauses(cluster: &Cluster, page: &mut Procedure) {
    let (_disks, installed) = Release::with_disks(cluster, "paused", 1, json!({}));
    let pv = in_use(cluster, "paused", "claim", "app");
    page.about(&pv);
    page.follow(r#"pause "$PV""#);
    release(cluster, "claim", "app");
    wait_for_event(cluster, &pv, "CleaningPaused", "paused");
    holds_data(cluster, &installed, &pv);

    page.follow("pause --node");
    page.follow(r#"resume "$PV""#);
    holds_data(cluster, &installed, &pv);
    page.follow("resume --node");
    cluster.recycled(&pv);
    assert!(entries(path(&pv)).is_empty());

    page.follow("pause --all");
    let pv = in_use(cluster, "paused", "claim", "app");
    release(cluster, "claim", "app");
    holds_data(cluster, &installed, &pv);
    page.follow("resume --all");
    cluster.recycled(&pv);
}

/// Another disk takes a volume's place, with a file of its own.
fn exchange(volume: &Path, disk: &Path) {
    umount(volume).unwrap();
    mount(Some(disk), volume, Some("ext4"), MsFlags::empty(), None::<&str>).unwrap();
    fs::write(volume.join("stranger"), "").unwrap();
}

pub fn mismatches(cluster: &Cluster, page: &mut Procedure) {
    let (disks, _release) = Release::with_disks(cluster, "swapped", 2, json!({}));
    let others = [disks.spare(32 * MIB), disks.spare(32 * MIB)];
    let tenants = [("forget", "app-1"), ("wipe", "app-2")];
    let pvs = tenants.map(|(claim, pod)| in_use(cluster, "swapped", claim, pod));
    for ((pv, (claim, pod)), other) in pvs.iter().zip(tenants).zip(&others) {
        other.format("ext4").unwrap();
        release_paused(cluster, pv, claim, pod, || exchange(path(pv), other.path()));
        wait_for_event(cluster, pv, "VolumeIdentityMismatch", "nothing was touched");
    }

    page.about(&pvs[0]);
    let said = page.follow("explain");
    for consent in ["--wipe", "--forget"] {
        assert!(said.contains(consent), "{said}");
    }
    page.confirm("--forget", name(&pvs[0]));
    cluster.recycled(&pvs[0]);
    assert_eq!(entries(path(&pvs[0])), ["stranger"], "offered as it is");

    page.about(&pvs[1]);
    assert_eq!(entries(path(&pvs[1])), ["stranger"]);
    page.confirm("--wipe", name(&pvs[1]));
    cluster.recycled(&pvs[1]);
    assert!(entries(path(&pvs[1])).is_empty());
    for pv in &pvs {
        umount(path(pv)).unwrap();
    }
}

/// Releases a volume, and does something to it before it can be cleaned.
fn release_paused(cluster: &Cluster, pv: &Value, claim: &str, pod: &str, before: impl Fn()) {
    let paused = "local-volume-provisioner/paused";
    cluster.kubectl(&["annotate", "pv", name(pv), &format!("{paused}=true")]).unwrap();
    release(cluster, claim, pod);
    cluster.in_phase(pv, "Released");
    before();
    cluster.kubectl(&["annotate", "pv", name(pv), &format!("{paused}-")]).unwrap();
}

pub fn mistakes(cluster: &Cluster, page: &mut Procedure) {
    let (_disks, _release) = Release::with_disks(cluster, "saved", 2, json!({}));
    // The claim is deleted under the pod.
    let pv = in_use(cluster, "saved", "claim", "app");
    cluster.delete("pvc", "claim", &["--wait=false"]);
    page.about(&pv);
    page.set("CLAIM_NS", USERS);
    page.set("APP", "app");
    let mut rebinding = page.begin("rebind");
    rebinding.wait_for("default/app");
    page.follow("delete pod \"$APP\"");
    assert_eq!(rebinding.end(), Some(0), "{}", rebinding.screen());
    let bound = cluster.bound("claim");
    assert_eq!(bound["metadata"]["uid"], pv["metadata"]["uid"]);
    assert_eq!(bound["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let read = cluster.run_pod("reader", "claim", "Filesystem", "cat /data/file");
    assert_eq!(read, "data\n");
    cluster.delete_claim("claim");
    cluster.recycled(&pv);
    assert!(entries(path(&pv)).is_empty(), "in the end it is cleaned, as ever");

    // The PV is deleted under the claim, and then the claim.
    let pv = in_use(cluster, "saved", "second", "app");
    cluster.delete("pv", name(&pv), &["--wait=false"]);
    cluster.delete("pvc", "second", &["--wait=false"]);
    page.about(&pv);
    let mut rebinding = page.begin("rebind");
    assert_eq!(rebinding.end(), Some(1), "{}", rebinding.screen());
    assert!(rebinding.screen().contains("its cleaning is paused"));
    page.follow("delete pods");
    cluster.delete("pod", "app", &[]);
    cluster.is_gone("pvc", "second", Some(USERS));
    wait_for_event(cluster, &pv, "CleaningPaused", "paused");
    let safe = page.dir().join("safe");
    fs::create_dir(&safe).unwrap();
    page.set("SAFE", &safe);
    page.follow("cp --archive");
    assert_eq!(fs::read_to_string(safe.join("file")).unwrap(), "data\n");
    page.follow("resume");
    cluster.recycled(&pv);
    assert!(entries(path(&pv)).is_empty());
}

/// Mounts something inside a volume, which stops its cleaning.
fn mount_inside(volume: &Path) {
    let inner = volume.join("inner");
    fs::create_dir(&inner).unwrap();
    mount(Some("tmpfs"), &inner, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

pub fn failures(cluster: &Cluster, page: &mut Procedure) {
    const WHY: &str = "is mounted inside the volume";
    let (_disks, installed) = Release::with_disks(cluster, "failing", 1, json!({}));
    let fails = || {
        let pv = in_use(cluster, "failing", "claim", "app");
        release_paused(cluster, &pv, "claim", "app", || mount_inside(path(&pv)));
        wait_for_event(cluster, &pv, "VolumeFailedDelete", WHY);
        pv
    };

    let pv = fails();
    page.about(&pv);
    let said = page.follow("explain");
    assert!(said.contains(WHY), "{said}");
    umount(&path(&pv).join("inner")).unwrap();
    cluster.recycled(&pv);
    assert!(entries(path(&pv)).is_empty());

    let pv = fails();
    page.about(&pv);
    page.follow("umount --lazy");
    page.confirm("--forget", name(&pv));
    installed.still("it is not offered with the data in it", || cluster.pvs().is_empty());
}

pub fn more_to_see(cluster: &Cluster, page: &mut Procedure) {
    let (_disks, installed) = Release::with_disks(cluster, "logged", 1, json!({}));
    let level_is = |level: &str| {
        cluster.eventually(&format!("the log level is {level}"), || {
            let status: Value = serde_json::from_str(&installed.http("/status")).unwrap();
            status["logLevel"] == level
        });
    };
    let pv = in_use(cluster, "logged", "claim", "app");
    page.about(&pv);
    let said = page.follow("status");
    assert!(said.contains("node-real: ready") && said.contains(name(&pv)), "{said}");
    page.follow("logLevel=debug");
    level_is("debug");
    release(cluster, "claim", "app");
    cluster.recycled(&pv);
    let said = page.follow("--since=5m");
    assert!(said.contains("DEBUG") && said.contains("the directory is empty"), "{said}");
    page.follow("logLevel=info");
    level_is("info");
}
