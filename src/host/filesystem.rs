//! The root of a filesystem volume, opened once.

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

/// Why a path is no filesystem volume.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// Nothing is there.
    #[error("{} does not exist: mount the volume's filesystem there", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// Something else is there, or a symbolic link.
    #[error("{} is not a directory (a symbolic link to one does not count: bind-mount it)", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory on which nothing is mounted. Tools look for these words in the log.
    #[error("path \"{}\" is not a valid mount point", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused to look.
    #[error("{} cannot be opened: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A mounted filesystem's root directory. Whatever is mounted at its path later, this descriptor
/// goes on meaning what it was opened for.
#[derive(Debug)]
pub struct FsRoot {
    file: File,
    path: PathBuf,
    mount: Mount,
}

impl FsRoot {
    /// Opens the directory at `path` and makes sure that it is, in `mounts`, the root of the
    /// topmost mount there.
    ///
    /// Links on the way to the directory are followed, a link in its place is not. A table that is
    /// older than the mount gives [`FsError::NotMounted`]: read it again.
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
        // O_DIRECTORY: the kernel opens nothing else, so that no FIFO or device is touched.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed)?;
        let id = mount_id(file.as_fd()).map_err(failed)?;
        // The kernel's own name for what was opened: in it there are no links.
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

    /// Which directory of the filesystem this is: `/`, or what was bind-mounted, or a subvolume.
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

    /// Whether writing is refused right now, by the mount or by the filesystem.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn read_only(&self) -> io::Result<bool> {
        let flags = fstatvfs(&self.file)?.flags();
        Ok(self.mount.read_only || flags.contains(FsFlags::ST_RDONLY))
    }
}

/// Whether a file with this `st_dev` can be in a mount. Mount ids are given again: after an unmount
/// and another mount at the same place, an old table's id fits, and its device does not.
///
/// Of the filesystems that hold volumes only btrfs gives its files another number than the mount
/// table gives the filesystem: each subvolume has one of its own, without a device like all of
/// btrfs. (Overlay does so for files only, not for directories.)
pub(super) fn may_lie_on(mount: &Mount, st_dev: DeviceNumber) -> bool {
    st_dev == mount.device || (mount.fs_type == "btrfs" && st_dev.major == 0)
}

/// The id of the mount that a descriptor was opened through. Kernels before 5.8 tell it in `fdinfo`
/// only, which costs six system calls.
fn mount_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let facts = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID) {
        return Ok(facts.stx_mnt_id);
    }
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    mount_id_in_fdinfo(&text)
        .ok_or_else(|| io::Error::other("the kernel does not tell the descriptor's mount"))
}
