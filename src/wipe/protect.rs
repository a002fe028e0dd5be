//! Removes or detects what makes the kernel refuse a deletion: inode flags (`chattr +i`, `+a`), read-only
//! subvolumes, swap files, a full disk.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::unistd::ftruncate;

use super::dirfd::DirFd;

/// `FS_IMMUTABLE_FL | FS_APPEND_FL` of `linux/fs.h`.
const PROTECTING: libc::c_int = 0x10 | 0x20;

/// `BTRFS_SUBVOL_RDONLY` of `linux/btrfs.h`.
const READ_ONLY: u64 = 1 << 1;

mod ioctl {
    //! Numbers from `linux/fs.h` and `linux/btrfs.h`. Those for inode flags encode a `long`, but the kernel
    //! reads and writes an `int`.
    use nix::libc::{c_int, c_long};
    const LONG: usize = size_of::<c_long>();
    nix::ioctl_read_bad!(get_flags, nix::request_code_read!(b'f', 1, LONG), c_int);
    nix::ioctl_write_ptr_bad!(set_flags, nix::request_code_write!(b'f', 2, LONG), c_int);
    nix::ioctl_read!(get_subvolume_flags, 0x94, 25, u64);
    nix::ioctl_write_ptr!(set_subvolume_flags, 0x94, 26, u64);
}

/// The result of clearing the flags that protect an entry.
#[derive(Debug)]
pub enum Unprotected {
    /// Flags were cleared: retry the removal.
    Cleared(Flags),
    /// Neither the entry nor its directory has flags: the refusal has another cause.
    NothingToClear,
    /// Clearing the flags requires `CAP_LINUX_IMMUTABLE`.
    NotAllowed,
}

/// The flags that were cleared on an entry.
#[derive(Debug, Default)]
pub struct Flags(Option<(OwnedFd, libc::c_int)>);

impl Flags {
    /// Sets the flags again if the file still has a link, which may be outside the volume.
    pub fn restore(self) {
        if let Some((file, flags)) = self.0
            && fstat(&file).is_ok_and(|file| file.st_nlink > 0)
        {
            // Clearing them succeeded, so this is permitted too.
            let _ = set_flags(file.as_fd(), flags);
        }
    }
}

/// Clears the immutable and append-only flags of a directory and of its entry `name`.
pub fn unprotect(dir: &DirFd, name: &CStr) -> Unprotected {
    match (clear(dir.as_fd()), clear_entry(dir, name)) {
        (Err(Errno::EPERM), _) | (_, Err(Errno::EPERM)) => Unprotected::NotAllowed,
        (_, Ok(Some(flags))) => Unprotected::Cleared(flags),
        (Ok(true), _) => Unprotected::Cleared(Flags::default()),
        _ => Unprotected::NothingToClear,
    }
}

/// Clears the flags of an entry. Returns those that it had.
fn clear_entry(dir: &DirFd, name: &CStr) -> Result<Option<Flags>> {
    let handle = dir.handle(name)?;
    match file_type(&handle)? {
        libc::S_IFDIR => {
            let cleared = clear(dir.open_dir(name)?.as_fd())?;
            Ok(cleared.then(Flags::default))
        }
        libc::S_IFREG => {
            let file = open_regular(&handle, OFlag::O_RDONLY)?;
            let flags = get_flags(file.as_fd())?;
            let cleared = clear(file.as_fd())?;
            Ok(cleared.then(|| Flags(Some((file, flags)))))
        }
        // Other types have no flags.
        _ => Ok(None),
    }
}

fn file_type(file: &OwnedFd) -> Result<libc::mode_t> {
    Ok(fstat(file)?.st_mode & libc::S_IFMT)
}

/// Opens the file behind the handle. Its name may refer to a FIFO by now.
fn open_regular(handle: &OwnedFd, access: OFlag) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    open(
        path.as_str(),
        access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Clears the immutable and append-only flags of a file. Returns whether it had any.
///
/// # Errors
/// Those of the two ioctls; `ENOTTY` or `EOPNOTSUPP` where the filesystem has no flags.
pub fn clear(file: BorrowedFd<'_>) -> Result<bool> {
    let flags = get_flags(file)?;
    if flags & PROTECTING == 0 {
        return Ok(false);
    }
    set_flags(file, flags & !PROTECTING).map(|()| true)
}

#[expect(unsafe_code, reason = "nix has no wrapper for inode flags")]
fn get_flags(file: BorrowedFd<'_>) -> Result<libc::c_int> {
    let mut flags = 0;
    // SAFETY: the kernel writes one int to `flags`.
    unsafe { ioctl::get_flags(file.as_raw_fd(), &raw mut flags) }.map(|_| flags)
}

#[expect(unsafe_code, reason = "nix has no wrapper for inode flags")]
fn set_flags(file: BorrowedFd<'_>, flags: libc::c_int) -> Result<()> {
    // SAFETY: the kernel reads one int from `flags`.
    unsafe { ioctl::set_flags(file.as_raw_fd(), &raw const flags) }.map(drop)
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

/// Whether the entry `name` is an active swap file. Its removal fails with `EPERM`, as with flags. The paths
/// in `/proc/swaps` may belong to another mount namespace, but allocating in a swap file fails with
/// `ETXTBSY`.
pub fn is_swap_file(dir: &DirFd, name: &CStr) -> bool {
    let Ok(file) = writable(dir, name) else {
        return false;
    };
    // In other files this changes neither the size nor the contents.
    fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 1) == Err(Errno::ETXTBSY)
}

/// Frees a file's blocks before its removal: on a full copy-on-write filesystem, even a deletion may fail for
/// lack of space. Returns whether to retry the removal.
pub fn truncate(dir: &DirFd, name: &CStr) -> bool {
    let truncated = writable(dir, name).and_then(|file| {
        // A second link may be outside the volume.
        if fstat(&file)?.st_nlink != 1 {
            return Err(Errno::EMLINK);
        }
        ftruncate(&file, 0)
    });
    truncated.is_ok()
}

/// Opens the entry `name` for writing if it is a regular file.
fn writable(dir: &DirFd, name: &CStr) -> Result<OwnedFd> {
    let handle = dir.handle(name)?;
    match file_type(&handle)? {
        libc::S_IFREG => open_regular(&handle, OFlag::O_WRONLY),
        _ => Err(Errno::EINVAL),
    }
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

    #[test]
    fn ordinary_file_is_not_a_swap_file_and_is_unchanged() {
        let volume = tempfile::tempdir().unwrap();
        let path = volume.path().join("file");
        let dir = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        for contents in ["", "data"] {
            fs::write(&path, contents).unwrap();
            assert!(!is_swap_file(&dir, c"file"));
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
    }
}
