//! Recognises storage that the node needs for itself and its pods, by filesystem and directory, not by mount point.
//!
//! A container does not see the host's mounts. The host's directories are derived from those whose paths are known on
//! both sides: the discovery directories and the kubelet's. Host directories on other filesystems are not recognised
//! from a container.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::kubelet::KubeletDir;
use super::mounts::{DeviceNumber, Mount, MountTable, unescape};

/// How a directory of the system is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
type FsDir = (DeviceNumber, PathBuf);

/// The directory at a path without links.
pub(super) fn dir_at(path: &Path, table: &MountTable) -> Option<FsDir> {
    let mount = table.holding(path)?;
    Some((mount.device, mount.path_in_fs(path)?))
}

/// A directory or file of the system.
#[derive(Clone, Debug)]
pub struct Dir {
    rule: Rule,
    /// Its path on the host.
    pub(super) host: PathBuf,
    /// Its path here, without links; none if it is not here.
    pub(super) here: Option<PathBuf>,
}

impl Dir {
    fn new(rule: Rule, path: impl Into<PathBuf>) -> Self {
        let host = path.into();
        let here = host.canonicalize().ok();
        Self { rule, host, here }
    }

    /// A discovery directory, by its path on the host and its path here, without links. It is not touched: it may be
    /// on a disk that does not answer.
    pub fn discovery(host: &str, here: PathBuf) -> Self {
        Self { rule: Rule::Held, host: host.into(), here: Some(here) }
    }
}

/// The directories and files that the node needs, and their locations by a mount table.
#[derive(Clone, Debug)]
pub struct SystemStorage {
    /// In the order of the reasons that are named.
    needed: Vec<(Dir, FsDir)>,
    /// Discovery directories, without links: mounts inside them are not system storage.
    discovery: Vec<PathBuf>,
}

impl SystemStorage {
    /// Reads the directories of this machine.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn read(
        kubelet: &KubeletDir,
        discovery: Vec<Dir>,
        table: &MountTable,
    ) -> Result<Self, String> {
        let volume_dirs = kubelet.volume_dirs().map(|path| Dir::new(Rule::Private, path));
        let shared = [&volume_dirs, &*discovery].concat();
        let mut dirs = Vec::from(SYSTEM.map(|path| Dir::new(Rule::System, path)));
        dirs.extend(PRIVATE.map(|path| Dir::new(Rule::Private, path)));
        dirs.extend(volume_dirs);
        dirs.extend(HELD.map(|path| Dir::new(Rule::Held, path)));
        dirs.push(Dir::new(Rule::Held, &kubelet.path));
        let mut files = swaps().map_err(|error| format!("/proc/swaps cannot be read: {error}"))?;
        files.extend(std::env::current_exe());
        dirs.extend(files.into_iter().map(|path| Dir::new(Rule::Held, path)));
        let roots = discovery.iter().filter_map(|dir| dir.here.clone()).collect();
        dirs.extend(discovery);
        Ok(Self::locate(&dirs, &shared, roots, table))
    }

    /// Locates directories. Of the `shared` ones, the path on the host and the path here lead to the same directory.
    /// It takes as long as the table has lines.
    fn locate(dirs: &[Dir], shared: &[Dir], discovery: Vec<PathBuf>, table: &MountTable) -> Self {
        let needed = Vec::new();
        let mut storage = Self { needed, discovery };
        for dir in dirs {
            let here = dir.here.as_ref().and_then(|here| dir_at(here, table));
            let on_host = shared.iter().filter_map(|it| location(&dir.host, it, table));
            let locations = here.into_iter().chain(on_host).map(|location| (dir.clone(), location));
            storage.needed.extend(locations);
        }
        // Last, so that the locations above name their better reasons: a container has files of the kubelet
        // mounted in its `/etc`.
        for dir in dirs.iter().filter(|dir| dir.rule == Rule::System) {
            let Some(here) = &dir.here else { continue };
            for mount in table.iter().filter(|it| it.point.starts_with(here)) {
                if !storage.is_discovered(&mount.point) {
                    let location = (mount.device, mount.root.clone());
                    storage.needed.push((dir.clone(), location));
                }
            }
        }
        storage
    }

    /// Whether a mount point is inside a discovery directory.
    pub fn is_discovered(&self, point: &Path) -> bool {
        let mut dirs = self.discovery.iter();
        dirs.any(|dir| point != dir && point.starts_with(dir))
    }

    /// Why the node needs a mounted filesystem, if it does.
    pub fn needs(&self, mount: &Mount) -> Option<String> {
        let needed = self.needed.iter();
        let mut same_fs = needed.filter(|(_, (device, _))| *device == mount.device);
        same_fs.find_map(|(dir, (_, location))| {
            let needed = dir.host.display();
            if dir.rule != Rule::Held && mount.root.starts_with(location) {
                return Some(format!("it is a part of {needed}"));
            }
            let is_in_it = location.starts_with(&mount.root);
            is_in_it.then(|| format!("{needed} is in it"))
        })
    }
}

/// The location of a directory of the host, derived from a directory that is also here.
pub(super) fn location(host: &Path, shared: &Dir, table: &MountTable) -> Option<FsDir> {
    let (device, known) = dir_at(shared.here.as_ref()?, table)?;
    // The common end of both paths is within one filesystem; the rest of the host's path is the filesystem's mount
    // point there.
    let (mut point, mut root) = (shared.host.as_path(), known.as_path());
    while point.file_name().is_some() && point.file_name() == root.file_name() {
        (point, root) = (point.parent()?, root.parent()?);
    }
    Some((device, root.join(host.strip_prefix(point).ok()?)))
}

/// The files and devices that the machine swaps to.
///
/// # Errors
/// When `/proc` does not answer.
pub(super) fn swaps() -> io::Result<Vec<PathBuf>> {
    match fs::read("/proc/swaps") {
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        table => Ok(parse_swaps(&table?)),
    }
}

/// Each line begins with a path, except the first, a heading.
fn parse_swaps(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    let paths = paths.filter(|path| path.starts_with(b"/"));
    paths.map(|path| unescape(path).into()).collect()
}

#[cfg(test)]
mod tests;
