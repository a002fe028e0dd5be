//! What is not touched, whatever the command line says.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use local_volume_provisioner::host::lock::VolumeLock;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use support::{LoopDevice, run, sandbox};

use crate::ground::{
    SECRET, assert_clean, assert_refused, bytes, device_with_secret, ext4_volume, is_full, volume,
};

#[test]
fn what_is_no_volume() {
    let sandbox = sandbox!();
    let plain = sandbox.dir("plain").unwrap();
    fs::write(plain.join("file"), "kept").unwrap();
    let root = volume(&sandbox, "volume");
    symlink(&root, sandbox.path().join("link")).unwrap();
    let fifo = plain.join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let odd = sandbox.path().join(OsStr::from_bytes(b"\xff"));
    for (path, words) in [
        (plain.as_path(), "on which nothing is mounted"),
        (
            &plain.join("file"),
            "neither a mount point nor a block device",
        ),
        (&fifo, "neither a mount point nor a block device"),
        (
            Path::new("/dev/null"),
            "neither a mount point nor a block device",
        ),
        (&plain.join("missing"), "No such file"),
        (&sandbox.path().join("link"), "give the mount point itself"),
        (
            &plain.join("../link"),
            "/mnt/link is a symbolic link to the directory /mnt/volume: give the mount point itself",
        ),
        (&root.join("dir"), "on which nothing is mounted"),
        (&odd, "is not UTF-8"),
    ] {
        assert_refused(path, &[], words);
    }
    assert_eq!(fs::read(plain.join("file")).unwrap(), b"kept");
    assert!(is_full(&root));
}

#[test]
fn what_the_machine_needs() {
    let sandbox = sandbox!();
    let usr = sandbox.bind(Path::new("/usr/share"), "usr").unwrap();
    let root = sandbox.bind(Path::new("/"), "root").unwrap();
    for (path, words) in [
        (Path::new("/"), "needed by this machine"),
        (Path::new("/proc"), "a part of /proc"),
        (Path::new("/sys"), "a part of /sys"),
        (Path::new("/dev"), "a part of /dev"),
        (&usr, "a part of /usr"),
        (&root, "needed by this machine"),
    ] {
        // Never in earnest: should this ever fail, it must not cost the machine.
        let refused = ["error: ", words, "nothing was touched"];
        assert_clean(&[path.as_os_str(), "--dry-run".as_ref()], 2, &refused);
    }
    // Wherever the command is given.
    let root = volume(&sandbox, "volume");
    for path in [".", "..", root.to_str().unwrap()] {
        let output = Command::new(env!("CARGO_BIN_EXE_local-volume-provisioner"))
            .args(["clean", "--yes", path])
            .current_dir(if path == ".." {
                root.join("dir")
            } else {
                root.clone()
            })
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("your working directory is in it"), "{said}");
    }
    assert!(is_full(&root));
}

#[test]
fn what_something_is_mounted_in_or_on() {
    let sandbox = sandbox!();
    let outer = volume(&sandbox, "outer");
    let inner = volume(&sandbox, "outer/dir/inner");
    assert_refused(&outer, &[], "/mnt/outer/dir/inner");
    // The same filesystem in a second place.
    let twice = volume(&sandbox, "twice");
    sandbox.bind(&twice.join("dir"), "twice/again").unwrap();
    assert_refused(&twice, &[], "/mnt/twice/again");
    // To empty it would empty the second place.
    let shared = volume(&sandbox, "shared");
    let part = sandbox.bind(&shared.join("dir"), "part").unwrap();
    assert_refused(&shared, &[], "a part of it is mounted at \"/mnt/part\"");
    assert!(is_full(&outer) && is_full(&inner) && is_full(&twice));
    assert_eq!(fs::read_dir(part).unwrap().count(), 1);

    let (root, device) = or_skip!(ext4_volume(&sandbox, "disk"));
    assert_refused(device.path(), &[], "is in use: mounted on /mnt/disk");
    assert!(is_full(&root));
}

