//! An open volume: a filesystem root or a device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::sysfs::Sysfs;
use crate::host::users::Storage;

/// An open volume.
#[derive(Debug)]
pub(crate) enum Volume {
    /// The root directory of the filesystem that is mounted at the path.
    Filesystem(FsRoot),
    /// The device, opened exclusively.
    Device(Device),
}

impl Volume {
    /// The storage by which other users of the volume are found.
    pub(crate) fn storage(&self, sysfs: &Sysfs) -> io::Result<Storage> {
        match self {
            Self::Filesystem(root) => Ok(Storage::of_filesystem(root)),
            Self::Device(device) => Storage::of_device(device, sysfs),
        }
    }

    /// Whether idle I/O priority slows down only this volume. A thread that waits for the disk in the idle
    /// class may hold locks of the filesystem, which other directories of the same filesystem share.
    pub(crate) fn allows_idle_io(&self) -> bool {
        match self {
            Self::Filesystem(root) => root.mount().root == Path::new("/"),
            Self::Device(_) => true,
        }
    }
}

impl AsFd for Volume {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Filesystem(root) => root.as_fd(),
            Self::Device(device) => device.file().as_fd(),
        }
    }
}
