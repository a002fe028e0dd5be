//! Resets the directories that are kept: the volume's root and `lost+found`.
//!
//! It clears the immutable and append-only flags, with which the next tenant could not use the volume, and
//! removes `user.*` attributes, which are tenant data.
//!
//! It never changes the owner, the mode, ACLs, security labels, quota projects and other attributes.
//! Operators set them when they prepare a volume, and their original values are not known.

use std::ffi::CStr;
use std::os::fd::AsFd;

use nix::errno::Errno;
use rustix::fs::{flistxattr, fremovexattr};

use super::TreeError;
use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::escape::ShownPath;
use crate::wipe::protect;

/// `XATTR_LIST_MAX` of `linux/limits.h`: the longest list that the kernel returns.
const XATTR_LIST_MAX: usize = 64 << 10;

/// Clears flags and `user.*` attributes of the root, or of the kept directory `name` below it.
///
/// # Errors
/// [`TreeError::Immutable`] without `CAP_LINUX_IMMUTABLE`, [`TreeError::TooManyAttributes`], and those of
/// the filesystem.
pub(super) fn reset(dir: &DirFd, name: Option<&CStr>) -> Result<(), TreeError> {
    let path = ShownPath::new(name);
    match protect::clear(dir.as_fd()) {
        // Many filesystems do not support the flags.
        Ok(_) | Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
            remove_user_attributes(dir, name)
        }
        Err(Errno::EPERM) => Err(TreeError::Immutable { path }),
        Err(Errno::EROFS) => Err(TreeError::ReadOnly),
        Err(errno) => Err(TreeError::Io {
            what: "clear the flags (chattr) of",
            path,
            errno,
        }),
    }
}

fn remove_user_attributes(dir: &DirFd, name: Option<&CStr>) -> Result<(), TreeError> {
    let failed = |what| {
        move |error| TreeError::Io {
            what,
            path: ShownPath::new(name),
            errno: errno(error),
        }
    };
    let mut names = vec![0; XATTR_LIST_MAX];
    let length = match flistxattr(dir, &mut names[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(rustix::io::Errno::TOOBIG) => return Err(TreeError::TooManyAttributes),
        listed => listed.map_err(failed("list the attributes of"))?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| name.starts_with(b"user.")) {
        match fremovexattr(dir, name) {
            Err(rustix::io::Errno::NODATA) => {}
            removed => removed.map_err(failed("remove an attribute (user.*) of"))?,
        }
    }
    Ok(())
}
