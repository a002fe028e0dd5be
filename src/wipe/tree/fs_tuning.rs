//! What is fastest on which filesystem: measured.

use std::thread;

use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};

use crate::wipe::dirfd::DirFd;

/// How a filesystem wants to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FsTuning {
    /// A second thread makes it faster. On XFS and btrfs it makes it slower.
    pub(super) two_threads: bool,
    /// Subdirectories are gone through by their inode numbers, like files: neighbours on the disk
    /// one after the other. XFS spreads directories over its allocation groups by turns. There it is
    /// better to take turns, too, for each group is busy for a while with what was deleted in it.
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
