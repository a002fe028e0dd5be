//! Resets the directories that are kept: the volume's root and `lost+found`.
//!
//! It clears the immutable and append-only flags, with which the next tenant could not use the volume, and
//! removes `user.*` attributes, which are tenant data.
//!
//! It never changes the owner, the mode, ACLs, security labels, quota projects and other attributes.
//! Operators set them when they prepare a volume, and their original values are not known.

use std::os::fd::AsFd;

use nix::errno::Errno;
use rustix::fs::{flistxattr, fremovexattr};

use super::failure;
use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::error::WipeError;
use crate::wipe::protect;

/// `XATTR_LIST_MAX` of `linux/limits.h`: the longest list that the kernel returns.
const XATTR_LIST_MAX: usize = 64 << 10;

/// Clears flags and `user.*` attributes of a kept directory. `path` is for the error.
pub(super) fn reset(dir: &DirFd, path: &str) -> Result<(), WipeError> {
    let failed = |what| move |errno| failure(what, path, errno);
    match protect::clear(dir.as_fd()) {
        // Many filesystems do not support the flags.
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
        cleared => drop(cleared.map_err(failed("clear the flags (chattr) of"))?),
    }
    let mut names = vec![0; XATTR_LIST_MAX];
    let length = match flistxattr(dir, &mut names[..]).map_err(errno) {
        Err(Errno::EOPNOTSUPP) => 0,
        Err(Errno::E2BIG) => {
            return Err(WipeError::Failed(
                "the volume's root directory has too many attributes to list, so the tenant's (user.*) cannot be removed; create a new filesystem (mkfs)".into(),
            ));
        }
        listed => listed.map_err(failed("list the attributes of"))?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| name.starts_with(b"user.")) {
        match fremovexattr(dir, name).map_err(errno) {
            Err(Errno::ENODATA) => {}
            removed => removed.map_err(failed("remove an attribute (user.*) of"))?,
        }
    }
    Ok(())
}
