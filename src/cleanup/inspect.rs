//! The inspection: whether an open volume may be offered or cleaned. It changes nothing.
//!
//! Nothing else decides this: the gate of a cleanup, the `clean` command, and the check before a PV is created call it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::escape::{quoted, tenants_path};
use crate::host::access::OpenError;
use crate::host::host_path::{HostPaths, here};
use crate::host::kubelet::KubeletDir;
use crate::host::mark::StateDir;
use crate::host::mounts::{DeviceNumber, Mount, MountTable};
use crate::host::sysfs::DeviceFacts;
use crate::host::system::{Dir, SystemStorage};
use crate::host::users::{device_user, loop_in};
use crate::host::{Machine, with_path};
use crate::retry;
use crate::types::MountPath;

use super::volume::{OpenVolume, Opened};
use super::{Failure, Stop};

/// Filesystem types that keep their data on devices of this machine or in its memory.
const LOCAL_FILESYSTEMS: [&str; 21] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "hfsplus", "jfs",
    "msdos", "nilfs2", "ntfs", "ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs",
    "zfs",
];

/// The filesystem types of `/dev`.
const DEV_FILESYSTEMS: [&str; 2] = ["devtmpfs", "tmpfs"];

/// Why a volume must not be offered or cleaned.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// It is in use.
    #[error("the volume is in use: {user}")]
    InUse {
        /// The user.
        user: String,
        /// How long the use of a volume to be cleaned must last before it is reported.
        notify_after: Duration,
    },
    /// A mount point is inside the volume.
    #[error("{} is mounted inside the volume", tenants_path(.0.as_os_str().as_encoded_bytes()))]
    Nested(PathBuf),
    /// The machine needs it; with the purpose.
    #[error("storage that this machine needs ({0})")]
    System(String),
    /// A filesystem of this type may keep its data on another machine.
    #[error("{0} may keep its data on another machine")]
    NotLocal(String),
    /// The disk does not answer.
    #[error("{0}")]
    Silent(String),
    /// The check failed.
    #[error("{0}")]
    Unknown(String),
}

impl Obstacle {
    pub(super) fn in_use(user: impl Into<String>) -> Self {
        Self::InUse { user: user.into(), notify_after: retry::SHORT_USE }
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self::Unknown(error.to_string())
    }
}

impl From<OpenError> for Obstacle {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Locked(_) => Self::in_use(error.to_string()),
            _ => Self::Unknown(error.to_string()),
        }
    }
}

impl From<Obstacle> for Stop {
    fn from(obstacle: Obstacle) -> Self {
        let by = obstacle.to_string();
        let remedy = match obstacle {
            Obstacle::InUse { notify_after, .. } => return Self::InUse { by, notify_after },
            Obstacle::Silent(_) | Obstacle::Unknown(_) => "",
            Obstacle::Nested(_) => {
                "; nothing was deleted; unmount it and the volume will be cleaned"
            }
            Obstacle::System(_) | Obstacle::NotLocal(_) => {
                "; nothing was deleted; set the PV's policy to Retain, delete it, and unmount the path"
            }
        };
        let message = format!("{by}{remedy}");
        Self::Failed(Failure::new(message))
    }
}

/// What an inspection compares a volume with. It may be read once for several volumes.
#[derive(Debug)]
pub(crate) struct NodeFacts {
    pub(crate) machine: Machine,
    /// Where the kubelet has volumes mounted and mapped for Pods.
    kubelet_mounts: Vec<Mount>,
    /// The storage that this machine needs for itself.
    system: SystemStorage,
    /// The directories of overlays, with a mount point of the overlay.
    layers: BTreeMap<PathBuf, PathBuf>,
    discovery: Vec<Dir>,
}

impl NodeFacts {
    /// Reads the facts of this machine, given the directories of the configured classes. Blocking.
    ///
    /// # Errors
    /// What cannot be read, or not completely.
    pub(crate) fn read(
        kubelet: &KubeletDir,
        discovery: Vec<Dir>,
        state: &StateDir,
    ) -> Result<Self, Obstacle> {
        let machine = Machine::read(state)?;
        machine.mounts.complete().map_err(Obstacle::Unknown)?;
        let overlays = machine.mounts.iter();
        let layers = overlays.flat_map(|it| it.layers.iter().map(|path| (path, &it.point)));
        let layers = layers.map(|(path, point)| (here(path, &discovery), point.clone())).collect();
        let system = SystemStorage::read(kubelet, discovery.clone(), &machine.mounts);
        Ok(Self {
            layers,
            discovery,
            system: system.map_err(Obstacle::Unknown)?,
            kubelet_mounts: kubelet.mounts(&machine.mounts).cloned().collect(),
            machine,
        })
    }

