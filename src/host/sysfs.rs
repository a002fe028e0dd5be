//! Facts about block devices from `/sys` and, where it is mounted, udev's database.
//!
//! `/sys` takes precedence: every container has it, and `/run/udev` only with a volume mount. An identity must not
//! depend on that mount.

mod loops;
mod twins;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use loops::Loop;
use loops::backing_file;

use super::mounts::DeviceNumber;

/// A snapshot of `/sys`: each device, and the list of loop devices, is read once, on first use. Reading a device
/// costs some seventy system calls.
///
/// A caller that is about to destroy data requires current facts, and creates a new snapshot.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    udev: PathBuf,
    dev: PathBuf,
    seen: Arc<Mutex<HashMap<DeviceNumber, DeviceFacts>>>,
    loops: Arc<OnceLock<Vec<Loop>>>,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::new("/sys", "/run/udev/data")
    }
}

/// The facts about one block device. `None` is what the kernel does not report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The device.
    pub number: DeviceNumber,
    /// Its kernel name, such as `sda1` or `dm-0`.
    pub name: String,
    /// The device itself, or the disk that it is a partition of.
    pub disk: DeviceNumber,
    /// All that it lies on: itself, its disk, device-mapper and md members and *their* disks, the
    /// device below a loop device.
    pub below: BTreeSet<DeviceNumber>,
    /// The kernel names of the device-mapper and md devices that lie directly on it.
    pub holders: Vec<String>,
    /// The *disk's* world-wide name, or its model and serial number. All paths to one disk have the same.
    pub wwid: Option<String>,
    /// The disk's serial number.
    pub serial: Option<String>,
    /// The disk's model.
    pub model: Option<String>,
    /// Device-mapper's name for the device; begins with `LVM-`, `mpath-`, `CRYPT-`.
    pub dm_uuid: Option<String>,
    /// The UUID of an md array.
    pub md_uuid: Option<String>,
    /// The *disk's* sequence number, unique until the next boot (Linux 5.15 and later).
    pub diskseq: Option<u64>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// The UUID in the partition table.
    pub partition_uuid: Option<String>,
    /// The first sector of a partition, in units of 512 bytes.
    pub partition_start: Option<u64>,
    /// The file behind a loop device, or behind the disk of a loop device's partition.
    pub loop_backing: Option<PathBuf>,
    /// The device's offset in that file, in bytes.
    pub loop_offset: u64,
    /// Whether the disk is rotational: then it is cleaned one volume at a time.
    pub rotational: bool,
    /// Whether the device is read-only.
    pub read_only: bool,
}

