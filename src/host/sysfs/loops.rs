//! Loop devices and the files behind them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{DeviceFacts, Sysfs, device_number, name};
use crate::host::device::Device;
use crate::host::ioctl::{self, LoopBacking};
use crate::host::mounts::{DeviceNumber, without_newline};

/// A loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Its kernel name, such as `loop0`.
    pub name: String,
    /// The path of its file in the mount namespace of the process that created the device.
    pub file: PathBuf,
    /// The file by its inode; `None` where the device cannot be opened.
    pub backing: Option<LoopBacking>,
    /// The block device behind it, if it is not a file.
    pub over: Option<DeviceNumber>,
}

impl Loop {
    /// The `st_dev` of the file; `None` where the device cannot be opened.
    #[must_use]
    pub fn lies_on(&self) -> Option<DeviceNumber> {
        let backing = self.backing.as_ref()?;
        Some(DeviceNumber::from_rdev(backing.dev))
    }
}

impl Sysfs {
    /// The names of the loop devices over one of these devices. The kernel does not list them as holders,
    /// and they do not make an exclusive open fail.
    ///
    /// # Errors
    /// When `/sys` is not there.
    pub fn loops_over(&self, devices: &BTreeSet<DeviceNumber>) -> io::Result<Vec<String>> {
        let is_over = |it: &&Loop| it.over.is_some_and(|below| devices.contains(&below));
        let loops = self.loops()?.iter().filter(is_over);
        Ok(loops.map(|it| it.name.clone()).collect())
    }

    /// The block devices behind the loop devices among these. A loop device does not claim what is behind it.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` is not there.
    pub fn behind_loops(&self, devices: &BTreeSet<DeviceNumber>) -> io::Result<Vec<DeviceFacts>> {
        let mut behind = Vec::new();
        for number in devices {
            let device = self.device(*number)?;
            if let Some(over) = self.loop_of(&device)?.and_then(|it| it.over) {
                behind.push(self.device(over)?);
            }
        }
        Ok(behind)
    }

    /// The loop device that a device is, if it is one.
    pub(super) fn loop_of(&self, device: &DeviceFacts) -> io::Result<Option<&Loop>> {
        Ok(self.loops()?.iter().find(|it| it.name == device.name))
    }

    /// The loop devices that are in use, each with its file.
    ///
    /// # Errors
    /// When `/sys` is not there.
    pub fn loops(&self) -> io::Result<&[Loop]> {
        if let Some(loops) = self.loops.get() {
            return Ok(loops);
        }
        let with_file = |dir: PathBuf| {
            let file = backing_file(&dir)?;
            let backing = self.loop_backing(&dir);
            let over = self.device_below(&file, backing.as_ref());
            Some(Loop {
                name: name(&dir),
                file,
                backing,
                over,
            })
        };
        let loops = self.block_dirs()?.filter_map(with_file).collect();
        Ok(self.loops.get_or_init(|| loops))
    }

    /// The block device behind a loop device (`losetup /dev/loop0 /dev/sdb`), reported by its driver. `/sys` has
    /// only the path by which it was opened, and the kubelet opens devices by paths of its own. That path is
    /// used only where the loop device cannot be opened, and only if it is a kernel name.
    pub(super) fn device_below(
        &self,
        file: &Path,
        backing: Option<&LoopBacking>,
    ) -> Option<DeviceNumber> {
        if let Some(backing) = backing {
            return (backing.rdev != 0).then(|| DeviceNumber::from_rdev(backing.rdev));
        }
        let name = file.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
        device_number(&self.root.join("class/block").join(name)).ok()
    }

    pub(super) fn loop_backing(&self, dir: &Path) -> Option<LoopBacking> {
        let device = Device::open_readonly(&self.dev.join(name(dir))).ok()?;
        if device.number() != device_number(dir).ok()? {
            return None;
        }
        ioctl::loop_backing(device.file()).ok()?
    }
}

/// The path of the file behind a loop device, by the device's directory in `/sys`.
pub(super) fn backing_file(dir: &Path) -> Option<PathBuf> {
    let bytes = fs::read(dir.join("loop/backing_file")).ok()?;
    Some(without_newline(&bytes).into())
}
