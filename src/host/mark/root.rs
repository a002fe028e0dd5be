//! The attributes of a filesystem's root that a tenant can change, and that the next tenant must find as they were at
//! the first offer.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr, fstat,
    fsync, openat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Unknown, attribute};
use crate::host::hex;
use crate::host::ioctl::{self, Inode};

const ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// The bits of `st_mode` that `chmod` sets.
const PERMISSIONS: u32 = 0o7777;

/// Owner, mode, ACLs, project and inode of a filesystem's root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The rest of its inode; `None`: the filesystem has none, or an earlier version did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<Inode>,
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
        let (inode, project) = ioctl::inode(root)?.unzip();
        Ok(Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & PERMISSIONS,
            acl: acl(ACL)?,
            default_acl: acl(DEFAULT_ACL)?,
            project: project.unwrap_or_default(),
            inode,
            unknown: Unknown::new(),
        })
    }

    /// Those that remain where it is not known which ones a tenant has changed.
    pub fn without_inherited(self) -> Self {
        Self {
            acl: String::new(),
            default_acl: String::new(),
            inode: Some(Inode::default()),
            ..self
        }
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
        let before = Self::read(root).ok();
        let is = |same: fn(&Self, &Self) -> bool| before.as_ref().is_some_and(|it| same(it, self));
        let has_owner = is(|it, own| (it.uid, it.gid) == (own.uid, own.gid));
        let has_acl = is(|it, own| it.acl == own.acl);
        let has_default_acl = is(|it, own| it.default_acl == own.default_acl);
        // A change of the owner clears mode bits, and an ACL sets some. So the mode comes later.
        let has_mode = has_owner && has_acl && is(|it, own| it.mode == own.mode);
        // Without permission, the kernel refuses even what changes nothing.
        let unless = |is_so, set: &dyn Fn() -> io::Result<()>| if is_so { Ok(()) } else { set() };
        let owner = unless(has_owner, &|| Ok(fchown(root, Some(uid), Some(gid))?));
        let acl = unless(has_acl, &|| set_acl(root, ACL, &self.acl));
        let set_default_acl = || set_acl(root, DEFAULT_ACL, &self.default_acl);
        let default_acl = unless(has_default_acl, &set_default_acl);
        let set_mode = || Ok(fchmod(root, Mode::from_raw_mode(self.mode))?);
        let mode = unless(has_mode, &set_mode);
        let inode = ioctl::set_inode(root, self.inode.as_ref(), self.project);
        let synced = match fsync(root) {
            // Not every filesystem can do that for a directory.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
            synced => synced.map_err(io::Error::from),
        };
        let steps = [
            ("owner", owner),
            ("ACL", acl),
            ("default ACL", default_acl),
            ("mode", mode),
            ("flags, extent sizes or project", inode),
            ("sync", synced),
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
    let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    Ok(fsetxattr(root, name, &bytes, XattrFlags::empty())?)
}

/// Why no tenant can use an emptied filesystem, and the remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A tenant has set an encryption policy.
    #[error(
        "the volume is empty, but its tenant has set an encryption policy, which cannot be taken off; create a new filesystem (mkfs)"
    )]
    Encrypted,
    /// No file can be made in its root.
    #[error(
        "the volume is empty, but no file can be made in it ({0}); see lsattr -d of its root and its mount options"
    )]
    NoFile(#[from] Errno),
}

/// Whether a tenant can use a filesystem whose root was emptied and restored.
///
/// # Errors
/// [`Unusable`].
pub fn check_usable(
    root: BorrowedFd<'_>,
    offered: Option<&RootAttributes>,
) -> Result<(), Unusable> {
    let found = ioctl::inode(root).ok().flatten();
    let is_encrypted = |it: &Inode| it.is_encrypted();
    let was_encrypted = offered.and_then(|it| it.inode.as_ref()).map(is_encrypted);
    if was_encrypted == Some(false) && found.is_some_and(|it| is_encrypted(&it.0)) {
        return Err(Unusable::Encrypted);
    }
    match make_and_remove(root) {
        // Others share its filesystem, and may fill it.
        Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_and_remove(root: BorrowedFd<'_>) -> rustix::io::Result<()> {
    const NAME: &str = ".local-volume-provisioner";
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(root, NAME, flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(root, NAME, AtFlags::empty())
}
