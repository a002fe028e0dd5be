//! An advisory lock on a volume, so that it has one cleaner at a time.
//!
//! The provisioner, the `clean` command and the Jobs acquire it before they clean, in any version and container.
//! udev holds a shared lock on a disk while it probes it, and skips a locked disk. So a device can be locked for a
//! moment by udev.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::through_proc;

/// Why a volume was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} is locked by another process, probably another cleaner: see `lslocks` on the node", .0.display())]
    Held(PathBuf),
    /// Any other error.
    #[error("{} cannot be locked: {}", .0.display(), .1)]
    Io(PathBuf, #[source] io::Error),
}

/// A locked volume. It is unlocked when this is dropped and every process that inherited the descriptor has ended,
/// never explicitly.
#[derive(Debug)]
pub struct VolumeLock {
    held: File,
}

impl VolumeLock {
    /// Locks the directory or device that `volume` has open, without waiting. `path` is for messages.
    ///
    /// The lock has an open file description of its own, so it holds while the caller closes and reopens the
    /// device.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn acquire(volume: BorrowedFd<'_>, path: &Path) -> Result<Self, LockError> {
        Self::try_lock(volume, path, File::try_lock)
    }

    /// Locks it together with others that only read: udev, while it probes a device. No cleaner has it then.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn acquire_shared(volume: BorrowedFd<'_>, path: &Path) -> Result<Self, LockError> {
        Self::try_lock(volume, path, File::try_lock_shared)
    }

    fn try_lock(
        volume: BorrowedFd<'_>,
        path: &Path,
        lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, LockError> {
        let failed = |error| LockError::Io(path.to_owned(), error);
        let held = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(through_proc(volume))
            .map_err(failed)?;
        // On Linux this is flock(2).
        match lock(&held) {
            Ok(()) => Ok(Self { held }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The locked file. A process that inherits it also holds the lock.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}
