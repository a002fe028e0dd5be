//! `privileged: false`: five capabilities, or four with `marks: Node`, a read-only root, and not one device.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use rustix::fs::getxattr;
use support::stage::{name, uid};
use support::{Program, Stage, skip};

use crate::BINARY;
use crate::kit::*;

/// What the chart keeps with `marks: Node`.
const FOUR: &str = "-all,+dac_override,+dac_read_search,+fowner,+linux_immutable";
/// What it keeps otherwise.
const FIVE: &str = "-all,+dac_override,+dac_read_search,+fowner,+linux_immutable,+sys_admin";

/// The provisioner with the privileges of a container with these capabilities.
fn unprivileged(stage: &Stage, capabilities: &str) -> Option<Program> {
    if Command::new("setpriv").arg("--version").output().is_err() {
        skip("no setpriv on this machine");
        return None;
    }
    let root = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(None::<&str>, "/", None::<&str>, root, None::<&str>).unwrap();
    let ours = stage.command();
    let mut command = Command::new("setpriv");
    command.env_clear();
    for (key, value) in ours.get_envs() {
        command.env(key, value.unwrap_or_default());
    }
    command
        .args(["--no-new-privs", "--inh-caps", "-all", "--bounding-set", capabilities])
        .arg(BINARY)
        .arg("--config")
        .arg(stage.config_dir())
        .arg("--kubelet-dir")
        .arg(stage.kubelet_dir())
        .args(["--listen-address", "127.0.0.1:0", "--v=4"]);
    Some(Program::start(command, stage.sandbox.path().join("unprivileged.log")).unwrap())
}

/// A tenant's tree that is hard to delete without root.
fn be_hostile(root: &Path) {
    let foreign = root.join("foreign");
    fs::create_dir_all(foreign.join("deep/below")).unwrap();
    for (n, file) in ["a", "deep/b", "deep/below/c"].iter().enumerate() {
        let file = foreign.join(file);
        fs::write(&file, SECRET).unwrap();
        let owner = Some(4000 + u32::try_from(n).unwrap());
        chown(&file, owner, owner).unwrap();
    }
    let sticky = root.join("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::write(sticky.join("file"), SECRET).unwrap();
    chown(sticky.join("file"), Some(4001), None).unwrap();
    chown(&sticky, Some(4002), None).unwrap();
    fs::set_permissions(&sticky, Permissions::from_mode(0o1700)).unwrap();
    for (flag, name) in [("+i", "immutable"), ("+a", "append-only")] {
        let file = foreign.join(name);
        File::create(&file).unwrap();
        chown(&file, Some(4003), Some(4003)).unwrap();
        let chattr = Command::new("chattr").arg(flag).arg(&file).status();
        assert!(chattr.unwrap().success());
    }
    let dirs = ["deep/below", "deep", ""].map(|dir| foreign.join(dir));
    for dir in dirs {
        chown(&dir, Some(4004), Some(4004)).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o000)).unwrap();
    }
}

#[test]
fn filesystems_are_offered_and_hostile_trees_wiped_with_four_capabilities() {
    let (stage, []) = or_skip!(fast_stage([]));
    let disk = ext4(&stage);
    let volume = crate::kit::mount(&stage, &disk, "disks/fast/vol");
    let memory = fast(&stage, "memory");
    let mut provisioner = or_skip!(unprivileged(&stage, FOUR));
    let offered = stage.available(&volume, None);
    assert!(identity(&offered).contains("uuid="), "{}", identity(&offered));
    stage.available(&memory, None);
    let (old, older) = (stage.occupy("claim", &volume), stage.occupy("other", &memory));
    be_hostile(&volume);
    stage.delete_claim("claim");
    stage.delete_claim("other");
    stage.available(&volume, Some(&uid(&old)));
    stage.available(&memory, Some(&uid(&older)));
    assert!(entries(&volume).is_empty() && entries(&memory).is_empty());
    stage.eventually("the node is ready", || provisioner.http_get("/ready").unwrap().0 == 200);
    assert!(!provisioner.log().contains("ERROR"), "nothing it wants is denied");
    let off = status(&mut provisioner)["unprotected"].to_string();
    assert!(off.contains("marks of filesystems stay on this node"), "{off}");
    assert!(off.contains("CAP_SYS_ADMIN"), "{off}");
    stage.event("ProtectionMissing", "CAP_SYS_ADMIN is missing");
    assert_eq!(provisioner.log().matches("is trimmed").count(), 1);
    assert_eq!(mark_on(&volume), None);
}

