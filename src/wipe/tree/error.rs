//! The errors of emptying a volume.

use nix::errno::Errno;

use super::walk::MAX_PASSES;
use crate::wipe::escape::ShownPath;
use crate::wipe::progress::Cancelled;

/// Why a volume could not be emptied. Paths are relative to the volume's root.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// `openat2` is not available. There is no safe fallback.
    #[error(
        "the kernel or a seccomp profile denies openat2 ({errno}), without which nothing is deleted; \
         run Linux 5.6 or later and allow openat2 in the container's seccomp profile"
    )]
    NoOpenat2 {
        /// `ENOSYS` or `EPERM`.
        errno: Errno,
    },
    /// A filesystem or directory is mounted inside the volume.
    #[error("{path} is mounted inside the volume; unmount it, then cleaning resumes")]
    NestedMount {
        /// The mount point.
        path: ShownPath,
    },
    /// The whole filesystem is read-only.
    #[error(
        "the filesystem is read-only, by its mount options or after an error (see the kernel log); repair it with fsck if necessary, then mount it writable"
    )]
    ReadOnly,
    /// The volume itself is a read-only subvolume or snapshot (btrfs). Nothing was deleted.
    #[error(
        "the volume is a read-only subvolume or snapshot; to delete its contents, run `btrfs property set -f DIRECTORY ro false` on its mount point"
    )]
    ReadOnlyRoot,
    /// A read-only subvolume or snapshot (btrfs) inside the volume could not be made writable.
    #[error(
        "the subvolume or snapshot of {path} cannot be made writable (CAP_FOWNER is missing, or `btrfs send` reads it); run `btrfs subvolume delete` on it"
    )]
    ReadOnlySubvolume {
        /// An entry or directory in the subvolume.
        path: ShownPath,
    },
    /// The flags of `chattr +i` or `+a` cannot be cleared.
    #[error(
        "{path} or its directory is immutable or append-only; give the provisioner CAP_LINUX_IMMUTABLE, or run `chattr -ia` on both"
    )]
    Immutable {
        /// The entry that could not be removed.
        path: ShownPath,
    },
    /// File permissions, which root with `CAP_DAC_OVERRIDE` bypasses, or swap space in use.
    #[error(
        "no permission for {path} ({errno}); run the provisioner as root with CAP_DAC_OVERRIDE and CAP_FOWNER, or run `swapoff` on it if it is a swap file"
    )]
    Denied {
        /// The entry or directory.
        path: ShownPath,
        /// `EACCES` or `EPERM`.
        errno: Errno,
    },
    /// A process creates entries as fast as they are deleted.
    #[error(
        "after {MAX_PASSES} passes {path} still gets new entries: a process is writing to the volume; stop it"
    )]
    Refilled {
        /// The directory that does not stay empty.
        path: ShownPath,
    },
    /// The verification found an entry.
    #[error("the volume was emptied, but contains {path}: a process is writing to it; stop it")]
    NotEmpty {
        /// An entry of the volume.
        path: ShownPath,
    },
    /// The kernel cannot list all extended attributes of the root directory.
    #[error(
        "the volume's root directory has too many attributes to list, so the tenant's (user.*) cannot be removed; create a new filesystem (mkfs)"
    )]
    TooManyAttributes,
    /// Any other error of the kernel.
    #[error("cannot {what} {path}: {}", errno.desc())]
    Io {
        /// The verb: open, read, remove, look at.
        what: &'static str,
        /// The entry or directory.
        path: ShownPath,
        /// The kernel's reason.
        errno: Errno,
    },
    /// Several entries could not be removed. All others are removed.
    #[error("{first} (and {others} more could not be removed)")]
    Several {
        /// The first failure.
        first: Box<Self>,
        /// The number of other failures.
        others: u64,
    },
    /// It was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl TreeError {
    /// Whether the walk must stop: continuing is useless, or wrong because the conditions of the cleanup no
    /// longer hold.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::NestedMount { .. } | Self::ReadOnly | Self::Cancelled(_) => true,
            Self::Io { errno, .. } => matches!(errno, Errno::EIO | Errno::EMFILE | Errno::ENFILE),
            _ => false,
        }
    }
}
