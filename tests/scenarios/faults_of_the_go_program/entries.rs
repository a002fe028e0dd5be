//! Things in a cluster or a directory that are none of ours to trip over.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::stat::Mode;
use serde_json::json;
use support::stage::name;
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
fn fault_14_lost_found_or_a_plain_directory_never_keeps_the_node_from_being_ready() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    // The discovery directory is a disk of its own, as it often is: it has a lost+found.
    let disk = ext4(&stage);
    let dir = stage
        .sandbox
        .mount(disk.path(), "ext4", "disks/fast")
        .unwrap();
    assert!(dir.join("lost+found").exists());
    fs::create_dir(dir.join("plain")).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    skipped(&stage, &mut provisioner, &dir.join("plain"), "NotMounted");
    skipped(
        &stage,
        &mut provisioner,
        &dir.join("lost+found"),
        "NotMounted",
    );
    goes_round(&stage, &volume);
    ready(&stage, &mut provisioner);
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
    let Some(stage) = stage() else { return };
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

#[test]
fn fault_17_a_fifo_in_the_directory_hangs_nothing() {
    let Some(stage) = stage() else { return };
    let dir = stage.class("fast", &json!({})).unwrap();
    let fifo = dir.join("a-fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    goes_round(&stage, &volume);
    skipped(
        &stage,
        &mut provisioner,
        &fifo,
        "NotADirectoryOrBlockDevice",
    );
    ready(&stage, &mut provisioner);
}

#[test]
fn fault_17_odd_white_space_in_any_mount_path_stops_nothing() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    stage.sandbox.tmpfs("no\u{a0}break", "size=1m").unwrap();
    stage
        .sandbox
        .tmpfs("tab\tand\\newline\n", "size=1m")
        .unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let odd = stage
        .sandbox
        .tmpfs("disks/fast/an\u{a0}odd name\t1", "size=20m")
        .unwrap();
    let _provisioner = stage.provisioner().unwrap();
    goes_round(&stage, &volume);
    goes_round(&stage, &odd);
}

#[test]
fn fault_17_a_name_that_is_not_utf_8_makes_no_pv() {
    let Some(stage) = stage() else { return };
    let dir = stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let source = stage.sandbox.tmpfs("source", "size=20m").unwrap();
    let odd = dir.join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();
    nix::mount::mount(
        Some(&source),
        &odd,
        None::<&str>,
        nix::mount::MsFlags::MS_BIND,
        None::<&str>,
    )
    .unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    goes_round(&stage, &volume);
    skipped(
        &stage,
        &mut provisioner,
        &dir.join("odd-\\xff"),
        "NameNotUtf8",
    );
    stage.stays(Duration::from_millis(300), "there is one PV", || {
        stage.pvs().len() == 1
    });
    assert_eq!(name(&stage.pvs()[0]), name(&stage.available(&volume, None)));
}
