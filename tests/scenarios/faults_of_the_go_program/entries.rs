//! Things in a cluster or a directory that are none of ours to trip over.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use serde_json::json;
use support::{Program, Stage};

use crate::kit::*;
use crate::stage;

fn ready(stage: &Stage, provisioner: &mut Program) {
    stage.eventually("the node is ready", || {
        (provisioner.http_get("/ready").unwrap().0 == 200).then_some(())
    });
}

/// Asserts that a volume goes once round: bound, written to, released, clean, offered.
fn goes_round(stage: &Stage, volume: &std::path::Path) {
    let bound = stage.bind("round", volume);
    keep_secret(volume);
    stage.delete_claim("round");
    offered_anew(stage, volume, &bound);
    assert!(entries(volume).is_empty());
}

#[test]
fn fault_14_and_17_odd_entries_and_mounts_never_keep_the_node_from_being_ready() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({})).unwrap();
    // The discovery directory is a disk of its own, as it often is: it has a lost+found.
    let disk = ext4(&stage);
    let dir = stage
        .sandbox
        .mount(disk.path(), "ext4", "disks/fast")
        .unwrap();
    assert!(dir.join("lost+found").exists());
    fs::create_dir(dir.join("plain")).unwrap();
    nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
    let [source, volume, odd] = [
        "no\u{a0}break",
        "disks/fast/vol-1",
        "disks/fast/an\u{a0}odd name\t1",
    ]
    .map(|at| stage.sandbox.tmpfs(at, "size=20m").unwrap());
    stage
        .sandbox
        .tmpfs("tab\tand\\newline\n", "size=1m")
        .unwrap();
    let not_utf8 = dir.join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&not_utf8).unwrap();
    let (none, flags) = (None::<&str>, MsFlags::MS_BIND);
    mount(Some(&source), &not_utf8, none, flags, none).unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    for (entry, reason) in [
        ("plain", "NotMounted"),
        ("lost+found", "NotMounted"),
        ("fifo", "NotADirectoryOrBlockDevice"),
        ("odd-\\xff", "NameNotUtf8"),
    ] {
        skipped(&stage, &mut provisioner, &dir.join(entry), reason);
    }
    goes_round(&stage, &volume);
    goes_round(&stage, &odd);
    ready(&stage, &mut provisioner);
    stage.still(&mut provisioner, "two PVs", || stage.pvs().len() == 2);
    // The line that tools look for, once for each entry and not once for each look.
    for entry in ["plain", "lost+found"] {
        let line = format!(
            "path \"{}\" is not a valid mount point",
            dir.join(entry).display()
        );
        assert_eq!(provisioner.log().matches(&line).count(), 1, "{line}");
    }
}

#[test]
fn fault_17_a_released_pv_that_is_not_local_harms_nobody() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let elsewhere = stage.sandbox.dir("elsewhere").unwrap();
    keep_secret(&elsewhere);
    let host_path = stage.named("host-path");
    let mut forged = pv_by_hand(&stage, &host_path, "fast", &dir, "20Mi");
    forged["metadata"]["labels"] = json!({ "kubernetes.io/hostname": stage.node() });
    forged["spec"]["local"] = json!(null);
    forged["spec"]["hostPath"] = json!({ "path": elsewhere });
    // The control plane's own deleter for hostPath is not meant here.
    forged["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    stage.create_pv(forged).unwrap();
    bind_and_release(&stage, "claim", &host_path, "fast");
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });

    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    stage.patch_pv(&host_path, &delete).unwrap();
    goes_round(&stage, &volume);
    assert!(has_secret(&elsewhere));
    assert!(provisioner.is_running());
    assert!(!provisioner.log().contains("panic"));
}
