//! What a volume is opened for, and why it was not opened.

use std::path::PathBuf;

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look at it.
    Probe,
    /// To create its PV: exclusively, but not for writing. Closing a device that was open for writing would make udev
    /// probe it again.
    Offer,
    /// To clean it: exclusively.
    Clean,
}

/// Why a volume was not opened or locked.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device is claimed: mounted (in any namespace), swap, a journal, btrfs, LVM, md, device-mapper.
    #[error("{} is in use", .0.display())]
    InUse(PathBuf),
    /// Another process holds the lock.
    #[error("{} is locked by another process, probably another cleaner: see `lslocks` on the node", .0.display())]
    Locked(PathBuf),
    /// A directory on which nothing is mounted. The log line must not change: tools search for it.
    #[error("path \"{}\" is not a valid mount point", .0.display())]
    NotMounted(PathBuf),
    /// Another cause, with the path.
    #[error("{0}")]
    Failed(String),
}
