//! The storage that paths of the host lead to, such as those that Pods mount by `hostPath`.
//!
//! A path is resolved as far as it is visible here; the rest of it is compared as text. Volumes and filesystems that
//! may hang are not touched.

use std::collections::BTreeSet;
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

/// What a path of the host leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPathTarget {
    /// The path as it was given, and without the links that are visible here.
    paths: [PathBuf; 2],
    /// Directories of filesystems.
    dirs: Vec<(DeviceNumber, PathBuf)>,
    /// A device, and those that it lies on.
    devices: BTreeSet<DeviceNumber>,
}

impl HostPathTarget {
    /// Resolves a path of the host. The `shared` directories are visible here, perhaps at another path. Only mounts
    /// that `may_touch` allows are read.
    pub fn resolve(
        path: &Path,
        shared: &[Dir],
        machine: &Machine,
        may_touch: impl Fn(&Mount) -> bool,
    ) -> Self {
        let table = &machine.mounts;
        let (mut real, mut links, mut device) = (PathBuf::from("/"), 0, None);
        let mut rest = parts(path);
        while let Some(part) = rest.pop() {
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
        let devices = device.map(|number| below(number).unwrap_or_else(|| [number].into()));
        // Elsewhere on the host than here, but on a filesystem that is here.
        let on_host = shared.iter().filter_map(|dir| location(&real, dir, table));
        let dirs = dir_at(&here(&real, shared), table);
        Self {
            dirs: dirs.into_iter().chain(on_host).collect(),
            devices: devices.unwrap_or_default(),
            paths: [path.to_owned(), real],
        }
    }

    /// Whether it is the volume at a path of the host, or inside it. A directory around the volume is not.
    pub fn is_in(&self, path: &Path, volume: &Footprint) -> bool {
        self.paths.iter().any(|it| it.starts_with(path))
            || match volume {
                Footprint::Device { number, .. } => self.devices.contains(number),
                Footprint::Filesystem { fs, root, .. } => {
                    let mut dirs = self.dirs.iter();
                    dirs.any(|(device, dir)| device == fs && dir.starts_with(root))
                }
            }
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
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::mounts::MountTable;

    fn volume(fs: &str, root: &str) -> Footprint {
        Footprint::Filesystem {
            devices: BTreeSet::new(),
            fs: DeviceNumber::parse(fs).unwrap(),
            root: root.into(),
        }
    }

    /// The class has `/mnt/disks` of the host at another path here; its volume is a directory of the root filesystem,
    /// and a second one is a filesystem of its own.
    #[test]
    fn host_path_is_in_a_volume_by_text_link_and_directory() {
        let sandbox = tempfile::tempdir().unwrap();
        let top = sandbox.path().canonicalize().unwrap();
        let disks = top.join("disks");
        for dir in [
            "disks/bound",
            "disks/own/link-inside",
            "elsewhere",
            "data/bound/part",
        ] {
            fs::create_dir_all(top.join(dir)).unwrap();
        }
        symlink("/mnt/disks/own", disks.join("absolute")).unwrap();
        symlink("own/link-inside", disks.join("relative")).unwrap();
        symlink("../data/bound", top.join("elsewhere/link")).unwrap();
        symlink("loop", disks.join("loop")).unwrap();
        let table = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
             2 1 8:1 /mnt/disks {disks} rw - ext4 /dev/sda1 rw\n\
             3 2 8:1 {top}/data/bound {disks}/bound rw - ext4 /dev/sda1 rw\n\
             4 2 8:16 / {disks}/own rw - xfs /dev/sdb rw\n",
            top = top.display(),
            disks = disks.display(),
        );
        let machine = Machine {
            mounts: MountTable::parse(table.as_bytes()),
            ..Machine::default()
        };
        let shared = [Dir::discovery("/mnt/disks", disks.clone())];
        let own = volume("8:16", "/");
        let bound = volume("8:1", top.join("data/bound").to_str().unwrap());
        let in_top = |path: &str| top.join(path).to_str().unwrap().to_owned();
        for (path, is_in_own, is_in_bound) in [
            ("/", false, false),
            ("/mnt", false, false),
            ("/mnt/disks", false, false),
            ("/mnt/disks/own", true, false),
            ("/mnt/disks/own/", true, false),
            ("/mnt/disks/own/dir", true, false),
            ("/mnt/disks/own2", false, false),
            ("/mnt/disks/absolute", true, false),
            ("/mnt/disks/absolute/dir", true, false),
            ("/mnt/disks/relative", true, false),
            ("/mnt/disks/loop", false, false),
            ("/mnt/disks/bound", false, true),
            (&in_top("disks"), false, false),
            (&in_top("disks/own"), true, false),
            (&in_top("data"), false, false),
            (&in_top("data/bound/part"), false, true),
            (&in_top("elsewhere/link"), false, true),
            (&in_top("elsewhere/link/part"), false, true),
            ("/not/visible/here", false, false),
        ] {
            let may_touch = |mount: &Mount| mount.fs_type == "ext4";
            let target = HostPathTarget::resolve(Path::new(path), &shared, &machine, may_touch);
            let found = [("own", &own), ("bound", &bound)].map(|(entry, volume)| {
                let at = Path::new("/mnt/disks").join(entry);
                target.is_in(&at, volume)
            });
            assert_eq!(found, [is_in_own, is_in_bound], "{path}: {target:?}");
        }
    }

    #[test]
    fn host_path_of_a_device_is_compared_by_number() {
        let sandbox = tempfile::tempdir().unwrap();
        let Some(node) = fs::read_dir("/dev").unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            facts.file_type().is_block_device().then_some((path, facts))
        }) else {
            return;
        };
        let (device, facts) = node;
        let link = sandbox.path().join("link");
        symlink(&device, &link).unwrap();
        let machine = Machine {
            mounts: MountTable::read().unwrap(),
            ..Machine::default()
        };
        let of = |rdev: u64| Footprint::Device {
            number: DeviceNumber::from_rdev(rdev),
            below: BTreeSet::new(),
            wwid: None,
        };
        for path in [&device, &link] {
            let target = HostPathTarget::resolve(path, &[], &machine, |_| true);
            let at = Path::new("/mnt/disks/raw");
            assert!(target.is_in(at, &of(facts.rdev())), "{target:?}");
            assert!(
                !target.is_in(at, &of(facts.rdev() + 1_000_000)),
                "{target:?}"
            );
        }
        let above = HostPathTarget::resolve(Path::new("/dev"), &[], &machine, |_| true);
        assert!(!above.is_in(Path::new("/mnt/disks/raw"), &of(facts.rdev())));
    }
}
