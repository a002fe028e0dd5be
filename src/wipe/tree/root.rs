//! What a tenant can leave on the volume's root directory itself, which stays, and on `lost+found`.
//!
//! What certainly nobody else wants is taken off: immutable and append-only flags, with which the
//! next tenant could not use the volume, and `user.*` attributes, which are data like any other.
//!
//! The owner, the mode, ACLs, security labels, quota projects and the filesystem's own attributes
//! stay as they are. Operators set them when they prepare a volume, and nobody knows any more what
//! they were before the tenant came.

use std::ffi::CStr;
use std::os::fd::AsFd;

use nix::errno::Errno;
use rustix::fs::{flistxattr, fremovexattr};

use super::TreeError;
use crate::wipe::dirfd::DirFd;
use crate::wipe::escape::ShownPath;
use crate::wipe::protect;

/// `XATTR_LIST_MAX` of `linux/limits.h`: the kernel gives out no longer list.
const LONGEST_LIST: usize = 64 << 10;

/// Takes off what the tenant left on the root, or on a directory below it that stays as well: `name`.
///
/// # Errors
/// [`TreeError::Immutable`] without `CAP_LINUX_IMMUTABLE`, [`TreeError::TooManyAttributes`]; those of
/// the filesystem.
pub(super) fn reset(dir: &DirFd, name: Option<&CStr>) -> Result<(), TreeError> {
    let path = ShownPath::new(name);
    match protect::clear(dir.as_fd()) {
        // Many filesystems have no such flags.
        Ok(_) | Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
            remove_user_attributes(dir, name)
        }
        Err(Errno::EPERM) => Err(TreeError::Immutable { path }),
        Err(Errno::EROFS) => Err(TreeError::ReadOnly),
        Err(errno) => Err(TreeError::Io {
            what: "take the flags (chattr) off",
            path,
            errno,
        }),
    }
}

fn remove_user_attributes(dir: &DirFd, name: Option<&CStr>) -> Result<(), TreeError> {
    let failed = |what| {
        move |errno: rustix::io::Errno| TreeError::Io {
            what,
            path: ShownPath::new(name),
            errno: Errno::from_raw(errno.raw_os_error()),
        }
    };
    let mut names = vec![0; LONGEST_LIST];
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
