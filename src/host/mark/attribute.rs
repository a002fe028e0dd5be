//! The mark in the attribute `security.local-volume` of a filesystem's root.
//!
//! Only a process with `CAP_SYS_ADMIN` can change attributes in `security.*`. Every process can read them, unlike
//! those in `trusted.*`.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use rustix::fs::{IFlags, XattrFlags, fgetxattr, fsetxattr, fsync, ioctl_getflags};
use rustix::io::Errno;

use super::codec::PADDED_BYTES;

const NAME: &CStr = c"security.local-volume";

/// The longest value of an attribute: `XATTR_SIZE_MAX`.
const MAX_BYTES: usize = 64 << 10;
const USUAL_BYTES: usize = 2 << 10;

/// The errors of a filesystem that has no such attribute, no space for it, or a protected root. `EPERM` is also that
/// of a process without `CAP_SYS_ADMIN`.
const REFUSALS: [i32; 7] = [
    libc::EOPNOTSUPP,
    libc::ENOSPC,
    libc::EDQUOT,
    libc::EPERM,
    libc::EACCES,
    libc::EROFS,
    libc::E2BIG,
];

/// The attribute as it was read.
pub(super) struct Attribute {
    /// Its value, if it has one.
    pub bytes: Option<Vec<u8>>,
    /// Whether a privileged process can write it, unless the filesystem is full.
    pub is_writable: bool,
}

/// Reads the attribute.
///
/// # Errors
/// When it is not known whether there is one.
pub(super) fn read(root: BorrowedFd<'_>) -> io::Result<Attribute> {
    let (bytes, is_supported) = match get(root, NAME) {
        Err(Errno::OPNOTSUPP) => (None, false),
        bytes => (bytes?, true),
    };
    let is_read_only = || Ok::<_, io::Error>(fstatvfs(root)?.flags().contains(FsFlags::ST_RDONLY));
    // Many filesystems have no flags.
    let flags = ioctl_getflags(root).unwrap_or(IFlags::empty());
    let is_protected = flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND);
    Ok(Attribute { bytes, is_writable: is_supported && !is_protected && !is_read_only()? })
}

/// Writes the attribute, durably.
///
/// # Errors
/// Those of the filesystem; see [`is_refusal`].
pub(super) fn write(root: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > PADDED_BYTES {
        return Err(Errno::TOOBIG.into());
    }
    fsetxattr(root, NAME, bytes, XattrFlags::empty())?;
    Ok(fsync(root)?)
}

/// Whether the mark is written to the state directory after this error.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| REFUSALS.contains(&errno))
}

/// The value of an attribute; `None` if there is none.
///
/// # Errors
/// Those of the filesystem. `OPNOTSUPP`: it has no such attributes.
pub(super) fn get(file: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Option<Vec<u8>>> {
    // Nearly all values fit into the first, which costs no allocation.
    let mut usual = [0; USUAL_BYTES];
    let found = match fgetxattr(file, name, &mut usual[..]) {
        Err(Errno::RANGE) => {
            let mut value = vec![0; MAX_BYTES];
            fgetxattr(file, name, &mut value[..]).map(|length| value[..length].to_vec())
        }
        length => length.map(|length| usual[..length].to_vec()),
    };
    match found {
        Err(Errno::NODATA) => Ok(None),
        value => value.map(Some),
    }
}
