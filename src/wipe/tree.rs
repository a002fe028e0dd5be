//! Empties a directory tree: a filesystem volume, when its tenant has gone.
//!
//! It must never delete anything outside the volume, whatever the tenant left in it and whatever
//! still runs in it. See [`dirfd`](super::dirfd) for the means, and `walk` for the way.

mod batch;
mod bounds;
mod dir_stack;
mod error;
mod frame;
mod fs_tuning;
mod helper;
mod names;
mod root;
mod walk;

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::stat::futimens;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::sys::time::TimeSpec;
use nix::unistd::{fsync, syncfs};

use super::dirfd::{DirFd, Entry};
use super::escape::ShownPath;
use super::progress::Progress;
use super::protect;

pub use error::TreeError;
use walk::Walk;

/// The directory that `fsck` keeps in an ext filesystem's root. It is emptied (what `fsck` saves is
/// the tenant's) and stays.
pub const LOST_AND_FOUND: &CStr = c"lost+found";

/// Bytes of directory entries read at a time.
const BUFFER: usize = 256 << 10;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Entries removed, directories included.
    pub removed: u64,
    /// Times the root was gone through until nothing was left. More than one: somebody was writing.
    pub passes: u32,
}

/// Removes everything below `root`, a mount's root directory. `root` itself stays, without the flags
/// and `user.*` attributes that a tenant may have put on it.
///
/// `nested` is what the mount table shows below the root. If there is anything, nothing is deleted.
/// Should something be mounted later, the kernel stops us when we come to it.
///
/// Entries that resist do not keep others from being deleted: the tenant's data is to go. The first
/// of them is in the error.
///
/// # Errors
/// Whenever something is left, bar an empty `lost+found`.
pub fn empty(
    root: BorrowedFd<'_>,
    nested: &[PathBuf],
    progress: &Progress,
) -> Result<TreeReport, TreeError> {
    if let Some(point) = nested.first() {
        let path = ShownPath::from_bytes(point.as_os_str().as_bytes());
        return Err(TreeError::NestedMount { path });
    }
    let dir = open_root(root)?;
    if is_read_only(&dir) {
        return Err(TreeError::ReadOnly);
    }
    // Those inside are a tenant's; this one may be an operator's, who wants to keep what is in it.
    if protect::is_read_only_subvolume(&dir) {
        return Err(TreeError::ReadOnlyRoot);
    }
    // Its flags need not tell.
    if touch(&dir) == Err(Errno::EROFS) {
        return Err(TreeError::ReadOnly);
    }
    let report = Walk::new(dir, progress)?.run()?;
    let dir = open_root(root)?;
    // Somebody may have put something else in its place, which the check afterwards finds.
    if let Ok(lost_and_found) = dir.open_dir(LOST_AND_FOUND) {
        root::reset(&lost_and_found, Some(LOST_AND_FOUND))?;
    }
    root::reset(&dir, None)?;
    Ok(report)
}

/// Looks whether a volume is empty, bar an empty `lost+found`. It reads the directory anew.
///
/// # Errors
/// [`TreeError::NotEmpty`] with the name of an entry, if there is one.
pub fn check_empty(root: BorrowedFd<'_>) -> Result<(), TreeError> {
    let root = open_root(root)?;
    let io = |what, errno| TreeError::Io {
        what,
        path: ShownPath::new([]),
        errno,
    };
    for entry in list(&root).map_err(|errno| io("read", errno))? {
        let mut path = vec![entry.name.clone()];
        if entry.name.as_c_str() == LOST_AND_FOUND
            && let Ok(dir) = root.open_dir(&entry.name)
        {
            match list(&dir)
                .map_err(|errno| io("read lost+found below", errno))?
                .pop()
            {
                Some(found) => path.push(found.name),
                None => continue,
            }
        }
        let path = ShownPath::new(path.iter().map(CString::as_c_str));
        return Err(TreeError::NotEmpty { path });
    }
    Ok(())
}

/// Writes the deletion to the disk: a power cut afterwards brings nothing back.
///
/// A filesystem tells of a failed write once. Where it could not write its journal (ext4), it goes on
/// in memory, with nothing more to write, and to sync it succeeds from then on; on the disk all is as
/// before. So something has to be changed and to reach the disk now.
///
/// # Errors
/// When the disk refuses.
pub fn sync(root: BorrowedFd<'_>) -> Result<(), TreeError> {
    let root = open_root(root)?;
    let written = touch(&root)
        .and_then(|()| fsync(&root))
        .and_then(|()| syncfs(&root));
    written.map_err(|errno| match errno {
        Errno::EROFS => TreeError::ReadOnly,
        errno => TreeError::Io {
            what: "sync the filesystem of",
            path: ShownPath::new([]),
            errno,
        },
    })
}

/// Makes the filesystem note that its root directory was changed now, if it keeps such a thing (some
/// FUSE servers do not).
fn touch(root: &DirFd) -> nix::Result<()> {
    match futimens(root, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW) {
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        touched => touched,
    }
}

fn open_root(root: BorrowedFd<'_>) -> Result<DirFd, TreeError> {
    DirFd::reopen(root).map_err(|errno| match errno {
        Errno::ENOSYS | Errno::EPERM => TreeError::NoOpenat2 { errno },
        errno => TreeError::Io {
            what: "open",
            path: ShownPath::new([]),
            errno,
        },
    })
}

fn is_read_only(dir: &DirFd) -> bool {
    fstatvfs(dir).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY))
}

fn list(dir: &DirFd) -> nix::Result<Vec<Entry>> {
    let (mut entries, mut buffer) = (Vec::new(), vec![0; BUFFER]);
    // One entry settles the matter; a million are not wanted in memory.
    while entries.len() < 2 && dir.read(&mut buffer, &mut entries)? {}
    Ok(entries)
}
