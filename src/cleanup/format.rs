//! Makes the filesystem of a disk, and mounts it.
//!
//! The mark of the disk tells how far it has come: `pending` until its filesystem is made and mounted, `wiping` while it is
//! made again, `free` once it is mounted. Each step can be repeated after a crash or a reboot. What is on a disk is lost
//! only while its mark is `wiping`.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sys_mount::{FilesystemType, Mount, MountFlags, UnmountFlags, unmount};
use tokio::time::sleep;

use crate::config::Devices;
use crate::crash::crash_point;
use crate::host::access::Access;
use crate::host::boot::BootTime;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::identity;
use crate::host::lock::VolumeLock;
use crate::host::mark::{Mark, MarkState};
use crate::host::mounts::{DeviceNumber, MountTable};
use crate::host::sysfs::{DeviceFacts, Sysfs};
use crate::host::with_path;
use crate::inventory::made_on;
use crate::plan::{DiskOrder, Intake};
use crate::types::{FsType, MountPath, VolumeMode};
use crate::wipe::device::Disk;
use crate::wipe::progress::Progress;
use crate::wipe::{command, superblock};

use super::Failure;
use super::blocking::blocking;
use super::mark::Marker;
use super::volume::{OpenVolume, Opened, reopen};

/// How often, and how long each time, a filesystem that is in use is waited for: a scan has it open for a moment.
const UNMOUNT_ATTEMPTS: u32 = 20;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// A disk that is locked until its filesystem is mounted.
struct Target {
    /// The device node.
    node: MountPath,
    number: DeviceNumber,
    size: u64,
    lock: VolumeLock,
    /// What the mark of the disk is found by.
    marker: Marker,
    mark: Mark,
    rule: Devices,
    /// The UUID of the filesystem that is made.
    uuid: String,
    entry: MountPath,
}

/// Makes the filesystem of a disk that is taken in, unless it is complete, and mounts it.
///
/// # Errors
/// What failed. A later order continues.
pub(super) async fn take_in(disk: OpenVolume, order: &DiskOrder) -> Result<(), Failure> {
    let (class, how) = (&order.volume.class, order.how);
    let (entry, mark) = (order.volume.mount_path.clone(), order.mark.clone());
    let rule = class.devices.clone().ok_or_else(not_a_disk)?;
    let OpenVolume { volume, lock, marker, .. } = disk;
    let Opened::Device(device) = volume else {
        return Err(not_a_disk());
    };
    let prepare = move || {
        let target = Target::new(&device, lock, marker, mark, rule, entry)?;
        let found = made_on(&device, &Sysfs::default()).map_err(Failure::new)?;
        Ok((Arc::new(target), device, found))
    };
    let (target, device, found) = blocking(false, prepare).await?;
    if let Some(found) = found {
        drop(device);
        return target.mount(found).await;
    }
    let may_reset = how == Intake::Remake;
    target.make(device, may_reset, &Progress::default()).await
}

