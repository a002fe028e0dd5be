//! Removes what makes the kernel refuse a deletion: inode flags (`chattr +i`, `+a`), read-only subvolumes, a
//! full disk.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, ftruncate};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::dirfd::{DirFd, errno};
use super::ioctl;

/// `BTRFS_SUBVOL_RDONLY` of `linux/btrfs.h`.
const READ_ONLY: u64 = 1 << 1;

/// Removes an entry without the immutable and append-only flags of its directory and of itself, which the capability
/// `CAP_LINUX_IMMUTABLE` allows to clear.
///
/// # Errors
/// Those of `unlinkat`.
pub fn remove_unprotected(dir: &DirFd, name: &CStr, kind: UnlinkatFlags) -> Result<()> {
    // A flag that cannot be cleared makes the removal fail.
    let _ = clear(dir.as_fd());
    let cleared = clear_entry(dir, name);
    let removed = dir.remove(name, kind);
    // The file may have another link outside the volume.
    if let Ok(Some((file, flags))) = cleared
        && fstat(&file).is_ok_and(|file| file.st_nlink > 0)
    {
        // Clearing them succeeded, so this is permitted too.
        let _ = ioctl_setflags(file, flags);
    }
    removed
}

/// Clears the flags of an entry. Returns those that it had.
fn clear_entry(dir: &DirFd, name: &CStr) -> Result<Option<(OwnedFd, IFlags)>> {
    let handle = dir.handle(name)?;
    // Other types have no flags, and opening them has effects.
    let kind = fstat(&handle)?.st_mode & libc::S_IFMT;
    if !matches!(kind, libc::S_IFDIR | libc::S_IFREG) {
        return Ok(None);
    }
    let file = reopen(&handle, OFlag::O_RDONLY)?;
    let flags = clear(file.as_fd())?;
    Ok(flags.map(|flags| (file, flags)))
}

/// Opens the file behind the handle. Its name may refer to a FIFO by now.
fn reopen(handle: &OwnedFd, access: OFlag) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    open(path.as_str(), flags, Mode::empty())
}

/// Clears the immutable and append-only flags of a file. Returns the flags before, if it had any of these.
///
/// # Errors
/// Those of the two ioctls; `ENOTTY` or `EOPNOTSUPP` where the filesystem has no flags.
pub fn clear(file: BorrowedFd<'_>) -> Result<Option<IFlags>> {
    let flags = ioctl_getflags(file).map_err(errno)?;
    let cleared = flags - (IFlags::IMMUTABLE | IFlags::APPEND);
    if cleared == flags {
        return Ok(None);
    }
    let set = ioctl_setflags(file, cleared).map_err(errno);
    set.map(|()| Some(flags))
}

/// Whether a directory is the root of a read-only subvolume or snapshot (btrfs).
pub fn is_read_only_subvolume(dir: &DirFd) -> bool {
    ioctl::subvolume_flags(dir).is_ok_and(|flags| flags & READ_ONLY != 0)
}

/// Makes a subvolume writable, of which `dir` is the root. This fails without `CAP_FOWNER`, and while `btrfs send`
/// reads the snapshot.
pub fn make_writable(dir: &DirFd) {
    if let Ok(flags) = ioctl::subvolume_flags(dir) {
        let _ = ioctl::set_subvolume_flags(dir, flags & !READ_ONLY);
    }
}

/// Frees a file's blocks before its removal: on a full copy-on-write filesystem, even a deletion may fail for
/// lack of space. Returns whether to retry the removal.
pub fn truncate(dir: &DirFd, name: &CStr) -> bool {
    let truncated = dir.handle(name).and_then(|handle| {
        let stat = fstat(&handle)?;
        // A second link may be outside the volume.
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink != 1 {
            return Err(Errno::EINVAL);
        }
        ftruncate(reopen(&handle, OFlag::O_WRONLY)?, 0)
    });
    truncated.is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_file_with_one_link_is_truncated() {
        let volume = tempfile::tempdir().unwrap();
        let path = |name: &str| volume.path().join(name);
        for name in ["file", "linked", "target"] {
            fs::write(path(name), "data").unwrap();
        }
        fs::hard_link(path("linked"), path("other name")).unwrap();
        symlink("target", path("link")).unwrap();
        // Opening it for writing would block or fail, because it has no reader.
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        fs::create_dir(path("dir")).unwrap();
        let dir = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        for (name, truncated) in [
            (c"file", true),
            (c"linked", false),
            (c"link", false),
            (c"fifo", false),
            (c"dir", false),
            (c"missing", false),
        ] {
            assert_eq!(truncate(&dir, name), truncated, "{name:?}");
        }
        let lengths = ["file", "linked", "target"].map(|name| fs::read(path(name)).unwrap().len());
        assert_eq!(lengths, [0, 4, 4]);
    }
}
