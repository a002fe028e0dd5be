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

use super::attributes::some_user_attributes;
use super::failure;
use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::protect;

/// `XATTR_LIST_MAX` of `linux/limits.h`: the longest list that the kernel returns.
const XATTR_LIST_MAX: usize = 64 << 10;

/// Clears flags and `user.*` attributes of a kept directory. `path` is for the error.
pub(super) fn reset(dir: &DirFd, path: &str, progress: &Progress) -> Result<(), WipeError> {
    match protect::clear(dir.as_fd()) {
        // Many filesystems do not support the flags.
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
        cleared => drop(cleared.map_err(failed("clear the flags (chattr) of", path))?),
    }
    while !remove_user_attributes(dir, path)? {
        progress.check()?;
    }
    Ok(())
}

/// Removes `user.*` attributes. Returns whether these were all.
fn remove_user_attributes(dir: &DirFd, path: &str) -> Result<bool, WipeError> {
    let mut list = vec![0; XATTR_LIST_MAX];
    let (names, are_all) = match flistxattr(dir, &mut list[..]).map_err(errno) {
        Err(Errno::EOPNOTSUPP) => return Ok(true),
        Err(Errno::E2BIG) => {
            let some = some_user_attributes(dir).map_err(too_many)?;
            (some, false)
        }
        length => {
            let length = length.map_err(failed("list the attributes of", path))?;
            let names = list[..length].split(|byte| *byte == 0);
            let names = names.filter(|name| name.starts_with(b"user."));
            (names.map(<[u8]>::to_owned).collect(), true)
        }
    };
    if names.is_empty() && !are_all {
        // The administrator's attributes fill the list.
        return Err(too_many(Errno::E2BIG));
    }
    for name in names {
        match fremovexattr(dir, name).map_err(errno) {
            Err(Errno::ENODATA) => {}
            removed => removed.map_err(failed("remove an attribute (user.*) of", path))?,
        }
    }
    Ok(are_all)
}

fn failed(what: &str, path: &str) -> impl Fn(Errno) -> WipeError {
    move |errno| failure(what, path, errno)
}

/// The attributes of the volume's root cannot be listed.
fn too_many(errno: Errno) -> WipeError {
    let remedy = match errno {
        Errno::EPERM => "run the provisioner with CAP_SYS_ADMIN, or create",
        _ => "create",
    };
    WipeError::Failed(format!(
        "the volume's root directory has too many attributes to list ({}), so the tenant's (user.*) cannot be removed; {remedy} a new filesystem (mkfs)",
        errno.desc()
    ))
}
