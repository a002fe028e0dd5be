//! Resets the directories that are kept: the volume's root and `lost+found`.
//!
//! It clears the immutable and append-only flags, with which the next tenant could not use the volume, and
//! removes `user.*` attributes, which are tenant data.
//!
//! It never changes the owner, the mode, ACLs, security labels, quota projects and other attributes.
//! Operators set them when they prepare a volume, and their original values are not known.

use std::os::fd::AsFd;

use nix::errno::Errno;
use rustix::fs::fremovexattr;

use super::attributes::user_attributes;
use super::failure;
use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::protect;

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
