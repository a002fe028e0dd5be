//! The open root directory of a filesystem volume.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use rustix::fs::{AtFlags, StatxFlags};

use super::mounts::{DeviceNumber, Mount, MountTable, mount_id_in_fdinfo};
use super::through_proc;

/// Why a path is not a filesystem volume.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// Nothing is there.
    #[error("{} does not exist: mount the volume's filesystem there", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is another kind of file, or a symbolic link.
    #[error("{} is not a directory (a symbolic link to one does not count: bind-mount it)", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory on which nothing is mounted. The log line must not change: tools search for it.
    #[error("path \"{}\" is not a valid mount point", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// Any other error.
    #[error("{} cannot be opened: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

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
    /// [`FsError::NotMounted`]: read it again.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn open(path: &Path, mounts: &MountTable) -> Result<Self, FsError> {
        let failed = |source: io::Error| {
            let path = path.to_owned();
            match source.raw_os_error() {
                Some(libc::ENOENT) => FsError::Missing { path },
                Some(libc::ENOTDIR | libc::ELOOP) => FsError::NotADirectory { path },
                _ => FsError::Io { path, source },
            }
        };
        // O_DIRECTORY: no FIFO or device is opened.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed)?;
        let id = mount_id(file.as_fd()).map_err(failed)?;
        // The kernel's path of the open directory has no links.
        let real = std::fs::read_link(through_proc(&file)).map_err(failed)?;
        let on = DeviceNumber::from_st_dev(file.metadata().map_err(failed)?.dev());
        match mounts
            .at(&real)
            .filter(|mount| mount.id == id && may_lie_on(mount, on))
        {
            Some(mount) => Ok(Self {
                file,
                path: path.to_owned(),
                mount: mount.clone(),
            }),
            None => Err(FsError::NotMounted {
                path: path.to_owned(),
            }),
        }
    }

    /// The descriptor.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line of the mount table.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// The filesystem's number; one for all mounts of it.
    #[must_use]
    pub fn device(&self) -> DeviceNumber {
        self.mount.device
    }

    /// The directory within the filesystem: `/`, the source of a bind mount, or a subvolume.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.mount.root
    }

    /// The size of the whole filesystem, in bytes.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn total_bytes(&self) -> io::Result<u64> {
        let facts = fstatvfs(&self.file)?;
        Ok(facts.blocks().saturating_mul(facts.fragment_size()))
    }

    /// Whether the mount or the filesystem is read-only now.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn read_only(&self) -> io::Result<bool> {
        let flags = fstatvfs(&self.file)?.flags();
        Ok(self.mount.read_only || flags.contains(FsFlags::ST_RDONLY))
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

/// The id of the mount that a descriptor was opened through. Kernels before 5.8 report it only in `fdinfo`,
/// which costs six system calls.
fn mount_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let facts = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID) {
        return Ok(facts.stx_mnt_id);
    }
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    mount_id_in_fdinfo(&text)
        .ok_or_else(|| io::Error::other("the kernel does not report the descriptor's mount"))
}