/// Makes the filesystem of a volume again, and mounts it. Returns its new lock.
///
/// # Errors
/// What failed. The volume is in use, or its disk is taken in again while its PV is Terminating.
pub(super) async fn reformat(
    root: FsRoot,
    lock: VolumeLock,
    marker: &Marker,
    rule: Devices,
    mark: Mark,
    progress: &Progress,
) -> Result<VolumeLock, Failure> {
    let of_volume = marker.clone();
    let prepare = move || {
        rule.filesystem.map_or(Ok(()), FsType::find_program)?;
        let mounted = FsType::named(&root.mount().fs_type).ok_or_else(not_a_disk)?;
        let sysfs = Sysfs::default();
        let facts = sysfs.device(root.mount().device)?;
        let node = node_of(&facts, &sysfs)?;
        let device = Device::open(node.as_path(), Access::Probe)?;
        let of_disk = Marker {
            kind: VolumeMode::Block,
            identity: identity::of_device(&device, of_volume.path.as_path(), &sysfs)?,
            ..of_volume.clone()
        };
        let disk_lock = VolumeLock::acquire(device.file(), node.as_path(), Access::Clean)?;
        let of_disk_mark = Mark {
            cluster: mark.cluster.clone(),
            class: mark.class.clone(),
            identity_hash: of_disk.identity.hash(),
            data_left: Some(false),
            written_at: mark.written_at,
            boot_time: Some(BootTime::now()?),
            ..Mark::default()
        };
        let entry = of_volume.path.clone();
        let target = Target::new(&device, disk_lock, of_disk, of_disk_mark, rule, entry)?;
        if target.number != root.mount().device {
            return Err(Failure::new(format!("{} is another disk now", target.node)));
        }
        of_volume.keep(&lock, &mark)?;
        // After a crash, the disk is mounted again.
        target.write_mark(MarkState::Pending)?;
        // Until then the filesystem is in use.
        drop((root, lock));
        Ok((Arc::new(target), mounted))
    };
    let (target, mounted) = blocking(false, prepare).await?;
    if let Err(failure) = target.unmount().await {
        let target = Arc::clone(&target);
        blocking(false, move || target.write_mark(MarkState::Free)).await?;
        return Err(failure);
    }
    let device = match target.open_alone(progress).await {
        Ok(device) => device,
        Err(failure) => {
            // Nothing has changed.
            target.mount(mounted).await?;
            return Err(failure);
        }
    };
    target.make(device, true, progress).await?;
    let (path, identity) = (marker.path.clone(), marker.identity.clone());
    let lock = move || {
        let root = FsRoot::open(path.as_path(), &MountTable::read()?)?;
        if identity::of_filesystem(&root, &Sysfs::default())? != identity {
            return Err(Failure::new(format!("{path} has another filesystem now")));
        }
        Ok(VolumeLock::acquire(root.as_fd(), path.as_path(), Access::Clean)?)
    };
    blocking(false, lock).await
}

/// The device node of a disk.
fn node_of(facts: &DeviceFacts, sysfs: &Sysfs) -> Result<MountPath, Failure> {
    let node = sysfs.node(facts).display().to_string();
    node.parse().map_err(|why: &str| Failure::new(why))
}

fn not_a_disk() -> Failure {
    Failure::new("it is no disk with a filesystem of its class; this is a bug")
}

impl Target {
    fn new(
        device: &Device,
        lock: VolumeLock,
        marker: Marker,
        mark: Mark,
        rule: Devices,
        entry: MountPath,
    ) -> Result<Self, Failure> {
        let sysfs = Sysfs::default();
        let facts = sysfs.device(device.number())?;
        Ok(Self {
            node: node_of(&facts, &sysfs)?,
            number: facts.number,
            size: device.size(),
            lock,
            marker,
            mark,
            rule,
            uuid: identity::uuid_to_make(&facts)?.ok_or_else(not_a_disk)?,
            entry,
        })
    }

    /// Writes the mark of the disk. Blocking.
    fn write_mark(&self, state: MarkState) -> Result<(), Failure> {
        let mark = Mark { state, ..self.mark.clone() };
        Ok(self.marker.write(&self.lock, &mark)?)
    }

    /// Makes the filesystem on a disk that is open exclusively, and mounts it. Only a blank disk is not reset first.
    async fn make(
        self: &Arc<Self>,
        device: Device,
        may_reset: bool,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let fs_type = self.rule.filesystem.ok_or_else(not_a_disk)?;
        fs_type.find_program()?;
        let (this, of_thread) = (Arc::clone(self), progress.clone());
        let reset = move || {
            let disk = Disk::new(device.file(), device.size(), &of_thread);
            if may_reset {
                crash_point("reformat");
                this.write_mark(MarkState::Wiping)?;
                disk.quick_reset()?;
            } else {
                this.write_mark(MarkState::Pending)?;
            }
            disk.check_reset()?;
            // mkfs opens it exclusively.
            drop(device);
            Ok(())
        };
        blocking(true, reset).await?;
        crash_point("make-filesystem");
        let words = fs_type.mkfs_words(&self.uuid, self.node.as_path());
        let log = |line: &str| tracing::info!(device = %self.node, "{}: {line}", words[0]);
        let (ourselves, lock) = (Path::new("/proc/self/exe"), self.lock.as_fd());
        command::run(ourselves, &words, &[], lock, log, progress).await?;
        let this = Arc::clone(self);
        // The lock is on the disk itself, to which the path of mkfs has to have led.
        let check = move || {
            let file = File::from(this.lock.as_fd().try_clone_to_owned()?);
            let progress = Progress::default();
            match superblock::find(Disk::new(&file, this.size, &progress))? {
                // From now on, it has nothing that is to be lost.
                Some((made, uuid)) if made == fs_type && uuid == this.uuid => {
                    this.write_mark(MarkState::Pending)
                }
                found => Err(Failure::new(format!(
                    "{} has made no filesystem: {found:?}",
                    fs_type.mkfs()
                ))),
            }
        };
        blocking(false, check).await?;
        self.mount(fs_type).await
    }