impl Sysfs {
    /// Reads other directories than `/sys` and `/run/udev/data`, with the device nodes of `/dev`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, udev: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            udev: udev.into(),
            dev: "/dev".into(),
            seen: Arc::default(),
            loops: Arc::default(),
        }
    }

    /// The facts about a device.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` is not there.
    pub fn device(&self, number: DeviceNumber) -> io::Result<DeviceFacts> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(facts) = seen().get(&number) {
            return Ok(facts.clone());
        }
        // Not locked meanwhile: a read that hangs on a dead disk must not block other reads.
        let facts = self.read_device(number)?;
        seen().insert(number, facts.clone());
        Ok(facts)
    }

    fn read_device(&self, number: DeviceNumber) -> io::Result<DeviceFacts> {
        let dir = self.dir(number)?;
        let is_partition = dir.join("partition").exists();
        let disk_dir = if is_partition {
            parent(&dir)?
        } else {
            dir.clone()
        };
        let disk = device_number(&disk_dir)?;
        let mut below = BTreeSet::new();
        self.collect_below(number, &mut below)?;
        let own = self.udev_properties(number);
        let of_disk = if is_partition {
            self.udev_properties(disk)
        } else {
            own.clone()
        };
        let serial = serial(&disk_dir);
        let model = ["device/model", "device/name"]
            .iter()
            .find_map(|at| word(&disk_dir.join(at)));
        Ok(DeviceFacts {
            number,
            name: name(&dir),
            disk,
            below,
            holders: names_in(&dir.join("holders")),
            wwid: wwid(&disk_dir, &of_disk, model.as_deref(), serial.as_deref()),
            serial,
            model,
            dm_uuid: word(&disk_dir.join("dm/uuid")),
            md_uuid: md_uuid(&disk_dir, &of_disk),
            diskseq: number_in(&disk_dir.join("diskseq")),
            size: number_in(&dir.join("size")).map(|sectors| sectors.saturating_mul(512)),
            partition_uuid: if is_partition {
                Properties::read(&dir.join("uevent"), "")
                    .get("PARTUUID")
                    .or_else(|| own.get("ID_PART_ENTRY_UUID"))
                    .map(|uuid| uuid.to_ascii_lowercase())
            } else {
                None
            },
            partition_start: is_partition
                .then(|| number_in(&dir.join("start")))
                .flatten(),
            loop_backing: backing_file(&disk_dir),
            loop_offset: number_in(&disk_dir.join("loop/offset")).unwrap_or(0),
            rotational: number_in(&disk_dir.join("queue/rotational")) == Some(1),
            read_only: number_in(&dir.join("ro")) == Some(1),
        })
    }

    /// The devices of a mounted btrfs filesystem, by the name of its directory in `/sys/fs/btrfs`.
    ///
    /// # Errors
    /// When there is no such filesystem.
    pub fn btrfs_devices(&self, uuid: &str) -> io::Result<BTreeSet<DeviceNumber>> {
        let dir = self.root.join("fs/btrfs").join(uuid).join("devices");
        fs::read_dir(dir)?
            .map(|entry| device_number(&entry?.path()))
            .collect()
    }

    /// The UUID of the mounted btrfs filesystem that one of the devices belongs to.
    #[must_use]
    pub fn btrfs_over(&self, devices: &BTreeSet<DeviceNumber>) -> Option<String> {
        let lies_on_one = |uuid: &String| {
            let members = self.btrfs_devices(uuid);
            members.is_ok_and(|members| !members.is_disjoint(devices))
        };
        names_in(&self.root.join("fs/btrfs"))
            .into_iter()
            .find(lies_on_one)
    }

    /// The devices through which the device can be written: itself, and a disk's partitions or a partition's
    /// disk.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` is not there.
    pub fn writable_through(&self, number: DeviceNumber) -> io::Result<BTreeSet<DeviceNumber>> {
        let dir = self.dir(number)?;
        let mut devices = BTreeSet::from([number]);
        if dir.join("partition").exists() {
            devices.insert(device_number(&parent(&dir)?)?);
        }
        for name in names_in(&dir) {
            let part = dir.join(name);
            if part.join("partition").exists() {
                devices.insert(device_number(&part)?);
            }
        }
        Ok(devices)
    }

    fn block_dirs(&self) -> io::Result<impl Iterator<Item = PathBuf>> {
        let entries = fs::read_dir(self.root.join("block"))?;
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())))
    }

    /// The device's directory. A partition's is below its disk's.
    fn dir(&self, number: DeviceNumber) -> io::Result<PathBuf> {
        let link = self.root.join("dev/block").join(number.to_string());
        fs::canonicalize(&link).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("device {number} in {}: {error}", link.display()),
            )
        })
    }

    fn collect_below(
        &self,
        number: DeviceNumber,
        below: &mut BTreeSet<DeviceNumber>,
    ) -> io::Result<()> {
        let mut queue = vec![number];
        while let Some(number) = queue.pop() {
            if !below.insert(number) {
                continue;
            }
            let dir = self.dir(number)?;
            if dir.join("partition").exists() {
                queue.push(device_number(&parent(&dir)?)?);
            }
            let slaves = dir.join("slaves");
            for slave in names_in(&slaves) {
                match device_number(&slaves.join(slave)) {
                    Ok(number) => queue.push(number),
                    // A path of a multipath NVMe disk has no number, so it cannot be opened.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(file) = backing_file(&dir) {
                queue.extend(self.device_below(&file, self.loop_backing(&dir).as_ref()));
            }
        }
        Ok(())
    }

    fn udev_properties(&self, number: DeviceNumber) -> Properties {
        Properties::read(&self.udev.join(format!("b{number}")), "E:")
    }
}

