//! An open block device. Its path is resolved once; [`Device::recheck`] verifies that it still leads here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

use super::access::{Access, OpenError};
use super::mounts::DeviceNumber;
use super::{ioctl, open, through_proc};

/// An open block device.
#[derive(Debug)]
pub struct Device {
    file: File,
    number: DeviceNumber,
    size: u64,
}

impl Device {
    /// Opens a device. Links are followed; only block devices are opened.
    ///
    /// An exclusive open does not exclude users without one (a pod's raw volume, a loop device): see
    /// [`super::kubelet`], [`super::users`] and [`super::sysfs::Sysfs::loops_over`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        let failed = |error| open_error(path, &error);
        let (handle, number) = resolve(path)?;
        let exclusive = match access {
            Access::Probe => 0,
            Access::Offer | Access::Clean => libc::O_EXCL,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::Clean)
            .custom_flags(exclusive | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(through_proc(&handle))
            .map_err(failed)?;
        // Most drivers open a write-protected device for writing, and fail each write.
        if access == Access::Clean && ioctl::block_read_only(&file).map_err(failed)? {
            return Err(failed(Errno::EROFS.into()));
        }
        let size = ioctl::block_size_bytes(&file).map_err(failed)?;
        Ok(Self { file, number, size })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The device's number.
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Its size in bytes at the time of opening.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Verifies that the device still has its size and that `path` still leads to it. Calls no driver.
    ///
    /// # Errors
    /// How it differs, or why the check failed.
    pub fn recheck(&self, path: &Path) -> Result<(), OpenError> {
        let (_, number) = resolve(path)?;
        let size = ioctl::block_size_bytes(&self.file).map_err(|error| open_error(path, &error))?;
        if (number, size) == (self.number, self.size) {
            return Ok(());
        }
        let path = path.display();
        let text = format!("{path}: the disk was exchanged or resized");
        Err(OpenError::Failed(text))
    }
}

/// Resolves a path to a block device without calling its driver, which could block. The device that is opened through
/// the handle is the file whose type was checked.
fn resolve(path: &Path) -> Result<(File, DeviceNumber), OpenError> {
    let failed = |error| open_error(path, &error);
    let handle = open(path, libc::O_PATH).map_err(failed)?;
    let facts = handle.metadata().map_err(failed)?;
    if !facts.file_type().is_block_device() {
        let text = format!("{} is not a block device", path.display());
        return Err(OpenError::Failed(text));
    }
    Ok((handle, DeviceNumber::from_rdev(facts.rdev())))
}

fn open_error(path: &Path, error: &io::Error) -> OpenError {
    let shown = path.display();
    OpenError::Failed(match error.raw_os_error() {
        Some(libc::EBUSY) => return OpenError::InUse(path.to_owned()),
        Some(libc::EROFS) => {
            format!("{shown} is read-only: see its write protection, and `blockdev --getro`")
        }
        // The devices cgroup returns EPERM, a `nodev` mount EACCES: even root may not open block devices in a
        // container that is not privileged.
        Some(libc::EPERM | libc::EACCES) => format!(
            "this container may not open block devices, so {shown} cannot be offered or cleaned: set privileged: true in the chart, or take it out of the discovery directory ({error})"
        ),
        _ => format!("{shown} cannot be opened: {error}"),
    })
}
