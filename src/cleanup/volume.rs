//! A volume, open.

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
    /// The root of what is mounted at the path.
    Filesystem(FsRoot),
    /// The device, opened exclusively.
    Device(Device),
}

impl Volume {
    /// As those recognise it who use it.
    pub(crate) fn storage(&self, sysfs: &Sysfs) -> io::Result<Storage> {
        match self {
            Self::Filesystem(root) => Ok(Storage::of_filesystem(root)),
            Self::Device(device) => Storage::of_device(device, sysfs),
        }
    }

    /// Whether nobody else is held up when our reads and writes wait for the disk. In a part of a
    /// filesystem others are: who waits in the idle class may hold the filesystem's locks meanwhile.
    pub(crate) fn is_alone(&self) -> bool {
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
