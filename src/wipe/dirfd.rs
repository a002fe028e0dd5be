//! An open directory. The cleaner accesses a filesystem only through this type.
//!
//! Every call is relative to an open directory and names **one** component in it. No path is resolved from
//! `/` or from the working directory, so a process that replaces a directory by a symlink cannot redirect
//! the cleaner. With `openat2`, the kernel refuses to follow a symlink, to leave the directory and to cross
//! into another mount. This includes bind mounts of the same filesystem, which device numbers do not show.
//! Without `openat2` (Linux before 5.6, some seccomp profiles) nothing is cleaned: no fallback is as safe.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::sys::stat::{fstat, fstatat};
use nix::unistd::{UnlinkatFlags, Whence, lseek, unlinkat};
use rustix::fs::{FileType, RawDir};

use crate::crash::crash_point;

/// The identity of an open file, unique among the files that exist at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The device number of the filesystem (of the subvolume, on btrfs).
    pub device: u64,
    pub inode: u64,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The inode number from the directory. Sorting by it saves disk seeks.
    pub inode: u64,
    /// The name: any bytes except NUL and `/`.
    pub name: CString,
    /// Anything but a directory is unlinked without an open: opening a FIFO blocks, opening a device has effects.
    pub is_dir: bool,
}

/// An open directory.
#[derive(Debug)]
pub struct DirFd {
    fd: OwnedFd,
    pub id: FileId,
}

impl DirFd {
    /// Opens a directory again, for reading and with its own position. `root` may be an `O_PATH` descriptor.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` if `openat2` is not available.
    pub fn reopen(root: BorrowedFd<'_>) -> Result<Self> {
        Self::open(root, c".")
    }

    /// Opens the directory `name` in this one.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if it is not a directory, `EXDEV` if it is a mount point.
    pub fn open_dir(&self, name: &CStr) -> Result<Self> {
        Self::open(self.as_fd(), name)
    }

    fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<Self> {
        let fd = open_beneath(dir, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let stat = fstat(&fd)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        let id = FileId { device, inode };
        Ok(Self { fd, id })
    }

    /// An `O_PATH` descriptor of the entry `name`, which does not open the file itself.
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn handle(&self, name: &CStr) -> Result<OwnedFd> {
        open_beneath(self.as_fd(), name, OFlag::O_PATH)
    }

    /// Removes the entry `name`.
    ///
    /// # Errors
    /// Those of `unlinkat`.
    pub fn remove(&self, name: &CStr, kind: UnlinkatFlags) -> Result<()> {
        crash_point("remove-entry");
        unlinkat(&self.fd, name, kind)
    }

    /// Reads the next entries, as many as fit into `buffer`, without `.` and `..`. Returns `false` at the end:
    /// a call before the end may add no entries.
    ///
    /// # Errors
    /// Those of `getdents64`.
    pub fn read(&self, buffer: &mut [MaybeUninit<u8>], entries: &mut Vec<Entry>) -> Result<bool> {
        let mut records = RawDir::new(self, buffer);
        while let Some(record) = records.next() {
            let record = record.map_err(errno)?;
            let name = record.file_name();
            if name != c"." && name != c".." {
                entries.push(Entry {
                    inode: record.ino(),
                    name: name.to_owned(),
                    is_dir: match record.file_type() {
                        FileType::Unknown => self.is_dir(name),
                        kind => kind == FileType::Directory,
                    },
                });
            }
            if records.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the entry `name` is a directory, for filesystems that do not report it.
    fn is_dir(&self, name: &CStr) -> bool {
        let stat = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
    }

    /// Goes back to the first entry.
    ///
    /// # Errors
    /// Those of `lseek`.
    pub fn rewind(&self) -> Result<()> {
        lseek(&self.fd, 0, Whence::SeekSet).map(drop)
    }
}

impl AsFd for DirFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_beneath(dir: BorrowedFd<'_>, name: &CStr, flags: OFlag) -> Result<OwnedFd> {
    let how = OpenHow::new().flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_XDEV
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    // EAGAIN: a rename raced with the lookup, so the kernel cannot guarantee the result.
    let mut tries = 0;
    loop {
        match openat2(dir, name, how) {
            Err(Errno::EAGAIN) if tries < 100 => tries += 1,
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// The error of a call of rustix as one of nix.
pub(super) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}
