//! Why disks are left alone.

use crate::inventory::Misfit;
use crate::plan::link::MAX_DISKS;
use crate::types::HostPath;

/// Why a disk is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each has its text")]
pub enum LeftAlone {
    #[error("it is the volume {0}")]
    Volume(HostPath),
    #[error("it shares storage with the volume {0}")]
    Overlaps(HostPath),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    #[error("namePattern does not match its entry {0}")]
    OtherName(String),
    #[error("the rule of class {0} matches it, too; exclude it in one of both")]
    TwoClasses(String),
    #[error("{0} is another path to it, or lies on it")]
    OtherPath(String),
    #[error("it is {0}; name it without a wildcard to take it")]
    Special(&'static str),
    #[error("it is in use: {0}")]
    InUse(String),
    #[error("it has the partitions {0}")]
    Partitioned(String),
    #[error("it is read-only")]
    ReadOnly,
    #[error("it has no serial number or other name that outlasts a reboot")]
    Nameless,
    #[error(
        "it has a mark, so it was a volume before; to offer it again, make its entry: ln -s {0} {1}"
    )]
    Marked(String, HostPath),
    #[error(
        "it has the mark or the filesystem of a volume of this class; to offer it again, make its directory: mkdir {0}"
    )]
    Unlisted(HostPath),
    #[error("it was unmounted; to offer it again: mkdir --parents {1} && mount{2} {0} {1}")]
    Unmounted(String, HostPath, String),
    #[error(
        "making its filesystem was interrupted; if its data is not needed: blkdiscard, or dd if=/dev/zero"
    )]
    Unfinished,
    #[error("its volume is being cleaned")]
    Cleaning,
    #[error("the entry {0} is there and not a volume: {1}")]
    Entry(HostPath, String),
    #[error("it has {0}; if that is not needed: wipefs --all, then blkdiscard")]
    Signature(String),
    #[error("it is not zero; if its data is not needed: blkdiscard, or dd if=/dev/zero")]
    NotZero,
    #[error("{0}")]
    Unreadable(String),
    #[error("{0} has the same name; exclude one of both")]
    SameName(String),
    #[error("{0}")]
    NotOffered(String),
    #[error("the Node has {MAX_DISKS} volumes that are bound to their disks, which is the limit")]
    TooMany,
    #[error("it has been there, unchanged, for less than a minute")]
    New,
}
