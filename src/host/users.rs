//! Who uses a volume without the kernel's objecting: loop devices, processes that have something of it
//! open, and what other mount namespaces have mounted inside it.
//!
//! Of processes and their mounts only as much is known as `/proc` shows us: see [`sight`]. What is seen
//! counts in any case. A file that is only mapped is not seen: its process may be stuck with the lock
//! that tells, and we would be stuck with it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx};

use super::device::Device;
use super::filesystem::{FsRoot, may_lie_on};
use super::mounts::{DeviceNumber, Mount, MountTable, mount_id_in_fdinfo};
use super::sysfs::{Loop, Sysfs};

/// The kernel's number of the first process namespace, in which every process has a number.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Why the processes of the machine cannot all be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blind {
    /// We have a process namespace of our own, like most containers.
    #[error(
        "the container sees only its own processes (hostPID: true in the chart shows it those of the host)"
    )]
    OwnPidNamespace,
    /// The processes are there, but what they have open is not shown to us.
    #[error(
        "the container may not look into other processes (it takes CAP_SYS_PTRACE, which privileged containers have)"
    )]
    NoPtrace,
}

/// Whether all that processes of this machine have open and mounted can be seen here.
///
/// # Errors
/// Why not.
pub fn sight() -> Result<(), Blind> {
    let namespace = fs::read_link("/proc/self/ns/pid");
    if !namespace.is_ok_and(|link| link == Path::new(FIRST_PID_NAMESPACE)) {
        return Err(Blind::OwnPidNamespace);
    }
    fs::read_link("/proc/1/ns/mnt")
        .map(drop)
        .map_err(|_| Blind::NoPtrace)
}

/// A volume, as it is recognised from anywhere on the machine.
#[derive(Clone, Debug)]
pub enum Storage {
    /// A directory of a filesystem.
    Filesystem {
        /// How it is mounted here.
        mount: Mount,
        /// Its `st_dev`.
        st_dev: DeviceNumber,
    },
    /// A device, its partitions or the disk that it is a partition of, and the same of its twins.
    Device(BTreeSet<DeviceNumber>),
}

impl Storage {
    /// The storage of a filesystem volume.
    ///
    /// # Errors
    /// When the filesystem does not answer.
    pub fn of_filesystem(root: &FsRoot) -> io::Result<Self> {
        let facts = fs::metadata(super::through_proc(root.as_fd()))?;
        Ok(Self::Filesystem {
            mount: root.mount().clone(),
            st_dev: DeviceNumber::from_st_dev(facts.dev()),
        })
    }

    /// The storage of a device.
    ///
    /// # Errors
    /// When `/sys` does not answer.
    pub fn of_device(device: &Device, sysfs: &Sysfs) -> io::Result<Self> {
        let mut numbers = sysfs.writable_through(device.number())?;
        let below = sysfs.device(device.number())?.below;
        for twin in sysfs.twins(&below)? {
            numbers.extend(sysfs.writable_through(twin.number)?);
        }
        Ok(Self::Device(numbers))
    }
}

/// Somebody who uses a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A loop device over a file in the volume.
    Loop {
        /// Its kernel name.
        name: String,
        /// The file's path, as whoever made the device saw it.
        file: PathBuf,
    },
    /// A process that has something open, or runs it, or is in it.
    Process {
        /// Who.
        process: Process,
        /// What it has, as it sees it.
        path: PathBuf,
        /// As what, for the end of a sentence.
        how: &'static str,
    },
    /// Something is mounted inside the volume, in a mount namespace that is not ours.
    Mount {
        /// One of the processes in that namespace.
        process: Process,
        /// The mount point, as it sees it.
        point: PathBuf,
    },
}

/// A process, for people to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number, as we see it.
    pub pid: u32,
    /// What it calls itself.
    pub command: String,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names and paths are a tenant's, and may be made of anything: `Debug` quotes and escapes them.
        match self {
            Self::Loop { name, file } => {
                let file = file.to_string_lossy();
                write!(f, "{name} is a loop device over {file:?} in it")
            }
            Self::Process { process, path, how } => {
                let path = path.to_string_lossy();
                write!(f, "{process} has {path:?} {how}")
            }
            Self::Mount { process, point } => {
                let point = point.to_string_lossy();
                write!(
                    f,
                    "{process} has something mounted inside it, at {point:?} in a mount namespace of its own"
                )
            }
        }
    }
}

/// How many of a volume's users are named.
const NAMED: usize = 3;

/// The users in words; nothing if there are none.
#[must_use]
pub fn in_words(users: &[User]) -> Option<String> {
    let mut named: Vec<_> = users.iter().take(NAMED).map(ToString::to_string).collect();
    if users.len() > NAMED {
        named.push(format!("and {} more", users.len() - NAMED));
    }
    (!named.is_empty()).then(|| named.join(", "))
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({:?})", self.pid, self.command)
    }
}

