use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use local_volume_provisioner::host::access::{Access, OpenError};
use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::lock::VolumeLock;
use support::{LoopDevice, sandbox};

use crate::volumes::{once_closed, open, umount};

fn lock(path: &Path) -> Result<VolumeLock, OpenError> {
    VolumeLock::acquire(File::open(path).unwrap().as_fd(), path, Access::Clean)
}

#[test]
fn one_holder_at_a_time_for_directories_and_devices() {
    let sandbox = sandbox!();
    let device = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let tmpfs = sandbox.tmpfs("disk", "size=1m").unwrap();
    // Another path to the same directory is the same volume.
    let bound = sandbox.bind(&tmpfs, "bound").unwrap();
    for (path, same) in [(device.path(), device.path()), (&tmpfs, &bound)] {
        let held = lock(path).unwrap();
        let error = lock(same).unwrap_err();
        assert!(matches!(error, OpenError::Locked(_)), "{error}");
        drop(held);
        once_closed(|| lock(same));
    }
    let _one = once_closed(|| lock(&tmpfs));
    once_closed(|| lock(device.path()));
}

#[test]
fn the_lock_outlives_the_descriptor_that_it_was_made_from() {
    let sandbox = sandbox!();
    let real = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let device = Device::open(real.path(), Access::Clean).unwrap();
    let held = VolumeLock::acquire(device.file().as_fd(), real.path(), Access::Clean).unwrap();
    drop(device);
    assert!(matches!(lock(real.path()), Err(OpenError::Locked(_))));
    // The lock is no exclusive use.
    once_closed(|| Device::open(real.path(), Access::Clean));
    drop(held);
    once_closed(|| lock(real.path()));

    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let root = open(&path).unwrap();
    let held = VolumeLock::acquire(root.as_fd(), &path, Access::Clean).unwrap();
    drop(root);
    assert!(matches!(lock(&path), Err(OpenError::Locked(_))));
    drop(held);
    umount(&sandbox, &path);
}
