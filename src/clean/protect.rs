//! Inode flags that forbid deletion (`chattr +i`, `+a`), and swap files.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};

use super::dirfd::{DirFd, FileId};

/// `FS_IMMUTABLE_FL | FS_APPEND_FL` of `linux/fs.h`.
const PROTECTING: libc::c_int = 0x10 | 0x20;

mod ioctl {
    //! The numbers are made with `long`, but the kernel reads and writes an `int`.
    use nix::libc::{c_int, c_long};
    const LONG: usize = size_of::<c_long>();
    nix::ioctl_read_bad!(get_flags, nix::request_code_read!(b'f', 1, LONG), c_int);
    nix::ioctl_write_ptr_bad!(set_flags, nix::request_code_write!(b'f', 2, LONG), c_int);
}

/// What became of the flags that forbade to remove an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprotected {
    /// There were some, and they are off: try again.
    Cleared,
    /// Neither the entry nor its directory had any: something else is in the way.
    NothingToClear,
    /// There are some, and the kernel did not let us take them off (`CAP_LINUX_IMMUTABLE`).
    NotAllowed,
}

/// Takes the immutable and append-only flags off a directory and off its entry `name`.
pub fn unprotect(dir: &DirFd, name: &CStr) -> Unprotected {
    let outcomes = [clear(dir.as_fd()), clear_entry(dir, name)];
    if outcomes.contains(&Err(Errno::EPERM)) {
        Unprotected::NotAllowed
    } else if outcomes.contains(&Ok(true)) {
        Unprotected::Cleared
    } else {
        Unprotected::NothingToClear
    }
}

fn clear_entry(dir: &DirFd, name: &CStr) -> Result<bool> {
    let handle = dir.handle(name)?;
    match file_type(&handle)? {
        libc::S_IFDIR => clear(dir.open_dir(name)?.as_fd()),
        libc::S_IFREG => clear(open_regular(&handle)?.as_fd()),
        // The flags cannot be set on others.
        _ => Ok(false),
    }
}

fn file_type(file: &OwnedFd) -> Result<libc::mode_t> {
    Ok(fstat(file)?.st_mode & libc::S_IFMT)
}

/// Opens the very file that was looked at. By its name it could be a FIFO by now.
fn open_regular(handle: &OwnedFd) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    open(
        path.as_str(),
        OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Whether there were flags to clear.
fn clear(file: BorrowedFd<'_>) -> Result<bool> {
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

/// Whether the entry `name` is a file that the machine swaps to. The kernel forbids to remove it,
/// with the same `EPERM` as for flags.
pub fn is_swap_file(dir: &DirFd, name: &CStr) -> bool {
    let Ok(id) = dir.handle(name).and_then(fstat).map(FileId::from) else {
        return false;
    };
    let Ok(swaps) = fs::read_to_string("/proc/swaps") else {
        return false;
    };
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| {
            // White space in a path is escaped as octal there; such a swap file goes unrecognised and
            // is reported as one that cannot be removed, which it is.
            fs::symlink_metadata(path).is_ok_and(|file| {
                FileId {
                    device: file.dev(),
                    inode: file.ino(),
                } == id
            })
        })
}