    /// Where paths of the host lead. Blocking.
    pub(crate) fn follow(&self, paths: impl IntoIterator<Item = PathBuf>) -> HostPaths {
        // Neither a volume nor a server may delay the others.
        let may_touch = |mount: &Mount| {
            let fs_type = &*mount.fs_type;
            let is_local =
                LOCAL_FILESYSTEMS.contains(&fs_type) || DEV_FILESYSTEMS.contains(&fs_type);
            is_local && !self.system.is_discovered(&mount.point)
        };
        HostPaths::follow(paths, &self.discovery, &self.machine, may_touch)
    }
}

/// The discovery directories of the classes. `real` finds the path of one without links.
pub(crate) fn discovery_dirs(config: &Config, real: impl Fn(&MountPath) -> PathBuf) -> Vec<Dir> {
    let classes = config.classes.values();
    classes.map(|class| Dir::discovery(class.host_dir.as_str(), real(&class.mount_dir))).collect()
}

/// Checks for everything on this machine that forbids offering or cleaning a volume. Blocking.
pub(super) fn inspect(opened: &OpenVolume, facts: &NodeFacts) -> Result<(), Obstacle> {
    let (machine, kubelet_mounts) = (&facts.machine, &facts.kubelet_mounts);
    if let Opened::Filesystem(root) = &opened.volume {
        let (mount, table) = (root.mount(), &machine.mounts);
        if let Some(why) = facts.system.needs(mount) {
            return Err(Obstacle::System(why));
        }
        if let Some(point) = kubelet_mount(mount, kubelet_mounts, &facts.system) {
            return Err(kubelet_has("mounted", point));
        }
        if !LOCAL_FILESYSTEMS.contains(&&*mount.fs_type) {
            return Err(Obstacle::NotLocal(mount.fs_type.clone()));
        }
        if let Some(nested) = table.inside(mount.device, &mount.root).next() {
            return Err(Obstacle::Nested(nested.point.clone()));
        }
        if let Some(part) = table.of_parts(mount).next() {
            return Err(Obstacle::in_use(format!(
                "a part of it is mounted at {} as well; unmount it there",
                shown(&part.point)
            )));
        }
        if let Some(point) = overlay_over(mount, table, &facts.layers) {
            return Err(Obstacle::in_use(format!(
                "an overlay at {} has a directory of it as a layer; unmount it there",
                shown(point)
            )));
        }
        if let Some(by) = loop_in(root, machine)? {
            return Err(Obstacle::in_use(by));
        }
    }
    let devices = opened.candidate.footprint.devices();
    let twins = machine.sysfs.twins(devices)?;
    if let Opened::Device(device) = &opened.volume {
        let mut numbers = machine.sysfs.writable_through(device.number())?;
        for twin in &twins {
            numbers.extend(machine.sysfs.writable_through(twin.number)?);
        }
        let mounts = kubelet_mounts.iter();
        for mount in mounts.filter(|it| DEV_FILESYSTEMS.contains(&&*it.fs_type)) {
            if device_at(&mount.point)?.is_some_and(|number| numbers.contains(&number)) {
                return Err(kubelet_has("mapped", &mount.point));
            }
        }
    }
    other_devices_are_free(devices, &twins, machine)
}

/// Fails if the storage of these devices is in use through another one: another path to their disks (multipath),
/// which the kernel treats as a separate disk, or the device behind a loop device. Blocking.
pub(crate) fn other_devices_are_free(
    devices: &BTreeSet<DeviceNumber>,
    twins: &[Arc<DeviceFacts>],
    machine: &Machine,
) -> Result<(), Obstacle> {
    const CLAIMED: &str = "mounted, possibly in a container, or part of LVM, RAID or swap";
    for twin in twins {
        let user = match device_user(twin, machine)? {
            None if machine.sysfs.is_claimed(twin)? => CLAIMED.to_owned(),
            Some(user) => user,
            None => continue,
        };
        let name = &twin.name;
        return Err(Obstacle::in_use(format!(
            "{name} is a second path to its storage, and is in use ({user})"
        )));
    }
    // A loop device does not claim the device behind it.
    for number in devices {
        let Some(over) = machine.sysfs.device(*number)?.loop_over else {
            continue;
        };
        let backing = machine.sysfs.device(over)?;
        if machine.sysfs.is_claimed(&backing)? {
            return Err(Obstacle::in_use(format!(
                "it is a loop device over {}, which is {CLAIMED}",
                backing.name
            )));
        }
    }
    Ok(())
}

