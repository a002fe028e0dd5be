//! Things in a cluster or a directory that are none of ours to trip over.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use serde_json::json;
use support::Stage;

use crate::kit::*;
use crate::stage;

/// Asserts that a volume is recycled once: bound, written to, released, clean, offered.
fn is_recycled(stage: &Stage, volume: &std::path::Path) {
    let bound = stage.bind("round", volume);
    keep_secret(volume);
    stage.delete_claim("round");
    offered_again(stage, volume, &bound);
    assert!(entries(volume).is_empty());
}

#[test]
fn fault_14_and_17_odd_entries_and_mounts_never_keep_the_node_from_being_ready() {
    let (stage, []) = or_skip!(fast_stage([]));
    // The discovery directory is a disk of its own, as it often is: it has a lost+found.
    let disk = ext4(&stage);
    let dir = crate::kit::mount(&stage, &disk, "disks/fast");
    // As systemd mounts it.
    let none = None::<&str>;
    mount(none, &dir, none, MsFlags::MS_SHARED, none).unwrap();
    assert!(dir.join("lost+found").exists());
    fs::create_dir(dir.join("plain")).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(dir.join("socket")).unwrap();
    for (target, name) in [
        ("/nowhere", "dangling"),
        ("/mnt", "link-to-a-directory"),
        ("/dev/null", "character-device"),
    ] {
        symlink(target, dir.join(name)).unwrap();
    }
    let [source, volume, odd] =
        ["no\u{a0}break", "disks/fast/vol-1", "disks/fast/an\u{a0}odd name\t1"]
            .map(|at| tmpfs(&stage, at));
    tmpfs(&stage, "tab\tand\\newline\n");
    let long = "l".repeat(255);
    let names = ["new\nline", "back\\slash", "\u{e4}\u{1f4be}", "-o", "quo\"te'", &long];
    let good = names.map(|name| fast(&stage, name));
    let not_utf8 = dir.join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&not_utf8).unwrap();
    let flags = MsFlags::MS_BIND;
    mount(Some(&source), &not_utf8, none, flags, none).unwrap();
    let mut provisioner = stage.provisioner();
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    for (entry, reason) in [
        ("plain", "NotMounted"),
        ("lost+found", "NotMounted"),
        ("file", "NotADirectoryOrBlockDevice"),
        ("fifo", "NotADirectoryOrBlockDevice"),
        ("socket", "NotADirectoryOrBlockDevice"),
        ("dangling", "NotADirectoryOrBlockDevice"),
        ("link-to-a-directory", "NotADirectoryOrBlockDevice"),
        ("character-device", "NotADirectoryOrBlockDevice"),
        ("odd-\\xff", "NameNotUtf8"),
    ] {
        skipped(&stage, &mut provisioner, &dir.join(entry), reason);
        let detail = status_of(&mut provisioner, &dir.join(entry))["detail"].to_string();
        assert!(detail.contains(&entry.replace('\\', "\\\\")), "{detail}");
    }
    for volume in good.iter().chain([&volume, &odd]) {
        is_recycled(&stage, volume);
    }
    ready(&stage, &mut provisioner);
    stage.still(&mut provisioner, "no other PV", || stage.pvs().len() == good.len() + 2);
    // The log line that monitoring matches, once for each entry and not once for each scan.
    for entry in ["plain", "lost+found"] {
        let line = format!("path \"{}\" is not a valid mount point", dir.join(entry).display());
        assert_eq!(provisioner.log().matches(&line).count(), 1, "{line}");
    }
    symlink("loop", dir.join("loop")).unwrap();
    skipped(&stage, &mut provisioner, &dir.join("loop"), "Unreadable");
}

#[test]
fn fault_17_a_released_pv_that_is_not_local_is_harmless() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({}));
    let volume = fast(&stage, "vol-1");
    let elsewhere = stage.sandbox.dir("elsewhere").unwrap();
    keep_secret(&elsewhere);
    let host_path = stage.named("host-path");
    let mut forged = pv_by_hand(&stage, &host_path, "fast", &dir, "20Mi");
    forged["metadata"]["labels"] = json!({ "kubernetes.io/hostname": stage.node() });
    forged["spec"]["local"] = json!(null);
    forged["spec"]["hostPath"] = json!({ "path": elsewhere });
    // The control plane's own deleter for hostPath is not meant here.
    forged["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    stage.create_pv(forged);
    bind_and_release(&stage, "claim", &host_path, "fast");
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });

    let mut provisioner = stage.provisioner();
    stage.available(&volume, None);
    stage.patch_pv(&host_path, &delete);
    is_recycled(&stage, &volume);
    assert!(has_secret(&elsewhere));
    assert!(provisioner.is_running());
    assert!(!provisioner.log().contains("panic"));
}
