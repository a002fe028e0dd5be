//! The attributes of a filesystem's root that a tenant can change, and that the next tenant must find as they were at
//! the first offer.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{Gid, Mode, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Unknown, attribute};
use crate::host::{hex, ioctl};

const ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// The bits of `st_mode` that `chmod` sets.
const PERMISSIONS: u32 = 0o7777;

/// Owner, mode, ACLs and project of a filesystem's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootAttributes {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permissions, with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// The access ACL as the kernel encodes it, in hexadecimal; empty for none.
    pub acl: String,
    /// The default ACL, likewise.
    pub default_acl: String,
    /// The quota project, which new files get too; 0 for none.
    pub project: u32,
    /// See [`super::Mark::unknown`].
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl RootAttributes {
    /// Reads those of an open directory.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn read(root: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = fstat(root)?;
        let acl = |name| match attribute::get(root, name) {
            Err(Errno::OPNOTSUPP) => Ok(String::new()),
            value => value.map(|value| hex(&value.unwrap_or_default())),
        };
        Ok(Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & PERMISSIONS,
            acl: acl(ACL)?,
            default_acl: acl(DEFAULT_ACL)?,
            project: ioctl::project(root)?,
            unknown: Unknown::new(),
        })
    }

    /// Whether the owner and the mode of a directory are these. An ACL of a user changes the mode, too.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn is_owner_of(&self, root: BorrowedFd<'_>) -> io::Result<bool> {
        let stat = fstat(root)?;
        let found = (stat.st_uid, stat.st_gid, stat.st_mode & PERMISSIONS);
        Ok(found == (self.uid, self.gid, self.mode))
    }

    /// Restores them, as far as that is possible. Returns what failed.
    pub fn restore(&self, root: BorrowedFd<'_>) -> Vec<String> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // A change of the owner clears mode bits, and an ACL sets some. So the mode is last.
        let owner = fchown(root, Some(uid), Some(gid)).map_err(io::Error::from);
        let acl = set_acl(root, ACL, &self.acl);
        let default_acl = set_acl(root, DEFAULT_ACL, &self.default_acl);
        let mode = fchmod(root, Mode::from_raw_mode(self.mode)).map_err(io::Error::from);
        let steps = [
            ("owner", owner),
            ("ACL", acl),
            ("default ACL", default_acl),
            ("mode", mode),
            ("project", set_project(root, self.project)),
        ];
        let failed = steps.into_iter().filter_map(|(what, done)| {
            let error = done.err()?;
            Some(format!("{what}: {error}"))
        });
        failed.collect()
    }
}

fn set_acl(root: BorrowedFd<'_>, name: &CStr, acl: &str) -> io::Result<()> {
    if acl.is_empty() {
        return match fremovexattr(root, name) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => Ok(removed?),
        };
    }
    let pairs = (0..acl.len()).step_by(2).map(|at| acl.get(at..at + 2));
    let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok());
    let bytes: Option<Vec<u8>> = bytes.collect();
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    Ok(fsetxattr(root, name, &bytes, XattrFlags::empty())?)
}

/// A filesystem without quotas refuses even the project 0, which every root has there.
fn set_project(root: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    if project == 0 && ioctl::project(root)? == 0 {
        return Ok(());
    }
    ioctl::set_project(root, project)
}
