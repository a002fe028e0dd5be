//! The errors of emptying a volume.

use nix::errno::Errno;

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
        "the subvolume or snapshot {path} cannot be made writable (CAP_FOWNER is missing, or `btrfs send` reads it); run `btrfs subvolume delete` on it"
    )]
    ReadOnlySubvolume {
        /// The subvolume.
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
    /// The machine swaps to a file of the volume.
    #[error("{path} is in use as swap space; run `swapoff` on it")]
    SwapFile {
        /// The swap file.
        path: ShownPath,
    },
    /// File permissions. Root with `CAP_DAC_OVERRIDE` bypasses them.
    #[error(
        "no permission for {path} ({errno}); run the provisioner as root with CAP_DAC_OVERRIDE and CAP_FOWNER"
    )]
    Denied {
        /// The entry or directory.
        path: ShownPath,
        /// `EACCES` or `EPERM`.
        errno: Errno,
    },
    /// A process creates entries as fast as they are deleted.
    #[error(
        "after {passes} passes {path} still gets new entries: a process is writing to the volume; stop it"
    )]
    Refilled {
        /// The directory that does not stay empty.
        path: ShownPath,
        /// How many times it was emptied.
        passes: u32,
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
    /// The reason in CamelCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoOpenat2 { .. } => "NoOpenat2",
            Self::NestedMount { .. } => "NestedMount",
            Self::ReadOnly => "ReadOnly",
            Self::ReadOnlyRoot => "ReadOnlyRoot",
            Self::ReadOnlySubvolume { .. } => "ReadOnlySubvolume",
            Self::Immutable { .. } => "Immutable",
            Self::SwapFile { .. } => "SwapFile",
            Self::Denied { .. } => "PermissionDenied",
            Self::Refilled { .. } => "Refilled",
            Self::NotEmpty { .. } => "NotEmpty",
            Self::TooManyAttributes => "TooManyAttributes",
            Self::Io { .. } => "IoError",
            Self::Several { first, .. } => first.reason(),
            Self::Cancelled(_) => "Cancelled",
        }
    }

    /// Whether the walk must stop: continuing is useless, or wrong because the conditions of the cleanup no
    /// longer hold.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::NoOpenat2 { .. }
            | Self::NestedMount { .. }
            | Self::ReadOnly
            | Self::ReadOnlyRoot
            | Self::Several { .. }
            | Self::Cancelled(_) => true,
            Self::Io { errno, .. } => matches!(errno, Errno::EIO | Errno::EMFILE | Errno::ENFILE),
            Self::ReadOnlySubvolume { .. }
            | Self::Immutable { .. }
            | Self::SwapFile { .. }
            | Self::Denied { .. }
            | Self::Refilled { .. }
            | Self::NotEmpty { .. }
            | Self::TooManyAttributes => false,
        }
    }
}
