//! The open root directory of a filesystem volume.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use rustix::fs::{AtFlags, StatxFlags};

use super::access::OpenError;
use super::mounts::{DeviceNumber, Mount, MountTable};
use super::through_proc;

/// A mounted filesystem's root directory. A later mount at its path does not change the descriptor.
#[derive(Debug)]
pub struct FsRoot {
    file: File,
    path: PathBuf,
    mount: Mount,
}

impl FsRoot {
    /// Opens the directory at `path`, and verifies that `mounts` has it as the root of the topmost mount there.
    ///
    /// Symbolic links are followed, except in the last component. A table that is older than the mount gives
    /// [`OpenError::NotMounted`]: read it again.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, mounts: &MountTable) -> Result<Self, OpenError> {
        let failed = |error: io::Error| {
            let path = path.display();
            OpenError::Failed(format!("{path} cannot be opened as a directory: {error}"))
        };
        // O_DIRECTORY: no FIFO or device is opened.
        let file = super::open(path, libc::O_DIRECTORY | libc::O_NOFOLLOW).map_err(failed)?;
        let (id, on) = mount_of(file.as_fd()).map_err(failed)?;
        let (mount, path) = (mounts.get(id).cloned(), path.to_owned());
        let mut real = path.clone();
        if mount.as_ref().is_some_and(|mount| mount.point != real) {
            // The kernel's path of the open directory has no links.
            real = std::fs::read_link(through_proc(&file)).map_err(failed)?;
        }
        match mount.filter(|mount| mount.point == real && may_lie_on(mount, on)) {
            Some(mount) => Ok(Self { file, path, mount }),
            None => Err(OpenError::NotMounted(path)),
        }
    }

    /// The descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line of the mount table.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// The size of the whole filesystem in bytes, and whether the mount or the filesystem is read-only now.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn size_and_read_only(&self) -> io::Result<(u64, bool)> {
        let facts = fstatvfs(&self.file)?;
        let size = facts.blocks().saturating_mul(facts.fragment_size());
        let read_only = self.mount.read_only || facts.flags().contains(FsFlags::ST_RDONLY);
        Ok((size, read_only))
    }
}

/// Whether a file with this `st_dev` can be in a mount. The kernel reuses mount ids: after a remount at the same
/// point, an old table's id may match, but its device does not.
///
/// Of the filesystems that hold volumes, only btrfs has another `st_dev` than the mount table's number: each
/// subvolume has its own, with major 0. (Overlay differs for files only, not for directories.)
pub(super) fn may_lie_on(mount: &Mount, st_dev: DeviceNumber) -> bool {
    st_dev == mount.device || (mount.fs_type == "btrfs" && st_dev.major == 0)
}

/// The id of the mount that a descriptor was opened through, and the file's `st_dev`.
fn mount_of(fd: BorrowedFd<'_>) -> io::Result<(u64, DeviceNumber)> {
    let facts = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if facts.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        let why = "the kernel does not report the directory's mount: run Linux 5.8 or later";
        return Err(io::Error::other(why));
    }
    let (major, minor) = (facts.stx_dev_major, facts.stx_dev_minor);
    Ok((facts.stx_mnt_id, DeviceNumber { major, minor }))
}
