use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::lock::{LockError, VolumeLock};
use support::{LoopDevice, Sandbox, skip};

use crate::volumes::{once_closed, open, umount};

fn lock(path: &Path) -> Result<VolumeLock, LockError> {
    VolumeLock::acquire(File::open(path).unwrap().as_fd(), path)
}

#[test]
fn one_holder_at_a_time_for_directories_and_devices() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let device = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let tmpfs = sandbox.tmpfs("disk", "size=1m").unwrap();
    // Another path to the same directory is the same volume.
    let bound = sandbox.bind(&tmpfs, "bound").unwrap();
    for (path, same) in [(device.path(), device.path()), (&tmpfs, &bound)] {
        let held = lock(path).unwrap();
        let error = lock(same).unwrap_err();
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        drop(held);
        once_closed(|| lock(same));
    }
    let _one = once_closed(|| lock(&tmpfs));
    once_closed(|| lock(device.path()));
}

#[test]
fn the_lock_outlives_the_descriptor_that_it_was_made_from() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let real = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let device = Device::open_exclusive(real.path()).unwrap();
    let held = VolumeLock::acquire(device.as_fd(), real.path()).unwrap();
    drop(device);
    assert!(matches!(lock(real.path()), Err(LockError::Held { .. })));
    // The lock is no exclusive use.
    once_closed(|| Device::open_exclusive(real.path()));
    drop(held);
    once_closed(|| lock(real.path()));

    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let root = open(&path).unwrap();
    let held = VolumeLock::acquire(root.as_fd(), &path).unwrap();
    drop(root);
    assert!(matches!(lock(&path), Err(LockError::Held { .. })));
    drop(held);
    umount(&sandbox, &path);
}

#[test]
fn another_process_holds_it_until_it_is_killed() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let child = Command::new("flock")
        .arg(&path)
        .args(["-c", "echo locked; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return skip(&format!("no flock: {error}")),
    };
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "locked\n");
    let contended = lock(&path);
    // The lock goes with the last process that has the descriptor.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), None).unwrap();
    kill_tree(&mut child);
    assert!(matches!(contended, Err(LockError::Held { .. })));
    once_closed(|| lock(&path));
}

fn kill_tree(child: &mut std::process::Child) {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in children.unwrap_or_default().split_whitespace() {
        let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}
