//! What can keep a volume from being emptied.

use nix::errno::Errno;

use crate::wipe::escape::ShownPath;
use crate::wipe::progress::Cancelled;

/// Why a volume could not be emptied. Paths are relative to the volume's root.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// No `openat2`, and nothing less will do.
    #[error(
        "the kernel or a seccomp profile denies openat2 ({errno}), without which nothing is deleted; \
         run Linux 5.6 or later and allow openat2 in the container's seccomp profile"
    )]
    NoOpenat2 {
        /// `ENOSYS` or `EPERM`.
        errno: Errno,
    },
    /// Another filesystem, or another part of this one, is mounted inside the volume.
    #[error(
        "something is mounted inside the volume at {path}; unmount it, then the cleaning goes on by itself"
    )]
    NestedMount {
        /// The mount point.
        path: ShownPath,
    },
    /// The filesystem as a whole can only be read.
    #[error(
        "the filesystem is read-only, mounted so or made so by the kernel after an error: look at the kernel log; repair it (fsck) if there is an error, then mount it writable"
    )]
    ReadOnly,
    /// The volume itself is a read-only subvolume or snapshot (btrfs). Nothing was deleted.
    #[error(
        "the volume is a read-only subvolume or snapshot; if its contents may go, run `btrfs property set -f DIRECTORY ro false` on its mount point"
    )]
    ReadOnlyRoot,
    /// A read-only subvolume or snapshot (btrfs) inside the volume, which could not be made writable.
    #[error(
        "the subvolume or snapshot {path} is read-only, and could not be made writable (for want of CAP_FOWNER, or because `btrfs send` is reading it); run `btrfs subvolume delete` on it"
    )]
    ReadOnlySubvolume {
        /// The subvolume.
        path: ShownPath,
    },
    /// `chattr +i` or `+a`, and we may not take it off.
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
    /// Permissions, which mean nothing to a root with `CAP_DAC_OVERRIDE`.
    #[error(
        "no permission for {path} ({errno}); run the provisioner as root with CAP_DAC_OVERRIDE and CAP_FOWNER"
    )]
    Denied {
        /// The entry or directory.
        path: ShownPath,
        /// `EACCES` or `EPERM`.
        errno: Errno,
    },
    /// Somebody makes new entries as fast as they are deleted.
    #[error(
        "after {passes} passes {path} still gets new entries: something is writing to the volume; stop it"
    )]
    Refilled {
        /// The directory that does not stay empty.
        path: ShownPath,
        /// How many times it was emptied.
        passes: u32,
    },
    /// The check afterwards found something.
    #[error("the volume was emptied, and yet holds {path}: something is writing to it; stop it")]
    NotEmpty {
        /// An entry that is there.
        path: ShownPath,
    },
    /// More attributes on the root than the kernel gives out a list of.
    #[error(
        "the volume's root directory has more attributes than can be listed, so that those of its tenant (user.*) cannot be taken off; make a new filesystem (mkfs)"
    )]
    TooManyAttributes,
    /// Anything else that the kernel says.
    #[error("cannot {what} {path}: {}", errno.desc())]
    Io {
        /// The verb: open, read, remove, look at.
        what: &'static str,
        /// The entry or directory.
        path: ShownPath,
        /// The kernel's reason.
        errno: Errno,
    },
    /// Several entries could not be removed; all others are gone.
    #[error("{first} (and {others} more could not be removed)")]
    Several {
        /// What was wrong with the first.
        first: Box<Self>,
        /// How many more there are.
        others: u64,
    },
    /// It was told to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl TreeError {
    /// One word for metrics and events.
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

    /// Whether going on with other entries makes no sense, or would be wrong: the world is not what
    /// it was when the cleaning was allowed.
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