/// The mark on a filesystem.
fn mark_on(volume: &Path) -> Option<usize> {
    getxattr(volume, "security.local-volume", &mut [0; 2048][..]).ok()
}

#[test]
fn marks_of_filesystems_are_on_the_disk_with_five_capabilities() {
    let (stage, []) = or_skip!(fast_stage([]));
    let disk = ext4(&stage);
    let volume = crate::kit::mount(&stage, &disk, "disks/fast/vol");
    let mut provisioner = or_skip!(unprivileged(&stage, FIVE));
    stage.available(&volume, None);
    assert!(mark_on(&volume).is_some());
    let off = status(&mut provisioner)["unprotected"].to_string();
    assert!(!off.contains("CAP_SYS_ADMIN"), "{off}");
    let gauge = "local_volume_provisioner_protection{feature=\"marks_on_filesystems\"} 1";
    assert!(provisioner.http_get("/metrics").unwrap().1.contains(gauge));
}

/// As in a pod of the Go program whose image was replaced.
#[test]
fn pod_without_state_directory_and_kubelet_reports_that_it_does_not_protect() {
    let (mut stage, []) = or_skip!(fast_stage([]));
    let volume = fast(&stage, "vol");
    stage.add_arg("--kubelet-dir=/nowhere");
    let mut provisioner = stage.provisioner_with(&[("STATE_DIRECTORY", "")]);
    stage.available(&volume, None);
    stage.event("ProtectionMissing", "marks are off");
    stage.event("ProtectionMissing", "/nowhere lacks its pods and plugins");
    let metrics = provisioner.http_get("/metrics").unwrap().1;
    for (feature, on) in [("marks", 0), ("marks_on_filesystems", 1), ("kubelet_mounts", 0)] {
        let gauge = format!("local_volume_provisioner_protection{{feature=\"{feature}\"}} {on}");
        assert!(metrics.contains(&gauge), "{gauge}");
    }
    // The provisioner sees its PV later than this test does.
    stage.eventually("the node is ready", || provisioner.http_get("/ready").unwrap().0 == 200);
    let address = provisioner.http_address().unwrap();
    let command = stage.command().args(["status", "--listen-address", &address]).output();
    let output = command.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let second = text.lines().nth(1).unwrap();
    assert!(second.starts_with("  warning:    marks are off: "), "{text}");
    assert!(output.status.success(), "it serves as its pod allows");
}

/// The kernel refuses a device on a mount without devices as it does in such a container.
#[test]
fn a_device_is_refused_with_the_remedy_and_delays_no_filesystem() {
    let (stage, []) = or_skip!(fast_stage([]));
    let (disk, other) = (raw(&stage), raw(&stage));
    let nodes = tmpfs(&stage, "nodes");
    let node = |name: &str, device: &Path| {
        let number = fs::metadata(device).unwrap().rdev();
        mknod(&nodes.join(name), SFlag::S_IFBLK, Mode::from_bits_truncate(0o600), number).unwrap();
    };
    node("disk", disk.path());
    node("used", other.path());
    let discovery = stage.sandbox.path().join("disks/fast");
    for name in ["disk", "used"] {
        symlink(nodes.join(name), discovery.join(name)).unwrap();
    }
    // While devices were allowed, one of them was offered and used.
    let mut before = stage.provisioner();
    let bound = stage.bind("claim", &discovery.join("used"));
    stage.used(&bound);
    before.kill();
    let without = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NODEV;
    mount(None::<&str>, &nodes, None::<&str>, without, None::<&str>).unwrap();
    fs::remove_file(discovery.join("disk")).unwrap();
    symlink(nodes.join("disk"), discovery.join("new")).unwrap();

    let volume = fast(&stage, "vol");
    let mut provisioner = or_skip!(unprivileged(&stage, FOUR));
    stage.available(&volume, None);
    skipped(&stage, &mut provisioner, &discovery.join("new"), "Unreadable");
    let reported = status_of(&mut provisioner, &discovery.join("new"));
    let detail = reported["detail"].as_str().unwrap();
    assert!(detail.contains("may not open block devices"), "{detail}");
    assert!(detail.contains("privileged: true"), "{detail}");

    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "may not open block devices");
    assert_eq!(uid(&stage.pv(&name(&bound)).unwrap()), uid(&bound));
}
