//! What the tests have in common: volumes of all kinds, and the questions asked of them.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use local_volume_provisioner::host::access::OpenError;
use local_volume_provisioner::host::filesystem::FsRoot;
use local_volume_provisioner::host::footprint::Footprint;
use local_volume_provisioner::host::identity::{self, Identity};
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::host::sysfs::Sysfs;
use nix::mount::MsFlags;
use support::{LoopDevice, Sandbox, has, skip};

/// The smallest image that each `mkfs` accepts, in bytes.
pub const SIZES: [(&str, u64); 3] = [("ext4", 16 << 20), ("xfs", 300 << 20), ("btrfs", 128 << 20)];

pub fn open(path: &Path) -> Result<FsRoot, OpenError> {
    FsRoot::open(path, &MountTable::read().unwrap())
}

pub fn fs_identity(path: &Path) -> Identity {
    identity::of_filesystem(&open(path).unwrap(), &Sysfs::default()).unwrap()
}

pub fn fs_footprint(path: &Path) -> Footprint {
    Footprint::of_filesystem(&open(path).unwrap(), &Sysfs::default()).unwrap()
}

/// A device with a filesystem, or `None` where its `mkfs` is missing.
pub fn formatted(sandbox: &Sandbox, fs_type: &str) -> Option<LoopDevice> {
    let (_, size) = SIZES.iter().find(|(name, _)| *name == fs_type).unwrap();
    let mkfs = format!("mkfs.{fs_type}");
    if !has(&mkfs) {
        skip(&format!("there is no {mkfs}"));
        return None;
    }
    Some(LoopDevice::formatted(sandbox.path(), *size, fs_type).unwrap())
}

/// Another device with the same bytes.
pub fn clone_of(sandbox: &Sandbox, device: &LoopDevice) -> LoopDevice {
    nix::unistd::sync();
    let mut copy = tempfile::tempfile_in(sandbox.path()).unwrap();
    io::copy(&mut File::open(device.path()).unwrap(), &mut copy).unwrap();
    LoopDevice::over(&copy).unwrap()
}

pub fn remount(path: &Path, flags: MsFlags) {
    nix::mount::mount(None::<&str>, path, None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>)
        .unwrap();
}

/// Takes a mount off, as soon as nothing of it is open.
pub fn umount(sandbox: &Sandbox, path: &Path) {
    once_closed(|| sandbox.umount(path));
}

/// Tries again for some seconds: what we have closed, a process that another test's thread is just
/// starting may have open until its `exec`.
pub fn once_closed<T, E: Debug>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..1000 {
        if let Ok(done) = attempt() {
            return done;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    attempt().unwrap()
}
