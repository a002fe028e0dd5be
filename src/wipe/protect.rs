//! Removes what makes the kernel refuse a deletion: inode flags (`chattr +i`, `+a`), read-only subvolumes, a
//! full disk.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::unistd::ftruncate;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::dirfd::{DirFd, errno};

/// `BTRFS_SUBVOL_RDONLY` of `linux/btrfs.h`.
const READ_ONLY: u64 = 1 << 1;

mod ioctl {
    //! Numbers from `linux/btrfs.h`.
    nix::ioctl_read!(get_subvolume_flags, 0x94, 25, u64);
    nix::ioctl_write_ptr!(set_subvolume_flags, 0x94, 26, u64);
}

/// The flags that were cleared on an entry.
#[derive(Debug, Default)]
pub struct Flags(Option<(OwnedFd, IFlags)>);

impl Flags {
    /// Sets the flags again if the file still has a link, which may be outside the volume.
    pub fn restore(self) {
        if let Some((file, flags)) = self.0
            && fstat(&file).is_ok_and(|file| file.st_nlink > 0)
        {
            // Clearing them succeeded, so this is permitted too.
            let _ = ioctl_setflags(file, flags);
        }
    }
}

/// Clears the immutable and append-only flags of a directory and of its entry `name`. `None` if neither has
/// any: the refusal has another cause.
///
/// # Errors
/// `EPERM` without `CAP_LINUX_IMMUTABLE`.
pub fn unprotect(dir: &DirFd, name: &CStr) -> Result<Option<Flags>> {
    match (clear(dir.as_fd()), clear_entry(dir, name)) {
        (Err(Errno::EPERM), _) | (_, Err(Errno::EPERM)) => Err(Errno::EPERM),
        (_, Ok(Some(flags))) => Ok(Some(flags)),
        (Ok(true), _) => Ok(Some(Flags::default())),
        _ => Ok(None),
    }
}

/// Clears the flags of an entry. Returns those that it had.
fn clear_entry(dir: &DirFd, name: &CStr) -> Result<Option<Flags>> {
    let handle = dir.handle(name)?;
    // Other types have no flags, and opening them has effects.
    if !matches!(file_type(&handle)?, libc::S_IFDIR | libc::S_IFREG) {
        return Ok(None);
    }
    let file = reopen(&handle, OFlag::O_RDONLY)?;
    let flags = ioctl_getflags(&file).map_err(errno)?;
    let cleared = clear(file.as_fd())?;
    Ok(cleared.then(|| Flags(Some((file, flags)))))
}

fn file_type(file: &OwnedFd) -> Result<libc::mode_t> {
    Ok(fstat(file)?.st_mode & libc::S_IFMT)
}

/// Opens the file behind the handle. Its name may refer to a FIFO by now.
fn reopen(handle: &OwnedFd, access: OFlag) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    open(path.as_str(), flags, Mode::empty())
}

/// Clears the immutable and append-only flags of a file. Returns whether it had any.
///
/// # Errors
/// Those of the two ioctls; `ENOTTY` or `EOPNOTSUPP` where the filesystem has no flags.
pub fn clear(file: BorrowedFd<'_>) -> Result<bool> {
    let protecting = IFlags::IMMUTABLE | IFlags::APPEND;
    let flags = ioctl_getflags(file).map_err(errno)?;
    if !flags.intersects(protecting) {
        return Ok(false);
    }
    let cleared = ioctl_setflags(file, flags - protecting);
    cleared.map(|()| true).map_err(errno)
}

/// Whether a directory is the root of a read-only subvolume or snapshot (btrfs).
pub fn is_read_only_subvolume(dir: &DirFd) -> bool {
    get_subvolume_flags(dir.as_fd()).is_ok_and(|flags| flags & READ_ONLY != 0)
}

/// Makes a read-only subvolume writable. `dir` is its root.
///
/// # Errors
/// `EPERM` without `CAP_FOWNER` or while `btrfs send` reads the snapshot; `ENOTTY` or `EINVAL` if it is not
/// the root of a subvolume.
pub fn make_writable(dir: &DirFd) -> Result<()> {
    match get_subvolume_flags(dir.as_fd())? {
        flags if flags & READ_ONLY == 0 => Ok(()),
        flags => set_subvolume_flags(dir.as_fd(), flags & !READ_ONLY),
    }
}

#[expect(unsafe_code, reason = "nix has no wrapper for btrfs")]
fn get_subvolume_flags(dir: BorrowedFd<'_>) -> Result<u64> {
    let mut flags = 0;
    // SAFETY: the kernel writes one u64 to `flags`.
    unsafe { ioctl::get_subvolume_flags(dir.as_raw_fd(), &raw mut flags) }.map(|_| flags)
}

#[expect(unsafe_code, reason = "nix has no wrapper for btrfs")]
fn set_subvolume_flags(dir: BorrowedFd<'_>, flags: u64) -> Result<()> {
    // SAFETY: the kernel reads one u64 from `flags`.
    unsafe { ioctl::set_subvolume_flags(dir.as_raw_fd(), &raw const flags) }.map(drop)
}

/// Frees a file's blocks before its removal: on a full copy-on-write filesystem, even a deletion may fail for
/// lack of space. Returns whether to retry the removal.
pub fn truncate(dir: &DirFd, name: &CStr) -> bool {
    let truncated = dir.handle(name).and_then(|handle| {
        // A second link may be outside the volume.
        if file_type(&handle)? != libc::S_IFREG || fstat(&handle)?.st_nlink != 1 {
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