/// `KEY=VALUE` lines.
#[derive(Clone)]
struct Properties {
    text: String,
    prefix: &'static str,
}

impl Properties {
    /// A missing file has no properties.
    fn read(file: &Path, prefix: &'static str) -> Self {
        let bytes = fs::read(file).unwrap_or_default();
        Self {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            prefix,
        }
    }

    fn get(&self, key: &str) -> Option<String> {
        self.text
            .lines()
            .find_map(|line| {
                line.strip_prefix(self.prefix)?
                    .strip_prefix(key)?
                    .strip_prefix('=')
            })
            .and_then(joined)
    }
}

fn wwid(
    disk: &Path,
    udev: &Properties,
    model: Option<&str>,
    serial: Option<&str>,
) -> Option<String> {
    ["wwid", "device/wwid"]
        .iter()
        .find_map(|at| word(&disk.join(at)))
        .or_else(|| udev.get("ID_WWN_WITH_EXTENSION"))
        .or_else(|| udev.get("ID_WWN"))
        // The kernel and udev spell the same number differently.
        .map(|wwid| match wwid.strip_prefix("0x") {
            Some(number) => format!("naa.{}", number.to_ascii_lowercase()),
            None => wwid,
        })
        .filter(|wwid| {
            wwid.split_once('.')
                .is_none_or(|(_, number)| is_meaningful(number))
        })
        .or_else(|| Some(["serial", model.unwrap_or(""), serial?].join(".")))
        .or_else(|| {
            Some(format!(
                "udev.{}",
                udev.get("ID_SERIAL").filter(|it| is_meaningful(it))?
            ))
        })
}

/// An md array's UUID, which the kernel and udev punctuate differently.
fn md_uuid(disk: &Path, udev: &Properties) -> Option<String> {
    // udev also gives the array's UUID to some of its members.
    let array = disk.join("md").is_dir().then_some(disk)?;
    let uuid = word(&array.join("md/uuid")).or_else(|| udev.get("MD_UUID"))?;
    Some(uuid.replace([':', '-'], "").to_ascii_lowercase())
}

/// A disk's serial number: in its driver's attribute, or in SCSI's page 0x80.
fn serial(disk: &Path) -> Option<String> {
    ["serial", "device/serial"]
        .iter()
        .find_map(|at| word(&disk.join(at)))
        .or_else(|| {
            let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
            joined(&String::from_utf8_lossy(page.get(4..)?))
        })
        .filter(|serial| is_meaningful(serial))
}

/// Whether a serial number identifies a disk: cheap enclosures all have `0000`.
fn is_meaningful(serial: &str) -> bool {
    serial
        .chars()
        .any(|character| !matches!(character, '0' | '_' | '.' | '-' | '\u{fffd}'))
}

/// A value without its padding: ATA and SCSI pad fields with blanks or NUL.
fn joined(text: &str) -> Option<String> {
    let blank = |character: char| character.is_ascii_whitespace() || character == '\0';
    let words: Vec<&str> = text.split(blank).filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join("_"))
}

fn word(file: &Path) -> Option<String> {
    joined(&String::from_utf8_lossy(&fs::read(file).ok()?))
}

fn number_in(file: &Path) -> Option<u64> {
    word(file)?.parse().ok()
}

fn device_number(dir: &Path) -> io::Result<DeviceNumber> {
    let text = fs::read_to_string(dir.join("dev"))?;
    DeviceNumber::parse(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}/dev holds {text:?}", dir.display()),
        )
    })
}

fn parent(dir: &Path) -> io::Result<PathBuf> {
    dir.parent()
        .map(Path::to_owned)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn name(dir: &Path) -> String {
    dir.file_name()
        .unwrap_or(OsStr::from_bytes(b"?"))
        .to_string_lossy()
        .into_owned()
}

/// The sorted names in a directory; none if it is not there.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| name(&entry.path())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
