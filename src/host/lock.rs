//! One cleaner per volume: an advisory lock on the volume itself.
//!
//! Everything of ours that cleans takes it first: the loop, the `clean` command and a Job, of this
//! version or another, in whatever container. udev takes a shared lock on a disk while it probes it
//! and leaves one alone that is locked, so that a device may seem held for a moment.

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
    /// Somebody else has it.
    #[error("{} is locked by another process, probably another cleaner: see `lslocks` on the node", path.display())]
    Held {
        /// The volume.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{} cannot be locked: {source}", path.display())]
    Io {
        /// The volume.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A volume that is locked until this is dropped, and until every process that inherited the
/// descriptor has ended: it is never unlocked in so many words.
#[derive(Debug)]
pub struct VolumeLock {
    held: File,
}

impl VolumeLock {
    /// Locks the directory or device that `volume` has open, without waiting. `path` is for messages.
    ///
    /// The lock is on an open file description of its own: it holds also while the caller closes
    /// and reopens the device.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn acquire(volume: BorrowedFd<'_>, path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(through_proc(volume))
            .map_err(failed)?;
        // On Linux this is flock(2).
        match file.try_lock() {
            Ok(()) => Ok(Self { held: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The locked file. A process that inherits it holds the lock, too.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}
