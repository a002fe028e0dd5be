//! The attributes of a filesystem's root that a tenant can change, and that the next tenant must find as they were at
//! the first offer.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr, fstat,
    openat, unlinkat,
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
        let differs = |of: fn(&Self) -> String| before.as_ref().map(of) != Some(of(self));
        let set_owner = || fchown(root, Some(uid), Some(gid)).map_err(io::Error::from);
        let set_mode = || fchmod(root, Mode::from_raw_mode(self.mode)).map_err(io::Error::from);
        let set_inode = || ioctl::set_inode(root, self.inode.as_ref(), self.project);
        let owner = |it: &Self| format!("{}:{}", it.uid, it.gid);
        // A change of the owner clears mode bits, and an ACL sets some. So the mode comes later.
        let with_mode = |it: &Self| format!("{}:{}:{} {}", it.uid, it.gid, it.mode, it.acl);
        // Without permission, the kernel refuses even what changes nothing.
        let steps: [(_, bool, &dyn Fn() -> io::Result<()>); 5] = [
            ("owner", differs(owner), &set_owner),
            ("ACL", differs(|it| it.acl.clone()), &|| {
                set_acl(root, ACL, &self.acl)
            }),
            ("default ACL", differs(|it| it.default_acl.clone()), &|| {
                set_acl(root, DEFAULT_ACL, &self.default_acl)
            }),
            ("mode", differs(with_mode), &set_mode),
            ("flags, extent sizes or project", true, &set_inode),
        ];
        let failed = steps.into_iter().filter(|(_, differs, _)| *differs);
        let failed = failed.filter_map(|(what, _, set)| {
            let error = set().err()?;
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

/// Whether a tenant can use a filesystem whose root was emptied and restored.
///
/// # Errors
/// Why not, and the remedy.
pub fn check_usable(root: BorrowedFd<'_>, offered: Option<&RootAttributes>) -> Result<(), String> {
    let found = ioctl::inode(root).ok().flatten();
    let is_encrypted = |it: &Inode| it.is_encrypted();
    let was_encrypted = offered.and_then(|it| it.inode.as_ref()).map(is_encrypted);
    if was_encrypted == Some(false) && found.is_some_and(|it| is_encrypted(&it.0)) {
        return Err("the volume is empty, but its tenant has set an encryption policy, which cannot be taken off; create a new filesystem (mkfs)".into());
    }
    match make_and_remove(root) {
        // Others share its filesystem, and may fill it.
        Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(error) => Err(format!(
            "the volume is empty, but no file can be made in it ({error}); see lsattr -d of its root and its mount options"
        )),
    }
}

fn make_and_remove(root: BorrowedFd<'_>) -> rustix::io::Result<()> {
    const NAME: &str = ".local-volume-provisioner";
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(root, NAME, flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(root, NAME, AtFlags::empty())
}
