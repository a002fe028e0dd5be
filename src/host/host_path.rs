//! Where paths of the host lead, such as those that Pods mount by `hostPath`, and how they relate to a volume.
//!
//! A path is followed as far as it is visible here; the rest of it is compared as text. Volumes and filesystems that
//! may hang are not touched, and nothing is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use super::Machine;
use super::footprint::Footprint;
use super::mounts::{DeviceNumber, Mount};
use super::system::{Dir, dir_at, location};

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

/// Where a path leads, in relation to a volume; the closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
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

/// Paths of the host, with what they lead to. Of any other path only the text is known.
#[derive(Clone, Debug, Default)]
pub struct HostPaths(BTreeMap<PathBuf, Target>);

/// What a path leads to.
#[derive(Clone, Debug, Default)]
struct Target {
    /// The path without the links that are visible here.
    real: PathBuf,
    /// Directories of filesystems.
    dirs: Vec<(DeviceNumber, PathBuf)>,
    /// A device, and those that it lies on.
    device: Option<(DeviceNumber, BTreeSet<DeviceNumber>)>,
}

impl HostPaths {
    /// Follows paths. The `shared` directories are visible here, perhaps at another path. Only mounts that `may_touch`
    /// allows are read. Blocking.
    pub fn follow(
        paths: impl IntoIterator<Item = PathBuf>,
        shared: &[Dir],
        machine: &Machine,
        may_touch: impl Fn(&Mount) -> bool,
    ) -> Self {
        let paths = paths.into_iter().map(|path| {
            let target = Target::of(&path, shared, machine, &may_touch);
            (path, target)
        });
        Self(paths.collect())
    }

    /// How a path relates to the volume at `entry`, by text, links, filesystems and devices.
    pub fn relation(&self, path: &Path, entry: &Path, volume: &Footprint) -> Option<Relation> {
        let real = |path| self.0.get(path).map(|it| it.real.as_path());
        let texts = |path| [Some(path), real(path)].into_iter().flatten();
        let by_text = texts(path).flat_map(|path| texts(entry).filter_map(|it| nested(path, it)));
        let target = self.0.get(path).into_iter();
        by_text.chain(target.flat_map(|it| it.on(volume))).min()
    }
}

impl Target {
    fn of(
        path: &Path,
        shared: &[Dir],
        machine: &Machine,
        may_touch: impl Fn(&Mount) -> bool,
    ) -> Self {
        let table = &machine.mounts;
        let (mut real, mut links, mut device) = (PathBuf::from("/"), 0, None);
        let mut rest = parts(path);
        while let Some(part) = rest.pop() {
            device = None;
            if part == ".." {
                real.pop();
                continue;
            }
            real.push(part);
            let here = here(&real, shared);
            if !table.holding(&here).is_some_and(&may_touch) {
                continue;
            }
            let Ok(facts) = fs::symlink_metadata(&here) else {
                continue;
            };
            if facts.file_type().is_block_device() {
                device = Some(DeviceNumber::from_rdev(facts.rdev()));
            } else if facts.is_symlink() && links < MAX_LINKS {
                links += 1;
                let Ok(target) = fs::read_link(&here) else {
                    continue;
                };
                // An absolute one replaces the path.
                real.pop();
                if target.is_absolute() {
                    real = "/".into();
                }
                rest.extend(parts(&target));
            }
        }
        let below = |number| Some(machine.sysfs.device(number).ok()?.below.clone());
        // Elsewhere on the host than here, but on a filesystem that is here.
        let on_host = shared.iter().filter_map(|dir| location(&real, dir, table));
        let dirs = dir_at(&here(&real, shared), table);
        Self {
            dirs: dirs.into_iter().chain(on_host).collect(),
            device: device.map(|number| (number, below(number).unwrap_or_default())),
            real,
        }
    }

    /// How it relates to a volume by their storage.
    fn on(&self, volume: &Footprint) -> impl Iterator<Item = Relation> {
        let by_device = self.device.as_ref().and_then(|(device, below)| match volume {
            Footprint::Device { number, .. } if number == device => Some(Relation::Same),
            Footprint::Device { number, .. } if below.contains(number) => Some(Relation::Inside),
            _ => {
                let is_below = volume.devices().contains(device);
                is_below.then_some(Relation::Around)
            }
        });
        let by_dir = self.dirs.iter().filter_map(|(device, dir)| match volume {
            Footprint::Filesystem { fs, root, .. } if fs == device => nested(dir, root),
            _ => None,
        });
        by_device.into_iter().chain(by_dir)
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

/// The components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev();
    let parts = parts.filter(|it| matches!(it, Component::Normal(_) | Component::ParentDir));
    parts.map(|it| it.as_os_str().to_owned()).collect()
}

/// Where a path of the host is here.
pub fn here(path: &Path, shared: &[Dir]) -> PathBuf {
    let around = shared.iter().filter(|dir| path.starts_with(&dir.host));
    let dir = around.max_by_key(|dir| dir.host.as_os_str().len());
    let inside = dir.and_then(|dir| {
        let rest = path.strip_prefix(&dir.host).ok()?;
        Some(dir.here.as_ref()?.join(rest))
    });
    inside.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests;