/// The loop devices over files in a filesystem volume. (Those over a device are told by
/// [`Sysfs::loops_over`].)
///
/// The driver tells the filesystem of the file, not the directory. Where the volume is only a directory
/// of its filesystem, the path has to tell, and cannot if it is another mount namespace's.
///
/// # Errors
/// When `/sys` is not there.
pub fn loops_in(storage: &Storage, mounts: &MountTable, sysfs: &Sysfs) -> io::Result<Vec<User>> {
    let Storage::Filesystem { mount, .. } = storage else {
        return Ok(Vec::new());
    };
    let found = sysfs.loops()?.into_iter();
    Ok(found
        .filter(|it| is_loop_in(it, mount, mounts))
        .map(|Loop { name, file, .. }| User::Loop { name, file })
        .collect())
}

fn is_loop_in(it: &Loop, volume: &Mount, mounts: &MountTable) -> bool {
    if it.lies_on.is_some_and(|on| !may_lie_on(volume, on)) {
        return false;
    }
    if it.lies_on == Some(volume.device) && volume.root == Path::new("/") {
        return true;
    }
    mounts
        .holding(&it.file)
        .is_some_and(|through| lies_in(&it.file, through, volume))
}

/// Whether a file whose path leads through this mount lies in the volume.
fn lies_in(path: &Path, through: &Mount, volume: &Mount) -> bool {
    through.device == volume.device
        && through
            .place_of(path)
            .is_some_and(|place| place.starts_with(&volume.root))
}

/// The processes that have the device, or something in the filesystem, open or are in it, and the
/// mounts inside the filesystem that other mount namespaces have; as far as they can be seen. We
/// ourselves do not count.
///
/// # Errors
/// When `/proc` is not there.
pub fn processes_using(storage: &Storage) -> io::Result<Vec<User>> {
    let pids = numbers_in(Path::new("/proc"))?;
    let mut users = Vec::new();
    let mut mounts = SeenMounts::default();
    if let Storage::Filesystem { mount: volume, .. } = storage {
        mounts.add_namespaces(&pids, volume, &mut users)?;
    }
    let others = pids.iter().filter(|pid| **pid != std::process::id());
    users.extend(others.filter_map(|pid| {
        let (path, how) = held_by(*pid, &mounts, storage)?;
        Some(User::Process {
            process: process(*pid),
            path,
            how,
        })
    }));
    Ok(users)
}

/// What a process has without a descriptor, and as what.
const LINKS: [(&str, &str); 3] = [
    ("cwd", "as its working directory"),
    ("root", "as its root directory"),
    ("exe", "as its program"),
];

/// What a process has of the storage, and as what.
fn held_by(pid: u32, mounts: &SeenMounts, storage: &Storage) -> Option<(PathBuf, &'static str)> {
    let descriptors = |dir: PathBuf| {
        let numbers = numbers_in(&dir.join("fd")).unwrap_or_default();
        numbers.into_iter().map(move |number| (dir.clone(), number))
    };
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let mut all: Vec<_> = descriptors(dir.clone()).collect();
    if all.is_empty() {
        // The first thread may have ended before the others.
        all = threads(pid).into_iter().flat_map(descriptors).collect();
    }
    let open = all.into_iter().find_map(|(dir, number)| {
        let (path, mut file) = behind(&dir.join(format!("fd/{number}")))?;
        if file.mount.is_none() {
            // Linux before 5.8.
            let info = fs::read_to_string(dir.join(format!("fdinfo/{number}"))).ok()?;
            file.mount = mount_id_in_fdinfo(&info);
        }
        let held = mounts.is_open(&path, &file, storage);
        held.then_some((path, "open"))
    });
    open.or_else(|| {
        LINKS.into_iter().find_map(|(link, how)| {
            let (path, file) = behind(&dir.join(link))?;
            // An older kernel tells their mounts to nobody.
            let held = file.mount.is_some() && mounts.is_open(&path, &file, storage);
            held.then_some((path, how))
        })
    })
}

/// What a link in `/proc` leads to. Nothing for a socket or a pipe.
fn behind(link: &Path) -> Option<(PathBuf, OpenFile)> {
    let path = fs::read_link(link).ok().filter(|path| path.has_root())?;
    // Not synced: nobody waits for a server that is gone.
    let mask = StatxFlags::TYPE | StatxFlags::MNT_ID;
    let facts = statx(CWD, link, AtFlags::STATX_DONT_SYNC, mask).ok()?;
    Some((path, OpenFile::from(&facts)))
}

