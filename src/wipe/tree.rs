//! Empties a directory tree: a released filesystem volume.
//!
//! It never deletes anything outside the volume, whatever the tenant left in it and whatever processes still
//! run in it. `dirfd` provides the safe operations, `walk` the order.

mod attributes;
mod batch;
mod dir_stack;
mod frame;
mod helper;
mod root;
mod walk;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::stat::futimens;
use nix::sys::statfs::{EXT4_SUPER_MAGIC, fstatfs};
use nix::sys::time::TimeSpec;
use nix::unistd::{fsync, syncfs};

use super::dirfd::{DirFd, Entry};
use super::error::WipeError;
use super::progress::Progress;
use super::protect;
use crate::escape::{shown, tenants_path};

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
) -> Result<(), WipeError> {
    if let Some(point) = nested.first() {
        let path = tenants_path(point.as_os_str().as_bytes());
        return Err(failure("enter", &path, Errno::EXDEV));
    }
    let dir = open_root(root)?;
    // Subvolumes inside belong to the tenant. The root may have been made read-only by an operator.
    if protect::is_read_only_subvolume(&dir) {
        return Err(WipeError::Failed(
            "the volume is a read-only subvolume or snapshot; to delete its contents, run `btrfs property set -f DIRECTORY ro false` on its mount point".into(),
        ));
    }
    if is_read_only(&dir) {
        return Err(failure("change", ".", Errno::EROFS));
    }
    walk::remove_all(dir, progress)?;
    reset(root, progress)
}

/// Resets the root of an emptied volume, and its `lost+found`, to what no tenant has changed; see `root`.
///
/// # Errors
/// When a flag or an attribute cannot be removed.
pub fn reset(root: BorrowedFd<'_>, progress: &Progress) -> Result<(), WipeError> {
    let dir = open_root(root)?;
    // A process may have replaced it, which the check afterwards detects.
    if has_lost_and_found(&dir)
        && let Ok(lost_and_found) = dir.open_dir(LOST_AND_FOUND)
    {
        root::reset(&lost_and_found, "lost+found", progress)?;
        root::close(&lost_and_found);
    }
    root::reset(&dir, ".", progress)
}

/// Checks that a volume is empty except for an empty `lost+found`. It reads the directory again.
///
/// # Errors
/// [`WipeError::NotEmpty`] with the name of an entry.
pub fn check_empty(root: BorrowedFd<'_>) -> Result<(), WipeError> {
    let root = open_root(root)?;
    for Entry { name, .. } in list(&root)? {
        if *name == *LOST_AND_FOUND
            && has_lost_and_found(&root)
            && let Ok(dir) = root.open_dir(LOST_AND_FOUND)
            && list(&dir)?.is_empty()
        {
            continue;
        }
        return Err(WipeError::NotEmpty(shown([name.as_c_str()])));
    }
    Ok(())
}

/// Whether `fsck` of the filesystem has a directory in its root. On others, the name is a tenant's.
fn has_lost_and_found(root: &DirFd) -> bool {
    // That of ext2 and ext3, too.
    fstatfs(root).is_ok_and(|it| it.filesystem_type() == EXT4_SUPER_MAGIC)
}

/// Writes the deletion to the disk, so that it survives a power failure.
///
/// A filesystem reports a failed write only once. After a failed journal write, ext4 continues in memory and
/// later syncs succeed, although the disk is unchanged. So the root directory is changed first: that change
/// must reach the disk.
///
/// # Errors
/// When the change does not reach the disk.
pub fn sync(root: BorrowedFd<'_>) -> Result<(), WipeError> {
    let root = open_root(root)?;
    let written = touch(&root).and_then(|()| fsync(&root)).and_then(|()| syncfs(&root));
    written.map_err(|errno| failure("sync the filesystem of", ".", errno))
}

/// Updates the modification time of the root directory. Some FUSE servers do not support that.
fn touch(root: &DirFd) -> nix::Result<()> {
    match futimens(root, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW) {
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        touched => touched,
    }
}

/// Whether the filesystem is read-only. After an error, its mount flags may not show that.
fn is_read_only(root: &DirFd) -> bool {
    touch(root) == Err(Errno::EROFS)
}

fn open_root(root: BorrowedFd<'_>) -> Result<DirFd, WipeError> {
    DirFd::reopen(root).map_err(|errno| match errno {
        Errno::ENOSYS | Errno::EPERM => WipeError::Fatal(format!(
            "the kernel or a seccomp profile denies openat2 ({errno}), without which nothing is deleted; run Linux 5.6 or later and allow openat2 in the container's seccomp profile"
        )),
        errno => failure("open", ".", errno),
    })
}

fn list(dir: &DirFd) -> Result<Vec<Entry>, WipeError> {
    let (mut entries, mut buffer) = (Vec::new(), vec![MaybeUninit::uninit(); BUFFER]);
    let mut is_more = true;
    // Two entries are enough to decide, and a million need too much memory.
    while is_more && entries.len() < 2 {
        let read = dir.read(&mut buffer, &mut entries);
        is_more = read.map_err(|errno| failure("read", ".", errno))?;
    }
    Ok(entries)
}

/// The error for an errno about the root or an entry below it.
fn failure(what: &str, path: &str, errno: Errno) -> WipeError {
    let text = format!("cannot {what} {path}: {}", errno.desc());
    match errno {
        // EBUSY: a file or an emptied directory that is a mount point.
        Errno::EXDEV | Errno::EBUSY => WipeError::Fatal(format!(
            "{path} is mounted inside the volume; unmount it, then cleaning resumes"
        )),
        Errno::EROFS => WipeError::Fatal(
            "the filesystem is read-only, by its mount options or after an error (see the kernel log); repair it with fsck if necessary, then mount it writable".into(),
        ),
        Errno::EPERM | Errno::EACCES => WipeError::Failed(format!(
            "{text}; run the provisioner as root with CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_LINUX_IMMUTABLE; if it is a swap file, run `swapoff`"
        )),
        Errno::EIO | Errno::EMFILE | Errno::ENFILE => WipeError::Fatal(text),
        _ => WipeError::Failed(text),
    }
}