/// Logs the other mount points of the same directory. They are normal and do not forbid cleaning.
pub(super) fn report_mounts(volume: &Opened, table: &MountTable) {
    let Opened::Filesystem(root) = volume else {
        return;
    };
    let mount = root.mount();
    let same = |it: &Mount| it.device == mount.device && it.root == mount.root;
    for other in table.iter().filter(|it| it.id != mount.id && same(it)) {
        tracing::info!("the volume is mounted at {} as well", shown(&other.point));
    }
}

/// The kubelet's mount of the volume or of a directory in it. A mount of a parent directory does not
/// count: it may be a whole disk that a pod only monitors.
fn kubelet_mount<'a>(
    volume: &Mount,
    kubelet_mounts: impl IntoIterator<Item = &'a Mount>,
    system: &SystemStorage,
) -> Option<&'a Path> {
    let mut mounts = kubelet_mounts.into_iter();
    // A discovery directory may be below the kubelet's directory.
    let user = mounts.find(|it| it.is_within(volume) && !system.is_discovered(&it.point))?;
    Some(&user.point)
}

/// The mount point of an overlay that has the volume, or a directory in it, as one of its `layers`.
fn overlay_over<'a>(
    volume: &Mount,
    table: &MountTable,
    layers: &'a BTreeMap<PathBuf, PathBuf>,
) -> Option<&'a Path> {
    let same_fs = table.iter().filter(|it| it.device == volume.device);
    let mut dirs = same_fs.filter_map(|it| match volume.root.strip_prefix(&it.root) {
        Ok(below) => Some(it.point.join(below)),
        Err(_) => it.is_within(volume).then(|| it.point.clone()),
    });
    dirs.find_map(|dir| {
        // The paths below a directory follow it.
        let (layer, point) = layers.range(dir.clone()..).next()?;
        layer.starts_with(&dir).then_some(point.as_path())
    })
}

fn kubelet_has(how: &str, point: &Path) -> Obstacle {
    Obstacle::in_use(format!("the kubelet has it {how} for a Pod, at {}", shown(point)))
}

/// The device whose device node is mounted at a path.
fn device_at(point: &Path) -> io::Result<Option<DeviceNumber>> {
    match fs::symlink_metadata(point) {
        Ok(facts) if facts.file_type().is_block_device() => {
            Ok(Some(DeviceNumber::from_rdev(facts.rdev())))
        }
        Ok(_) => Ok(None),
        // It was unmapped in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(with_path(&error, point)),
    }
}

/// Escapes a mount point outside of the volume: it may be any bytes.
pub(crate) fn shown(path: &Path) -> String {
    quoted(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
        2 1 8:1 /kubelet/pods /kubelet/pods rw - ext4 /dev/sda1 rw\n\
        3 1 8:16 /a /disks/a rw - ext4 /dev/sdb rw\n\
        4 1 8:16 /b /disks/b rw - ext4 /dev/sdb rw\n\
        5 1 8:32 / /disks/c rw - ext4 /dev/sdc rw\n\
        6 1 8:1 /kubelet /disks/d rw - ext4 /dev/sda1 rw\n\
        7 2 8:16 /a /kubelet/pods/1/volumes/local/a rw - ext4 /dev/sdb rw\n\
        8 2 8:16 / /kubelet/pods/1/volume-subpaths/disk/c/0 rw - ext4 /dev/sdb rw\n\
        9 2 8:32 /dir /kubelet/pods/1/volume-subpaths/c/c/0 rw - ext4 /dev/sdc rw\n\
        10 1 8:48 / /kubelet/plugins/disks/e rw - ext4 /dev/sdd rw\n\
        11 1 8:48 / /disks/e rw - ext4 /dev/sdd rw\n";

    #[test]
    fn kubelet_mount_of_the_volume_or_a_directory_in_it_is_a_use() {
        let table = MountTable::parse(TABLE);
        let kubelet = KubeletDir::new("/kubelet", None);
        let system = SystemStorage::read(&kubelet, Vec::new(), &table).unwrap();
        for (point, user) in [
            ("/disks/a", Some("/kubelet/pods/1/volumes/local/a")),
            ("/disks/b", None),
            ("/disks/c", Some("/kubelet/pods/1/volume-subpaths/c/c/0")),
            ("/disks/d", None),
            ("/disks/e", Some("/kubelet/plugins/disks/e")),
        ] {
            let mount = table.at(Path::new(point)).unwrap();
            let found = kubelet_mount(mount, kubelet.mounts(&table), &system);
            assert_eq!(found, user.map(Path::new), "{point}");
        }
    }
}