/// What a descriptor leads to.
#[derive(Clone, Debug)]
struct OpenFile {
    /// The id of the mount that it was opened through.
    mount: Option<u64>,
    st_dev: DeviceNumber,
    /// Of a block device, which one.
    device: Option<DeviceNumber>,
}

impl From<&Statx> for OpenFile {
    fn from(facts: &Statx) -> Self {
        let number = |major, minor| DeviceNumber { major, minor };
        let mask = StatxFlags::from_bits_retain(facts.stx_mask);
        let file_type = FileType::from_raw_mode(facts.stx_mode.into());
        Self {
            mount: mask
                .contains(StatxFlags::MNT_ID)
                .then_some(facts.stx_mnt_id),
            st_dev: number(facts.stx_dev_major, facts.stx_dev_minor),
            device: (file_type == FileType::BlockDevice)
                .then(|| number(facts.stx_rdev_major, facts.stx_rdev_minor)),
        }
    }
}

/// The mounts of all mount namespaces, by their ids, which are unique in the kernel. Those of the
/// volume's filesystem whole, with mount points as the namespace's root directory sees them.
#[derive(Debug, Default)]
struct SeenMounts(HashMap<u64, Option<Mount>>);

impl SeenMounts {
    /// Takes in the mounts of the processes' namespaces, and finds those inside the volume that other
    /// namespaces than ours have.
    fn add_namespaces(
        &mut self,
        pids: &[u32],
        volume: &Mount,
        users: &mut Vec<User>,
    ) -> io::Result<()> {
        let ours = fs::read_link("/proc/thread-self/ns/mnt")?;
        let mut seen = HashSet::new();
        for (pid, thread) in pids
            .iter()
            .flat_map(|pid| threads(*pid).into_iter().map(move |dir| (*pid, dir)))
        {
            let links = ["ns/mnt", "root"].map(|link| fs::read_link(thread.join(link)));
            let [Ok(namespace), Ok(root)] = links else {
                continue;
            };
            // Whoever has another root directory is shown other mounts.
            let view = (namespace, root);
            if seen.contains(&view) {
                continue;
            }
            let Ok(bytes) = fs::read(thread.join("mountinfo")) else {
                continue;
            };
            let nested = self.add(&MountTable::parse(&bytes), &view.1, volume);
            if view.0 != ours {
                users.extend(nested.into_iter().map(|point| User::Mount {
                    process: process(pid),
                    point,
                }));
            }
            seen.insert(view);
        }
        Ok(())
    }

    /// Takes in the table of a process whose root directory is `root`. Returns where something is
    /// mounted inside the volume that was not seen before.
    fn add(&mut self, table: &MountTable, root: &Path, volume: &Mount) -> Vec<PathBuf> {
        let from_root = |point: &Path| match point.strip_prefix("/") {
            Ok(rest) if !rest.as_os_str().is_empty() => root.join(rest),
            _ => root.to_owned(),
        };
        let inside = table.inside(volume.device, &volume.root);
        let nested = inside
            .filter(|mount| !self.0.contains_key(&mount.id))
            .map(|mount| from_root(&mount.point))
            .collect();
        for mount in table.iter() {
            let of_the_filesystem = (mount.device == volume.device).then(|| Mount {
                point: from_root(&mount.point),
                ..mount.clone()
            });
            self.0.insert(mount.id, of_the_filesystem);
        }
        nested
    }

    /// Whether what a process has open is the device or lies in the volume.
    fn is_open(&self, path: &Path, file: &OpenFile, storage: &Storage) -> bool {
        match storage {
            Storage::Device(numbers) => file.device.is_some_and(|it| numbers.contains(&it)),
            Storage::Filesystem { mount, st_dev } => {
                match file.mount.and_then(|id| self.0.get(&id)) {
                    Some(through) => through
                        .as_ref()
                        .is_some_and(|through| lies_in(path, through, mount)),
                    // Unmounted lazily: nobody can tell any more which directory that was.
                    None => file.st_dev == *st_dev,
                }
            }
        }
    }
}

pub(super) fn process(pid: u32) -> Process {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    Process {
        pid,
        command: name.strip_suffix('\n').unwrap_or(&name).to_owned(),
    }
}

/// The directories of a process's threads; none when it has ended.
fn threads(pid: u32) -> Vec<PathBuf> {
    let dir = PathBuf::from(format!("/proc/{pid}/task"));
    let threads = numbers_in(&dir).unwrap_or_default().into_iter();
    threads.map(|tid| dir.join(tid.to_string())).collect()
}

/// The names in a directory that are numbers.
pub(super) fn numbers_in(dir: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.file_name()));
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

#[cfg(test)]
mod tests;
