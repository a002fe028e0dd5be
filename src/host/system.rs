//! Recognises storage that the node needs for itself and its pods, by filesystem and directory, not by mount point.
//!
//! A container does not see the host's mounts. The host's directories are derived from those whose paths are known on
//! both sides: the discovery directories and the kubelet's. Host directories on other filesystems are not recognised
//! from a container.

use std::io;
use std::path::{Path, PathBuf};

use super::kubelet::KubeletDir;
use super::mounts::{DeviceNumber, Mount, MountTable, unescape};

/// No part of these is a volume, and nothing that is mounted below them.
const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

/// No part of these is a volume.
const PRIVATE: [&str; 2] = ["/var/lib/containerd", "/var/lib/etcd"];

/// A volume may be inside these, but must not contain them.
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

/// A directory of the system.
#[derive(Clone, Debug)]
struct Dir {
    /// Its path on the host.
    host: PathBuf,
    /// Its path here, without links; none if it is not here.
    here: Option<PathBuf>,
    what: String,
}

impl Dir {
    fn new(path: impl Into<PathBuf>) -> Self {
        let host = path.into();
        Self {
            here: host.canonicalize().ok(),
            what: host.display().to_string(),
            host,
        }
    }
}

/// The directories and files that the node needs.
#[derive(Clone, Debug)]
pub struct SystemStorage {
    system: Vec<Dir>,
    private: Vec<Dir>,
    held: Vec<Dir>,
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
        let volume_dirs = kubelet.volume_dirs();
        let known = discovery
            .iter()
            .map(|dir| (dir.host.clone(), dir.here.clone()))
            .chain(volume_dirs.iter().map(|dir| (dir.clone(), dir.clone())));
        let discovered = discovery.iter().map(|dir| Dir {
            host: dir.host.clone(),
            here: real(&dir.here),
            what: format!("the discovery directory of class {:?}", dir.class),
        });
        Ok(Self {
            system: SYSTEM.map(Dir::new).into(),
            private: PRIVATE
                .map(Dir::new)
                .into_iter()
                .chain(volume_dirs.clone().map(Dir::new))
                .collect(),
            held: HELD
                .map(Dir::new)
                .into_iter()
                .chain([Dir::new(kubelet.path())])
                .chain(own("/proc/self/exe", "the running program"))
                .chain(swap_files()?)
                .chain(discovered)
                .collect(),
            discovery: discovery.iter().filter_map(|dir| real(&dir.here)).collect(),
            known: known
                .filter_map(|(host, here)| Some((host, real(&here)?)))
                .collect(),
        })
    }

    /// Adds the target of one of our links in `/proc`.
    #[must_use]
    pub fn with(mut self, link: &str, what: &str) -> Self {
        self.held.extend(own(link, what));
        self
    }

    /// Whether a mount point is inside a discovery directory.
    #[must_use]
    pub fn is_discovered(&self, point: &Path) -> bool {
        let mut dirs = self.discovery.iter();
        dirs.any(|dir| point != dir && point.starts_with(dir))
    }

    /// Why the node needs a mounted filesystem, if it does.
    #[must_use]
    pub fn needs(&self, mount: &Mount, table: &MountTable) -> Option<String> {
        let volume = FsDir::mounted(mount);
        let why = |dir: &Dir, location: &FsDir| {
            if volume.is_within(location) {
                format!("it is a part of {}", dir.what)
            } else {
                format!("{} is in it", dir.what)
            }
        };
        for dir in self.system.iter().chain(&self.private) {
            if let Some(location) = self.locations(dir, table).find(|it| it.overlaps(&volume)) {
                return Some(why(dir, &location));
            }
        }
        let mut held = self.held.iter();
        let is_held = |dir: &&Dir| self.locations(dir, table).any(|it| it.is_within(&volume));
        if let Some(dir) = held.find(is_held) {
            return Some(format!("{} is in it", dir.what));
        }
        // Last, so that the checks above name their better reasons: a container has files of the kubelet
        // mounted in its `/etc`.
        for dir in &self.system {
            let is_below = |point: &Path| {
                let here = dir.here.as_ref();
                here.is_some_and(|here| point.starts_with(here)) && !self.is_discovered(point)
            };
            let below = table.iter().filter(|other| is_below(&other.point));
            if let Some(location) = below.map(FsDir::mounted).find(|it| it.overlaps(&volume)) {
                return Some(why(dir, &location));
            }
        }
        None
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

fn own(link: &str, what: &str) -> Option<Dir> {
    let path = std::fs::read_link(link).ok()?;
    Some(Dir {
        here: Some(path.clone()),
        host: path,
        what: what.to_owned(),
    })
}

/// The files that the machine swaps to. The first line is a heading.
fn swap_files() -> Result<Vec<Dir>, String> {
    let table = match std::fs::read("/proc/swaps") {
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        table => table.map_err(|error| format!("/proc/swaps cannot be read: {error}"))?,
    };
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"/"))
        .filter_map(|line| line.split(u8::is_ascii_whitespace).next())
        .map(|path| {
            let path = PathBuf::from(unescape(path));
            Dir {
                what: format!("the swap file {:?}", path.to_string_lossy()),
                here: Some(path.clone()),
                host: path,
            }
        })
        .collect())
}

#[cfg(test)]
mod tests;
