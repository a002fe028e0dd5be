//! Whether a path on the host leads into, onto or around a volume, by whatever links and mounts.
//!
//! Paths are compared as text, resolved and not, and by filesystem and directory as the mount table shows them. Of a
//! path that is not visible in this mount namespace only the text is known. Nothing is opened, and no network
//! filesystem is touched.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::footprint::Footprint;
use super::mounts::{DeviceNumber, MountTable};
use super::sysfs::Sysfs;
use crate::types::{HostPath, MountPath};
use crate::view::PathOwner;

/// Network filesystems, which may not answer. A FUSE filesystem may be one.
const REMOTE: [&str; 8] = [
    "9p", "afs", "ceph", "cifs", "fuse", "nfs", "smb", "virtiofs",
];

/// The symbolic links that the kernel follows in one path.
const MAX_LINKS: u32 = 40;

/// Where a path leads, in relation to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Relation {
    /// To the volume itself.
    #[error("the same volume")]
    Same,
    /// Into it.
    #[error("a part of it")]
    Inside,
    /// To a directory or device that contains it.
    #[error("a directory or device around it")]
    Around,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A symbolic link, with its target.
    Link(PathBuf),
    /// A device, and all that it lies on, itself included.
    Device(DeviceNumber, BTreeSet<DeviceNumber>),
    /// Another file.
    Other,
    /// It does not exist in this mount namespace, or cannot be read.
    Nothing,
}

/// The view of the host from this mount namespace.
pub struct HostView<'a> {
    /// The discovery directories, on the host and here.
    pub dirs: Vec<(HostPath, MountPath)>,
    /// The mounts.
    pub mounts: &'a MountTable,
    /// Reads what is at a path.
    pub look: &'a dyn Fn(&Path) -> Seen,
}

/// Those of the PVs that own the volume at `entry` by the text of the paths alone.
pub fn owners_by_text(owners: &[PathOwner], entry: &HostPath) -> Vec<(PathOwner, Relation)> {
    let owns = |it: &PathOwner| {
        let relation = nested(Path::new(&it.path), Path::new(entry.as_str()))?;
        relation.is_owned_by(it).then(|| (it.clone(), relation))
    };
    owners.iter().filter_map(owns).collect()
}

impl Relation {
    /// Whether a PV with a path in this relation owns the volume.
    fn is_owned_by(self, owner: &PathOwner) -> bool {
        owner.owns_below || self != Self::Around
    }
}

/// Reads what is at a path of this machine. Blocking.
pub fn look(path: &Path, sysfs: &Sysfs) -> Seen {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return Seen::Nothing;
    };
    if facts.is_symlink() {
        return fs::read_link(path).map_or(Seen::Nothing, Seen::Link);
    }
    if !facts.file_type().is_block_device() {
        return Seen::Other;
    }
    let number = DeviceNumber::from_rdev(facts.rdev());
    let below = sysfs.device(number).map(|it| it.below.clone());
    Seen::Device(number, below.unwrap_or_default())
}

impl HostView<'_> {
    /// How a PV owns the volume at `entry`, if it does.
    pub fn owns(
        &self,
        owner: &PathOwner,
        entry: &HostPath,
        volume: &Footprint,
    ) -> Option<Relation> {
        let relation = self.relation(Path::new(&owner.path), Path::new(entry.as_str()), volume);
        relation.filter(|it| it.is_owned_by(owner))
    }

    fn relation(&self, path: &Path, entry: &Path, volume: &Footprint) -> Option<Relation> {
        let (real, seen) = self.resolve(path);
        let by_links = || nested(&real, &self.resolve(entry).0);
        let by_storage = || match (volume, &seen) {
            (Footprint::Device { number, .. }, Seen::Device(other, _)) if number == other => {
                Some(Relation::Same)
            }
            (Footprint::Device { number, .. }, Seen::Device(_, below))
                if below.contains(number) =>
            {
                Some(Relation::Inside)
            }
            (_, Seen::Device(other, _)) => {
                let is_below = volume.devices().contains(other);
                is_below.then_some(Relation::Around)
            }
            (Footprint::Filesystem { fs, root, .. }, _) => {
                let here = self.here(&real);
                let mount = self.mounts.holding(&here).filter(|it| it.device == *fs);
                nested(&mount?.path_in_fs(&here)?, root)
            }
            _ => None,
        };
        nested(path, entry).or_else(by_links).or_else(by_storage)
    }

    /// The path without symbolic links, as far as they are visible here, and what is there.
    fn resolve(&self, path: &Path) -> (PathBuf, Seen) {
        let parts =
            |path: &Path| -> Vec<OsString> { path.iter().rev().map(OsString::from).collect() };
        let (mut real, mut rest) = (PathBuf::from("/"), parts(path));
        let (mut links, mut seen) = (0, Seen::Other);
        while let Some(part) = rest.pop() {
            if part == ".." {
                real.pop();
                continue;
            }
            let next = real.join(part);
            seen = self.look(&next);
            match &seen {
                Seen::Link(target) if links < MAX_LINKS => {
                    links += 1;
                    rest.extend(parts(target));
                }
                _ => real = next,
            }
        }
        (real, seen)
    }

    fn look(&self, path: &Path) -> Seen {
        let here = self.here(path);
        let kind = self.mounts.holding(&here).map_or("", |it| &it.fs_type);
        if REMOTE.iter().any(|remote| kind.starts_with(remote)) {
            return Seen::Nothing;
        }
        (self.look)(&here)
    }

    /// The path in this mount namespace.
    fn here(&self, path: &Path) -> PathBuf {
        let below = |(host, here): &(HostPath, MountPath)| {
            let rest = path.strip_prefix(host.as_str()).ok()?;
            Some(here.as_path().join(rest))
        };
        let here = self.dirs.iter().find_map(below);
        here.unwrap_or_else(|| path.to_owned())
    }
}

/// How one path relates to another by its components.
fn nested(path: &Path, volume: &Path) -> Option<Relation> {
    match (path.starts_with(volume), volume.starts_with(path)) {
        (true, true) => Some(Relation::Same),
        (true, false) => Some(Relation::Inside),
        (false, true) => Some(Relation::Around),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests;
