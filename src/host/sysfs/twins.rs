//! Devices with the same bytes that the kernel does not relate: loop devices and what is behind them, multipath without
//! device-mapper.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DeviceFacts, Sysfs, device_number, name, number_in};
use crate::host::access::{Access, OpenError};
use crate::host::device::Device;
use crate::host::ioctl::{self, LoopBacking};
use crate::host::mounts::DeviceNumber;

/// The attribute that only a loop device with a file has.
const BACKING_FILE: &str = "loop/backing_file";

impl Sysfs {
    /// The names of the loop devices over one of these devices. The kernel does not list them as holders,
    /// and they do not make an exclusive open fail.
    ///
    /// # Errors
    /// When `/sys` does not answer.
    pub fn loops_over(&self, devices: &BTreeSet<DeviceNumber>) -> io::Result<Vec<String>> {
        let is_over = |it: &&Arc<DeviceFacts>| it.loop_over.is_some_and(|it| devices.contains(&it));
        let loops = self.loops()?.iter().filter(is_over);
        Ok(loops.map(|it| it.name.clone()).collect())
    }

    /// The loop devices that are in use: their names, and the facts about the files behind them. The others would cost
    /// some seventy system calls for each, in every scan.
    ///
    /// # Errors
    /// When `/sys` does not answer.
    pub fn loops(&self) -> io::Result<&[Arc<DeviceFacts>]> {
        self.list(&self.loops, |dir| {
            let name = name(dir);
            let mut device = DeviceFacts { name, ..DeviceFacts::default() };
            self.read_loop(dir, &mut device);
            Ok(Some(Arc::new(device)).filter(|it| it.loop_backing.is_some()))
        })
    }

    /// Adds the facts about the file behind a loop device, if the disk is one.
    pub(super) fn read_loop(&self, dir: &Path, disk: &mut DeviceFacts) {
        let Ok(bytes) = fs::read(dir.join(BACKING_FILE)) else {
            return;
        };
        let file = Path::new(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(&bytes)));
        disk.loop_backing = Some(file.to_owned());
        disk.loop_offset = number_in(&dir.join("loop/offset")).unwrap_or(0);
        disk.loop_inode = self.loop_inode(dir);
        // `/sys` has only the path by which the block device behind it was opened (`losetup /dev/loop0 /dev/sdb`),
        // and the kubelet opens devices by paths of its own. That path is used only where the driver cannot be
        // asked, and only if it is a kernel name.
        disk.loop_over = match disk.loop_inode {
            Some(LoopBacking { rdev: 0, .. }) => None,
            Some(LoopBacking { rdev, .. }) => Some(DeviceNumber::from_rdev(rdev)),
            None => {
                let name = file.strip_prefix("/dev").ok().and_then(Path::to_str);
                let name = name.map(|it| it.replace('/', "!"));
                name.and_then(|it| device_number(&self.root.join("class/block").join(it)).ok())
            }
        };
    }

    fn loop_inode(&self, dir: &Path) -> Option<LoopBacking> {
        let device = Device::open(&self.dev.join(name(dir)), Access::Probe).ok()?;
        if device.number() != device_number(dir).ok()? {
            return None;
        }
        ioctl::loop_backing(device.file()).ok()?
    }

    /// Other disks with the same bytes as one of the devices that a volume lies on: further paths to the disk
    /// without a multipath device over them, and loop devices over the same part of a file. The kernel does not
    /// relate them, so a user of one does not make an exclusive open of the other fail.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` does not answer.
    pub fn twins(&self, below: &BTreeSet<DeviceNumber>) -> io::Result<Vec<Arc<DeviceFacts>>> {
        let below = below.iter().map(|number| self.device(*number));
        let mut disks = below.collect::<io::Result<Vec<_>>>()?;
        disks.retain(|it| it.disk == it.number);
        // The volume's own devices, and others on the same disks, are not second paths. An empty disk has no bytes to
        // share.
        let is_second = |other: &&Arc<DeviceFacts>| {
            let mut own = disks.iter().map(|disk| &disk.number);
            other.size != Some(0) && !own.any(|number| other.below.contains(number))
        };
        let has_same_bytes = |other: &&Arc<DeviceFacts>| {
            let mut disks = disks.iter();
            disks.any(|disk| is_same_disk(disk, other) || share_a_file(disk, other))
        };
        let disk = |dir: &Path| self.device(device_number(dir)?).map(Some);
        let disks_here = self.list(&self.disks, disk)?;
        let others = disks_here.iter().filter(is_second);
        Ok(others.filter(has_same_bytes).cloned().collect())
    }

    /// Its device node.
    pub fn node(&self, device: &DeviceFacts) -> PathBuf {
        self.dev.join(device.name.replace('!', "/"))
    }

    /// Whether a disk is claimed, in any mount namespace: by a mount of it or of a partition, swap, LVM, md,
    /// device-mapper, or another exclusive open.
    ///
    /// # Errors
    /// When the disk cannot be opened.
    pub fn is_claimed(&self, disk: &DeviceFacts) -> io::Result<bool> {
        let node = self.node(disk);
        match Device::open(&node, Access::Offer) {
            Ok(device) if device.number() == disk.number => Ok(false),
            Err(OpenError::InUse { .. }) => Ok(true),
            Ok(_) => Err(io::Error::other(format!("{} is another device", node.display()))),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// The names that begin a directory of a transport by which several machines can reach a disk.
const SHARED_TRANSPORTS: [&str; 5] =
    ["rport-", "session", "end_device-", "nvme-fabrics", "nvme-subsys"];

/// Whether several machines can reach the disk of a directory in `/sys/devices`.
pub(super) fn has_shared_transport(disk: &Path) -> bool {
    disk.iter().filter_map(OsStr::to_str).any(|part| {
        let mut transports = SHARED_TRANSPORTS.iter();
        transports.any(|transport| part.starts_with(transport))
    })
}

/// Whether a disk is behind a USB controller: its directory is below that of a bus, such as `usb1`.
pub(super) fn is_usb(dir: &Path) -> bool {
    let mut above = dir.iter().filter_map(OsStr::to_str);
    above.any(|it| it.strip_prefix("usb").is_some_and(|it| it.parse::<u8>().is_ok()))
}

/// Whether both are loop devices, over parts of one file that have bytes in common.
fn share_a_file(one: &DeviceFacts, other: &DeviceFacts) -> bool {
    let end = |it: &DeviceFacts| it.loop_offset.saturating_add(it.size.unwrap_or(u64::MAX));
    let is_same_file = match (&one.loop_inode, &other.loop_inode) {
        (Some(file), Some(other)) => file.is_same(other),
        // Without access to the devices: the paths may belong to two mount namespaces.
        (None, None) => false,
        _ => one.loop_backing == other.loop_backing,
    };
    is_same_file && one.loop_offset < end(other) && other.loop_offset < end(one)
}

/// Whether two disks have the same world-wide name. Serial numbers do not count: some machines give all disks
/// the same.
fn is_same_disk(one: &DeviceFacts, other: &DeviceFacts) -> bool {
    let of_serial = |wwid: &String| wwid.starts_with("serial.") || wwid.starts_with("udev.");
    let is_world_wide = one.wwid.as_ref().is_some_and(|wwid| !of_serial(wwid));
    is_world_wide && one.wwid == other.wwid && one.size == other.size
}