    /// Mounts the filesystem at its entry, and lets the mark of the disk say so.
    async fn mount(self: &Arc<Self>, fs_type: FsType) -> Result<(), Failure> {
        let this = Arc::clone(self);
        let mount = move || {
            let (node, entry) = (&this.node, &this.entry);
            let path = entry.as_path();
            match fs::create_dir(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made.map_err(|error| with_path(&error, path))?,
            }
            if MountTable::read()?.at(&fs::canonicalize(path)?).is_some() {
                let text = format!("something is mounted on {entry}; unmount it");
                return Err(Failure::new(text));
            }
            if fs::read_dir(path)?.next().is_some() {
                return Err(Failure::new(format!(
                    "{entry} has files that the mount would hide; empty it"
                )));
            }
            crash_point("mount");
            let (flags, data) = options(&this.rule);
            let builder = Mount::builder().fstype(FilesystemType::from(fs_type.as_str()));
            let mounted = builder.flags(flags).data(&data).mount(node.as_path(), path);
            mounted.map_err(|error| {
                Failure::new(format!("{node} cannot be mounted on {entry} ({error}): see mountOptions, and the kernel log; if it is damaged, its PV Terminating and its data not needed, zero the disk (blkdiscard, or dd if=/dev/zero), and it is made again"))
            })?;
            let root = FsRoot::open(path, &MountTable::read()?)?;
            if root.mount().device != this.number {
                return Err(Failure::new(format!(
                    "{node} became another disk, which is mounted on {entry}; unmount it"
                )));
            }
            drop(root);
            this.write_mark(MarkState::Free)
        };
        blocking(false, mount).await
    }

    async fn unmount(&self) -> Result<(), Failure> {
        let mut attempt = 1;
        loop {
            let entry = self.entry.clone();
            // The crate's NOFOLLOW is the flag of open(2), which umount2(2) refuses. The entry was opened without a link.
            let work = move || Ok(unmount(entry.as_path(), UnmountFlags::empty()));
            match blocking(false, work).await? {
                Ok(()) => return Ok(()),
                Err(error) if attempt == UNMOUNT_ATTEMPTS => {
                    let entry = &self.entry;
                    return Err(Failure::new(format!(
                        "{entry} cannot be unmounted ({error}); see what has it open: fuser --verbose --mount {entry}"
                    )));
                }
                Err(_) => sleep(UNMOUNT_PAUSE).await,
            }
            attempt += 1;
        }
    }

    /// Opens the disk, which has no other user: no mount in another mount namespace, either.
    async fn open_alone(&self, progress: &Progress) -> Result<Device, Failure> {
        let opened = reopen(&self.node, progress).await;
        let device = opened.map_err(|obstacle| Failure::new(obstacle.to_string()))?;
        if device.number() == self.number {
            return Ok(device);
        }
        Err(Failure::new(format!("{} is another disk now", self.node)))
    }
}

/// The mount options that are flags of mount(2), and those of the filesystem.
fn options(rule: &Devices) -> (MountFlags, String) {
    let (mut flags, mut data) = (MountFlags::empty(), Vec::new());
    for option in &rule.mount_options {
        match &**option {
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "nodev" => flags |= MountFlags::NODEV,
            "nosuid" => flags |= MountFlags::NOSUID,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}
