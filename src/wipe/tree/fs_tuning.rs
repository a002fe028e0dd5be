//! Settings for fast deletion on each filesystem type, from measurements.

use std::thread;

use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};

use crate::wipe::dirfd::DirFd;

/// The fastest way to empty a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FsTuning {
    /// Whether to use a second thread: it is faster on ext4, but slower on XFS and btrfs.
    pub(super) two_threads: bool,
    /// Whether to visit subdirectories by inode number, so that neighbours on the disk follow each other. XFS
    /// distributes directories over its allocation groups in turn, and a group is busy for a while after
    /// deletions. There, the order of the listing is faster.
    pub(super) sort_directories: bool,
}

impl FsTuning {
    pub(super) fn of(dir: &DirFd) -> Self {
        let filesystem = fstatfs(dir).map(|facts| facts.filesystem_type());
        Self {
            two_threads: filesystem == Ok(EXT4_SUPER_MAGIC)
                && thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            sort_directories: filesystem != Ok(XFS_SUPER_MAGIC),
        }
    }
}
