//! An open block device. Its path is resolved once; [`Device::recheck`] verifies that it still leads here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use super::mounts::DeviceNumber;
use super::{ioctl, through_proc};

/// Why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is claimed: mounted (in any namespace), swap, a journal, btrfs, LVM, md, device-mapper.
    #[error("{} is in use", .0.display())]
    InUse(PathBuf),
    /// It is read-only.
    #[error("{} is read-only: see its write protection, and `blockdev --getro`", .0.display())]
    ReadOnly(PathBuf),
    /// The path is not a block device. It was not opened.
    #[error("{} is not a block device", .0.display())]
    NotABlockDevice(PathBuf),
    /// The container is not privileged, so it may not open block devices, even as root.
    #[error("this container may not open block devices, so {} cannot be offered or cleaned: set privileged: true in the chart, or take it out of the discovery directory ({})", .0.display(), .1)]
    NotAllowed(PathBuf, #[source] io::Error),
    /// The path leads to another device than the one that was opened, or its size changed.
    #[error("{} was device {was} and is now {is}: the disk was exchanged or resized", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
        /// Number and size before.
        was: String,
        /// Number and size now.
        is: String,
    },
    /// Any other error.
    #[error("{} cannot be opened: {}", .0.display(), .1)]
    Io(PathBuf, #[source] io::Error),
}

/// An open block device.
#[derive(Debug)]
pub struct Device {
    file: File,
    number: DeviceNumber,
    size: u64,
}

impl Device {
    /// Opens a device for reading. Links are followed; only block devices are opened.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_readonly(path: &Path) -> Result<Self, OpenError> {
        Self::open(path, OpenOptions::new().read(true), 0)
    }

    /// Opens a device for writing, exclusively. That does not exclude users without an exclusive open
    /// (a pod's raw volume, a loop device): see [`super::kubelet`], [`super::users`] and
    /// [`super::sysfs::Sysfs::loops_over`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_exclusive(path: &Path) -> Result<Self, OpenError> {
        let device = Self::open(
            path,
            OpenOptions::new().read(true).write(true),
            libc::O_EXCL,
        )?;
        // Most drivers open a write-protected device for writing, and fail each write.
        match ioctl::block_read_only(device.file()) {
            Ok(false) => Ok(device),
            Ok(true) => Err(OpenError::ReadOnly(path.to_owned())),
            Err(error) => Err(OpenError::Io(path.to_owned(), error)),
        }
    }

    /// Opens a device for reading, exclusively. Closing a device that was open for writing would make udev
    /// probe it again.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_exclusive_readonly(path: &Path) -> Result<Self, OpenError> {
        Self::open(path, OpenOptions::new().read(true), libc::O_EXCL)
    }

    fn open(path: &Path, options: &mut OpenOptions, flags: i32) -> Result<Self, OpenError> {
        let (handle, number) = resolve(path)?;
        let failed = |error: io::Error| {
            let path = path.to_owned();
            match error.raw_os_error() {
                Some(libc::EBUSY) => OpenError::InUse(path),
                Some(libc::EROFS) => OpenError::ReadOnly(path),
                // The devices cgroup returns EPERM, a `nodev` mount EACCES.
                Some(libc::EPERM | libc::EACCES) => OpenError::NotAllowed(path, error),
                _ => OpenError::Io(path, error),
            }
        };
        let file = options
            .custom_flags(flags | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(through_proc(&handle))
            .map_err(failed)?;
        let size = ioctl::block_size_bytes(&file).map_err(failed)?;
        Ok(Self { file, number, size })
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The device's number.
    #[must_use]
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Its size in bytes at the time of opening.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Verifies that the device still has its size and that `path` still leads to it.
    ///
    /// # Errors
    /// [`OpenError::Changed`], or why the check failed.
    pub fn recheck(&self, path: &Path) -> Result<(), OpenError> {
        let (_, number) = resolve(path)?;
        let size = ioctl::block_size_bytes(&self.file)
            .map_err(|error| OpenError::Io(path.to_owned(), error))?;
        if (number, size) == (self.number, self.size) {
            return Ok(());
        }
        Err(OpenError::Changed {
            path: path.to_owned(),
            was: format!("{} of {} bytes", self.number, self.size),
            is: format!("{number} of {size} bytes"),
        })
    }
}

/// Resolves a path to a block device without opening it: no driver is called, so it cannot block. The device that
/// is opened through the `O_PATH` handle is the file whose type was checked.
fn resolve(path: &Path) -> Result<(File, DeviceNumber), OpenError> {
    let failed = |error| OpenError::Io(path.to_owned(), error);
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
        .map_err(failed)?;
    let facts = handle.metadata().map_err(failed)?;
    if !facts.file_type().is_block_device() {
        return Err(OpenError::NotABlockDevice(path.to_owned()));
    }
    Ok((handle, DeviceNumber::from_rdev(facts.rdev())))
}
