//! What the provisioner does when it makes a filesystem again.
//!
//! Of the provisioner are the order of the steps (`cleanup::format`), how the disk is found and opened, the reset and
//! its check, the words of mkfs, the supervisor that runs it, and the check of what it made. The benchmark repeats
//! the order, because `cleanup::format` is private. It omits the gate, the locks, the identities,
//! the two writes of the mark, and the mount options of the class.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::filesystem::FsRoot;
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::host::sysfs::Sysfs;
use local_volume_provisioner::wipe::command;
use local_volume_provisioner::wipe::device::Disk;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::superblock;
use sys_mount::{FilesystemType, Mount, UnmountFlags, unmount};

use super::digits::short;

/// Makes the filesystem that is mounted on `entry` again, with its UUID, and mounts it. Returns the seconds of the steps.
pub fn reformat(entry: &Path, progress: &Progress) -> Result<String> {
    let root = FsRoot::open(entry, &MountTable::read()?)?;
    let (sysfs, number) = (Sysfs::default(), root.mount().device);
    let facts = sysfs.device(number)?;
    let node = sysfs.node(&facts);
    drop(root);
    let begun = Instant::now();
    unmount(entry, UnmountFlags::empty())?;
    let unmounted = Instant::now();

    let device = Device::open(&node, Access::Clean)?;
    let disk = Disk::new(device.file(), device.size(), progress);
    // The provisioner derives the UUID from the disk's serial number.
    let (fs_type, uuid) = superblock::find(disk)?.context("a filesystem that it makes")?;
    disk.quick_reset()?;
    disk.check_reset()?;
    let size = device.size();
    // mkfs opens it exclusively.
    drop(device);
    let reset = Instant::now();

    // The descriptor of the provisioner's lock.
    let file = File::open(&node)?;
    let words = fs_type.mkfs_words(&uuid, &node);
    let ourselves = Path::new("/proc/self/exe");
    let mkfs = command::run(ourselves, &words, &[], file.as_fd(), |_| (), progress);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(mkfs)?;
    let made = superblock::find(Disk::new(&file, size, progress))?;
    ensure!(made == Some((fs_type, uuid)), "it has made {made:?}");

    Mount::builder().fstype(FilesystemType::from(fs_type.as_str())).mount(&node, entry)?;
    let root = FsRoot::open(entry, &MountTable::read()?)?;
    ensure!(root.mount().device == number, "another disk is mounted");
    let steps = [unmounted - begun, reset - unmounted, reset.elapsed()];
    let seconds = steps.map(|step| short(step.as_secs_f64()));
    let [unmount, reset, mkfs] = seconds;
    Ok(format!("unmount {unmount} s, reset {reset} s, mkfs and mount {mkfs} s"))
}
