//! An advisory lock on a volume, so that it has one cleaner at a time.
//!
//! The provisioner, the `clean` command and the Jobs acquire it before they clean, in any version and container.
//! udev holds a shared lock on a disk while it probes it, and skips a locked disk. So a device can be locked for a
//! moment by udev.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::libc;

use super::access::{Access, OpenError};
use super::through_proc;

/// A locked volume. It is unlocked when this is dropped and every process that inherited the descriptor has ended,
/// never explicitly.
#[derive(Debug)]
pub struct VolumeLock {
    held: File,
}

impl VolumeLock {
    /// Locks the directory or device that `volume` has open, without waiting: exclusively to clean it, else together
    /// with others that only read, such as udev while it probes a device. `path` is for messages.
    ///
    /// The lock has an open file description of its own, so it holds while the caller closes and reopens the
    /// device.
    ///
    /// # Errors
    /// [`OpenError::Locked`], or why it cannot be locked.
    pub fn acquire(volume: impl AsFd, path: &Path, access: Access) -> Result<Self, OpenError> {
        let failed = |error: io::Error| {
            OpenError::Failed(format!("{} cannot be locked: {error}", path.display()))
        };
        let held = super::open(&through_proc(volume), libc::O_NONBLOCK).map_err(failed)?;
        // On Linux this is flock(2).
        let locked = match access {
            Access::Clean => held.try_lock(),
            Access::Probe | Access::Offer => held.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(Self { held }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The locked file. A process that inherits it also holds the lock.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}
