//! Resets the directories that are kept: the volume's root and `lost+found`.
//!
//! It clears the immutable and append-only flags, with which the next tenant could not use the volume, and
//! removes `user.*` attributes, which are tenant data.
//!
//! It never changes the owner, the mode, ACLs, security labels, quota projects and other attributes of the root.
//! Operators set them when they prepare a volume, and their original values are not known here.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::fremovexattr;

use super::attributes::user_attributes;
use super::failure;
use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::protect;

/// A kept directory that is larger, in bytes, is reported.
const LARGE: i64 = 1 << 20;

/// Clears flags and `user.*` attributes of a kept directory. `path` is for the error.
pub(super) fn reset(dir: &DirFd, path: &str, progress: &Progress) -> Result<(), WipeError> {
    let failed = |what| move |errno| failure(what, path, errno);
    match protect::clear(dir.as_fd()) {
        // Many filesystems do not support the flags.
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
        cleared => drop(cleared.map_err(failed("clear the flags (chattr) of"))?),
    }
    loop {
        progress.check()?;
        let names = user_attributes(dir).map_err(|errno| not_listed(path, errno))?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            match fremovexattr(dir, name).map_err(errno) {
                Err(Errno::ENODATA) => {}
                removed => removed.map_err(failed("remove an attribute (user.*) of"))?,
            }
        }
    }
}

/// Gives the emptied `lost+found` its owner, mode and ACLs back, which a tenant may have changed. Only `fsck` writes to it.
pub(super) fn close(dir: &DirFd) {
    let closed = || -> nix::Result<i64> {
        for acl in [c"system.posix_acl_access", c"system.posix_acl_default"] {
            match fremovexattr(dir, acl).map_err(errno) {
                Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
                removed => removed?,
            }
        }
        fchmod(dir, Mode::S_IRWXU)?;
        let found = fstat(dir)?;
        if (found.st_uid, found.st_gid) != (0, 0) {
            fchown(dir, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
        }
        Ok(found.st_size)
    };
    match closed() {
        Ok(bytes) if bytes > LARGE => tracing::warn!(
            bytes,
            "the emptied lost+found stays large, as ext directories do; to shrink it, remove it and run mklost+found"
        ),
        Ok(_) => {}
        Err(errno) => {
            tracing::warn!("the emptied lost+found keeps its owner or its mode ({errno})");
        }
    }
}

/// The error if the attributes of a kept directory cannot be listed.
fn not_listed(path: &str, errno: Errno) -> WipeError {
    let remedy = match errno {
        Errno::EPERM => "run the provisioner with CAP_SYS_ADMIN, or create",
        Errno::E2BIG => "create",
        errno => return failure("list the attributes of", path, errno),
    };
    WipeError::Failed(format!(
        "the volume's root directory has too many attributes to list ({}), so the tenant's (user.*) cannot be removed; {remedy} a new filesystem (mkfs)",
        errno.desc()
    ))
}
