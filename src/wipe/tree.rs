//! Empties a directory tree: a released filesystem volume.
//!
//! It never deletes anything outside the volume, whatever the tenant left in it and whatever processes still
//! run in it. [`dirfd`](super::dirfd) provides the safe operations, `walk` the order.

mod batch;
mod bounds;
mod dir_stack;
mod error;
mod frame;
mod fs_tuning;
mod helper;
mod root;
mod walk;

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
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

/// The directory of `fsck` in the root of an ext filesystem. It is kept, but emptied: it may contain the
/// tenant's data.
pub const LOST_AND_FOUND: &CStr = c"lost+found";

/// The bytes of directory entries read by one call.
const BUFFER: usize = 256 << 10;

/// Removes everything below `root`, a mount's root directory. `root` itself is kept, without the flags and
/// `user.*` attributes that a tenant may have set.
///
/// `nested` are the mount points below the root. If there are any, nothing is deleted. The kernel refuses to
/// enter mounts that are added later.
///
/// After an entry that cannot be removed, the others are still deleted. The error names the first failure.
///
/// # Errors
/// When anything is left except an empty `lost+found`.
pub fn empty(
    root: BorrowedFd<'_>,
    nested: &[PathBuf],
    progress: &Progress,
) -> Result<(), TreeError> {
    if let Some(point) = nested.first() {
        let path = ShownPath::from_bytes(point.as_os_str().as_bytes());
        return Err(TreeError::NestedMount { path });
    }
    let dir = open_root(root)?;
    if is_read_only(&dir) {
        return Err(TreeError::ReadOnly);
    }
    // Subvolumes inside belong to the tenant. The root may have been made read-only by an operator.
    if protect::is_read_only_subvolume(&dir) {
        return Err(TreeError::ReadOnlyRoot);
    }
    // The mount flags do not always show that.
    if touch(&dir) == Err(Errno::EROFS) {
        return Err(TreeError::ReadOnly);
    }
    Walk::new(dir, progress)?.run()?;
    let dir = open_root(root)?;
    // A process may have replaced it, which the check afterwards detects.
    if let Ok(lost_and_found) = dir.open_dir(LOST_AND_FOUND) {
        root::reset(&lost_and_found, Some(LOST_AND_FOUND))?;
    }
    root::reset(&dir, None)
}

/// Checks that a volume is empty except for an empty `lost+found`. It reads the directory again.
///
/// # Errors
/// [`TreeError::NotEmpty`] with the name of an entry.
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

/// Writes the deletion to the disk, so that it survives a power failure.
///
/// A filesystem reports a failed write only once. After a failed journal write, ext4 continues in memory and
/// later syncs succeed, although the disk is unchanged. So the root directory is changed first: that change
/// must reach the disk.
///
/// # Errors
/// When the change does not reach the disk.
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

/// Updates the modification time of the root directory. Some FUSE servers do not support that.
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
    let (mut entries, mut buffer) = (Vec::new(), vec![MaybeUninit::uninit(); BUFFER]);
    // Two entries are enough to decide, and a million need too much memory.
    while entries.len() < 2 && dir.read(&mut buffer, &mut entries)? {}
    Ok(entries)
}
