//! Recognises storage that the node needs for itself and its pods, by filesystem and directory, not by mount point.
//!
//! A container does not see the host's mounts. The host's directories are derived from those whose paths are known on
//! both sides: the discovery directories and the kubelet's. Host directories on other filesystems are not recognised
//! from a container.

use std::path::{Path, PathBuf};

use super::claims::swaps;
use super::kubelet::KubeletDir;
use super::mounts::{DeviceNumber, Mount, MountTable};

/// How a directory of the system is protected. The order is that of the reasons that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// No part of it is a volume, and nothing that is mounted below it.
    System,
    /// No part of it is a volume.
    Private,
    /// A volume may be inside it, but must not contain it.
    Held,
}

const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

const PRIVATE: [&str; 2] = ["/var/lib/containerd", "/var/lib/etcd"];

const HELD: [&str; 14] = [
    "/",
    "/home",
    "/opt",
    "/root",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/rancher",
    "/var/log",
    "/var/spool",
    "/var/tmp",
];

/// A directory of a filesystem, wherever that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsDir {
    device: DeviceNumber,
    dir: PathBuf,
}

impl FsDir {
    /// The directory that a mount shows.
    #[must_use]
    pub fn mounted(mount: &Mount) -> Self {
        Self {
            device: mount.device,
            dir: mount.root.clone(),
        }
    }

    /// The directory at a path without links.
    fn at(path: &Path, table: &MountTable) -> Option<Self> {
        let mount = table.holding(path)?;
        Some(Self {
            device: mount.device,
            dir: mount.path_in_fs(path)?,
        })
    }

    /// Whether this is the other directory, or inside it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.dir.starts_with(&other.dir)
    }

    /// Whether one is the other, or inside it.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

/// A discovery directory.
#[derive(Clone, Debug)]
pub struct DiscoveryDir {
    /// The class's name.
    pub class: String,
    /// Its path on the host.
    pub host: PathBuf,
    /// Its path here.
    pub here: PathBuf,
}

/// A directory or file of the system.
#[derive(Clone, Debug)]
struct Dir {
    rule: Rule,
    /// Its path on the host.
    host: PathBuf,
    /// Its path here, without links; none if it is not here.
    here: Option<PathBuf>,
    what: String,
}

impl Dir {
    fn new(rule: Rule, path: impl Into<PathBuf>) -> Self {
        let host = path.into();
        Self {
            rule,
            here: host.canonicalize().ok(),
            what: host.display().to_string(),
            host,
        }
    }

    fn held(path: PathBuf, what: String) -> Self {
        let dir = Self::new(Rule::Held, path);
        Self { what, ..dir }
    }
}

/// The directories and files that the node needs.
#[derive(Clone, Debug)]
pub struct SystemStorage {
    /// By rule.
    dirs: Vec<Dir>,
    /// Discovery directories, without links: mounts inside them are not system storage.
    discovery: Vec<PathBuf>,
    /// Directories of the host with their paths here.
    known: Vec<(PathBuf, PathBuf)>,
}

impl SystemStorage {
    /// Reads the directories of this machine.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn read(kubelet: &KubeletDir, discovery: &[DiscoveryDir]) -> Result<Self, String> {
        let real = |path: &Path| path.canonicalize().ok();
        let mut dirs = Vec::from(SYSTEM.map(|path| Dir::new(Rule::System, path)));
        dirs.extend(PRIVATE.map(|path| Dir::new(Rule::Private, path)));
        dirs.extend(HELD.map(|path| Dir::new(Rule::Held, path)));
        dirs.push(Dir::new(Rule::Held, kubelet.path()));
        if let Ok(program) = std::env::current_exe() {
            dirs.push(Dir::held(program, "the running program".to_owned()));
        }
        let swaps = swaps().map_err(|error| format!("/proc/swaps cannot be read: {error}"))?;
        for path in swaps {
            let what = format!("the swap file {:?}", path.to_string_lossy());
            dirs.push(Dir::held(path, what));
        }
        let mut known = Vec::new();
        for dir in kubelet.volume_dirs() {
            known.extend(real(&dir).map(|here| (dir.clone(), here)));
            dirs.push(Dir::new(Rule::Private, dir));
        }
        for dir in discovery {
            let here = real(&dir.here);
            known.extend(here.clone().map(|here| (dir.host.clone(), here)));
            dirs.push(Dir {
                rule: Rule::Held,
                host: dir.host.clone(),
                here,
                what: format!("the discovery directory of class {:?}", dir.class),
            });
        }
        dirs.sort_by_key(|dir| dir.rule);
        Ok(Self {
            dirs,
            discovery: discovery.iter().filter_map(|dir| real(&dir.here)).collect(),
            known,
        })
    }

    /// Whether a mount point is inside a discovery directory.
    #[must_use]
    pub fn is_discovered(&self, point: &Path) -> bool {
        let mut dirs = self.discovery.iter();
        dirs.any(|dir| point != dir && point.starts_with(dir))
    }

    /// Where the directories are by this mount table. It takes as long as the table has lines.
    #[must_use]
    pub fn locate(&self, table: &MountTable) -> SystemDirs {
        let locations = self.dirs.iter().flat_map(|dir| {
            let locations = self.locations(dir, table);
            locations.map(move |location| (dir, location))
        });
        // Last, so that the locations above name their better reasons: a container has files of the kubelet
        // mounted in its `/etc`.
        let system = self.dirs.iter().filter(|dir| dir.rule == Rule::System);
        let below = system.flat_map(|dir| {
            let mounts = table.iter().filter(|it| self.is_below(dir, &it.point));
            mounts.map(move |it| (dir, FsDir::mounted(it)))
        });
        let dirs = locations.chain(below);
        SystemDirs(
            dirs.map(|(dir, location)| (dir.clone(), location))
                .collect(),
        )
    }

    fn is_below(&self, dir: &Dir, point: &Path) -> bool {
        let here = dir.here.as_ref();
        here.is_some_and(|here| point.starts_with(here)) && !self.is_discovered(point)
    }

    /// The known locations of a directory.
    fn locations<'a>(&'a self, dir: &'a Dir, table: &'a MountTable) -> impl Iterator<Item = FsDir> {
        let here = dir.here.as_ref().and_then(|here| FsDir::at(here, table));
        let on_host = self.known.iter().filter_map(|(host, here)| {
            let known = FsDir::at(here, table)?;
            // The common end of both paths is within one filesystem; the rest of the host's path is the
            // filesystem's mount point there.
            let (mut point, mut root) = (host.as_path(), known.dir.as_path());
            while point.file_name().is_some() && point.file_name() == root.file_name() {
                (point, root) = (point.parent()?, root.parent()?);
            }
            Some(FsDir {
                device: known.device,
                dir: root.join(dir.host.strip_prefix(point).ok()?),
            })
        });
        here.into_iter().chain(on_host)
    }
}

/// The directories that the node needs, each with its place in a filesystem.
#[derive(Clone, Debug)]
pub struct SystemDirs(Vec<(Dir, FsDir)>);

impl SystemDirs {
    /// Why the node needs a mounted filesystem, if it does.
    #[must_use]
    pub fn needs(&self, mount: &Mount) -> Option<String> {
        let volume = FsDir::mounted(mount);
        self.0.iter().find_map(|(dir, location)| {
            if dir.rule != Rule::Held && volume.is_within(location) {
                return Some(format!("it is a part of {}", dir.what));
            }
            let is_in_it = location.is_within(&volume);
            is_in_it.then(|| format!("{} is in it", dir.what))
        })
    }
}

#[cfg(test)]
mod tests;