#[test]
fn what_volumes_are_looked_for_in() {
    let sandbox = sandbox!();
    let disks = volume(&sandbox, "disks");
    let config = sandbox.dir("config").unwrap();
    let map = "fast: { hostDir: /mnt/disks, mountDir: /mnt/disks }";
    fs::write(config.join("storageClassMap"), map).unwrap();
    let config = ["--config=/mnt/config"];
    assert_refused(
        &disks,
        &config,
        "the discovery directory of class \"fast\" is in it",
    );
    // One that does not load may say the same of any directory.
    let broken = sandbox.dir("broken").unwrap().join("storageClassMap");
    fs::write(broken, "fast: {").unwrap();
    for config in [
        "--config=/mnt/broken",
        "--config=/mnt/broken/storageClassMap",
    ] {
        assert_refused(&disks, &[config], "it does not load");
    }
    let inside = volume(&sandbox, "disks/inside");
    let args = [inside.as_os_str(), "--yes".as_ref(), config[0].as_ref()];
    assert_clean(&args, 0, &["Cleaned /mnt/disks/inside"]);
    assert!(is_full(&disks));
}

#[test]
fn what_is_read_only() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, &root, None::<&str>, flags, None::<&str>).unwrap();
    assert_refused(&root, &[], "is read-only");
    assert!(is_full(&root));

    // Over a file that is open for reading only. Not `blockdev --setro`: that would outlast us.
    let image = sandbox.path().join("image");
    fs::write(&image, SECRET.repeat(1 << 16)).unwrap();
    let device = LoopDevice::over(&fs::File::open(&image).unwrap()).unwrap();
    let before = bytes(&device);
    assert_refused(device.path(), &[], "is read-only");
    assert!(bytes(&device) == before);
}

#[test]
fn what_is_a_read_only_snapshot() {
    let sandbox = sandbox!("mkfs.btrfs", "btrfs");
    let device = LoopDevice::formatted(sandbox.path(), 128 << 20, "btrfs").unwrap();
    let root = sandbox.mount(device.path(), "btrfs", "whole").unwrap();
    run("btrfs", &["-q", "subvolume", "create", "/mnt/whole/volume"]);
    fs::create_dir(root.join("volume/dir")).unwrap();
    fs::write(root.join("volume/dir/file"), SECRET).unwrap();
    let snapshot = ["/mnt/whole/volume", "/mnt/whole/snapshot"];
    run(
        "btrfs",
        &[&["-q", "subvolume", "snapshot", "-r"], &snapshot[..]].concat(),
    );
    let snapshot = sandbox.bind(&root.join("snapshot"), "snapshot").unwrap();
    assert_refused(&snapshot, &[], "property set /mnt/snapshot ro false");
    assert!(is_full(&snapshot));
}

#[test]
fn what_others_have_files_in_where_we_are_not_root() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let output = Command::new("setpriv")
        .args([
            "--bounding-set=-dac_override",
            env!("CARGO_BIN_EXE_local-volume-provisioner"),
        ])
        .args(["clean", "--yes", "/mnt/volume"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("run this as root"), "{said}");
    assert!(is_full(&root));
}

#[test]
fn what_somebody_else_cleans_or_builds_upon() {
    let sandbox = sandbox!();
    let (root, device) = (
        volume(&sandbox, "volume"),
        device_with_secret(sandbox.path()),
    );
    let before = bytes(&device);
    {
        let open = fs::File::open(&root).unwrap();
        let _lock = VolumeLock::acquire(open.as_fd(), &root).unwrap();
        let _other = VolumeLock::acquire(device.file().as_fd(), device.path()).unwrap();
        assert_refused(&root, &[], "locked by another process");
        assert_refused(device.path(), &[], "locked by another process");
    }
    let _upon = LoopDevice::over(device.file()).unwrap();
    assert_refused(device.path(), &[], "lies on it");
    assert!(is_full(&root) && bytes(&device) == before);
}

#[test]
fn what_the_method_does_not_fit() {
    let sandbox = sandbox!();
    let (root, device) = (
        volume(&sandbox, "volume"),
        device_with_secret(sandbox.path()),
    );
    let before = bytes(&device);
    assert_refused(&root, &["--method=zero"], "can only be emptied");
    assert_refused(
        device.path(),
        &["--trim=false"],
        "--trim is for filesystems",
    );
    assert_refused(device.path(), &["--verify"], "--verify goes with");
    for wrong in ["--passes=0", "--method=shred", "--trim=perhaps"] {
        let args = [device.path().as_os_str(), "--yes".as_ref(), wrong.as_ref()];
        assert_clean(&args, 2, &["invalid value"]);
    }
    assert!(is_full(&root) && bytes(&device) == before);
}

#[test]
fn whatever_nobody_can_be_asked_about() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let path: OsString = root.clone().into();
    assert_clean(&[&path], 2, &["no terminal", "--dry-run", "--yes"]);
    assert!(is_full(&root));
}
