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
use nix::sys::stat::{FileStat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, Whence, lseek, unlinkat};
use rustix::fs::{FileType, RawDir};

use crate::crash::crash_point;

/// The identity of an open file, unique among the files that exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The device number of the filesystem (of the subvolume, on btrfs).
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

impl From<FileStat> for FileId {
    fn from(stat: FileStat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// The type of a directory entry, as far as its deletion requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Must be emptied first.
    Directory,
    /// Anything else. It is unlinked without an open: opening a FIFO blocks, opening a device has effects.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode number from the directory. Sorting by it saves disk seeks.
    pub inode: u64,
    /// The name: any bytes except NUL and `/`.
    pub name: CString,
    /// `None` if the filesystem does not report it: use [`DirFd::kind_of`].
    pub kind: Option<EntryKind>,
}

/// An open directory.
#[derive(Debug)]
pub struct DirFd(OwnedFd);

impl DirFd {
    /// Opens a directory again, for reading and with its own position. `root` may be an `O_PATH` descriptor.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` if `openat2` is not available.
    pub fn reopen(root: BorrowedFd<'_>) -> Result<Self> {
        open_beneath(root, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY).map(Self)
    }

    /// Opens the directory `name` in this one.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if it is not a directory, `EXDEV` if it is a mount point.
    pub fn open_dir(&self, name: &CStr) -> Result<Self> {
        open_beneath(self.as_fd(), name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map(Self)
    }

    /// Opens the directory `name` in this one and returns its identity too.
    ///
    /// # Errors
    /// As for [`open_dir`](Self::open_dir), and those of `fstat`.
    pub fn open_identified(&self, name: &CStr) -> Result<(FileId, Self)> {
        let dir = self.open_dir(name)?;
        Ok((dir.id()?, dir))
    }

    /// An `O_PATH` descriptor of the entry `name`, which does not open the file itself.
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn handle(&self, name: &CStr) -> Result<OwnedFd> {
        open_beneath(self.as_fd(), name, OFlag::O_PATH)
    }

    /// The identity of this directory.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn id(&self) -> Result<FileId> {
        Ok(fstat(&self.0)?.into())
    }

    /// The type of the entry `name`.
    ///
    /// # Errors
    /// Those of `fstatat`.
    pub fn kind_of(&self, name: &CStr) -> Result<EntryKind> {
        let stat = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(if is_dir {
            EntryKind::Directory
        } else {
            EntryKind::Other
        })
    }

    /// Removes the entry `name`.
    ///
    /// # Errors
    /// Those of `unlinkat`.
    pub fn remove(&self, name: &CStr, kind: EntryKind) -> Result<()> {
        let flag = match kind {
            EntryKind::Directory => UnlinkatFlags::RemoveDir,
            EntryKind::Other => UnlinkatFlags::NoRemoveDir,
        };
        crash_point("remove-entry");
        unlinkat(&self.0, name, flag)
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
                    kind: match record.file_type() {
                        FileType::Unknown => None,
                        FileType::Directory => Some(EntryKind::Directory),
                        _ => Some(EntryKind::Other),
                    },
                });
            }
            if records.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes back to the first entry.
    ///
    /// # Errors
    /// Those of `lseek`.
    pub fn rewind(&self) -> Result<()> {
        lseek(&self.0, 0, Whence::SeekSet).map(drop)
    }
}

impl AsFd for DirFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open_beneath(dir: BorrowedFd<'_>, name: &CStr, flags: OFlag) -> Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
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
