//! Facts about block devices from `/sys` and, where it is mounted, udev's database.
//!
//! `/sys` takes precedence: every container has it, and `/run/udev` only with a volume mount. An identity must not
//! depend on that mount.

mod twins;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::ioctl::LoopBacking;
use super::mounts::DeviceNumber;
use super::paths_in;

/// A snapshot of `/sys`: each device, and the list of loop devices, is read once, on first use. Reading a device
/// costs some seventy system calls.
///
/// A caller that is about to destroy data requires current facts, and creates a new snapshot.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    udev: PathBuf,
    dev: PathBuf,
    seen: Arc<Mutex<HashMap<DeviceNumber, Arc<DeviceFacts>>>>,
    loops: Arc<OnceLock<Vec<Arc<DeviceFacts>>>>,
    disks: Arc<OnceLock<Vec<Arc<DeviceFacts>>>>,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::new("/sys", "/run/udev/data")
    }
}

/// The facts about one block device. `None` is what the kernel does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
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
    /// The file behind a loop device, or behind the disk of a loop device's partition: its path in the mount
    /// namespace of the process that created the device.
    pub loop_backing: Option<PathBuf>,
    /// The device's offset in that file, in bytes.
    pub loop_offset: u64,
    /// That file by its inode; `None` where the device cannot be opened.
    pub loop_inode: Option<LoopBacking>,
    /// The block device behind a loop device, if it is not a file.
    pub loop_over: Option<DeviceNumber>,
    /// The *disk's* model, with `_` for blanks.
    pub model: Option<String>,
    /// Whether the *disk* or its medium can be removed while the machine runs, by USB or as a card.
    pub removable: bool,
    /// Whether the disk is rotational: then it is cleaned one volume at a time.
    pub rotational: bool,
    /// Whether the device is read-only.
    pub read_only: bool,
    /// Whether several machines can reach the *disk*: by FC, iSCSI, SAS or NVMe with several controllers.
    pub shared_transport: bool,
}

impl Sysfs {
    /// Reads other directories than `/sys` and `/run/udev/data`, with the device nodes of `/dev`.
    pub fn new(root: impl Into<PathBuf>, udev: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            udev: udev.into(),
            dev: "/dev".into(),
            seen: Arc::default(),
            loops: Arc::default(),
            disks: Arc::default(),
        }
    }

    /// The facts about a device.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` is not there.
    pub fn device(&self, number: DeviceNumber) -> io::Result<Arc<DeviceFacts>> {
        self.device_below(number, &[])
    }

    /// The facts about a device below these. The path of a loop device's file is from any mount namespace, so it may
    /// lead back to one of them.
    fn device_below(
        &self,
        number: DeviceNumber,
        above: &[DeviceNumber],
    ) -> io::Result<Arc<DeviceFacts>> {
        if let Some(facts) = self.seen.lock().get(&number) {
            return Ok(Arc::clone(facts));
        }
        // Not locked meanwhile: a read that hangs on a dead disk must not block other reads.
        let facts = Arc::new(self.read_device(number, above)?);
        self.seen.lock().insert(number, Arc::clone(&facts));
        Ok(facts)
    }

    fn read_device(&self, number: DeviceNumber, above: &[DeviceNumber]) -> io::Result<DeviceFacts> {
        let dir = self.dir(number)?;
        let disk = match disk_of(&dir) {
            disk if disk == dir => self.read_disk(number, disk, above)?,
            disk => DeviceFacts::clone(&*self.device_below(device_number(disk)?, above)?),
        };
        Ok(DeviceFacts {
            number,
            name: name(&dir),
            below: disk.below.iter().copied().chain([number]).collect(),
            holders: entries(&dir.join("holders"))?.iter().map(|it| name(it)).collect(),
            size: number_in(&dir.join("size")).map(|sectors| sectors.saturating_mul(512)),
            partition_uuid: self.partition_uuid(number, &dir),
            // Only a partition has one.
            partition_start: number_in(&dir.join("start")),
            read_only: number_in(&dir.join("ro")) == Some(1),
            ..disk
        })
    }

    /// The facts that a disk and its partitions have in common.
    fn read_disk(
        &self,
        number: DeviceNumber,
        dir: &Path,
        above: &[DeviceNumber],
    ) -> io::Result<DeviceFacts> {
        let udev = self.udev_properties(number);
        let mut disk = DeviceFacts {
            disk: number,
            wwid: wwid(dir, &udev),
            dm_uuid: first_word(dir, ["dm/uuid"]),
            md_uuid: md_uuid(dir, &udev),
            diskseq: number_in(&dir.join("diskseq")),
            rotational: number_in(&dir.join("queue/rotational")) == Some(1),
            model: first_word(dir, ["device/model", "device/name"]),
            removable: number_in(&dir.join("removable")) == Some(1) || twins::is_usb(dir),
            shared_transport: twins::has_shared_transport(dir),
            ..DeviceFacts::default()
        };
        self.read_loop(dir, &mut disk);
        let mut below = Vec::from_iter(disk.loop_over);
        for slave in entries(&dir.join("slaves"))? {
            match device_number(&slave) {
                Ok(slave) => below.push(slave),
                // A path of a multipath NVMe disk has no number, so it cannot be opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let above = [above, &[number]].concat();
        below.retain(|it| !above.contains(it));
        for number in below {
            disk.below.extend(&self.device_below(number, &above)?.below);
        }
        Ok(disk)
    }

    /// The devices of a mounted btrfs filesystem, by the name of its directory in `/sys/fs/btrfs`.
    ///
    /// # Errors
    /// When there is no such filesystem.
    pub fn btrfs_devices(&self, uuid: &str) -> io::Result<BTreeSet<DeviceNumber>> {
        let dir = self.root.join("fs/btrfs").join(uuid).join("devices");
        fs::read_dir(dir)?.map(|entry| device_number(&entry?.path())).collect()
    }

    /// The mounted btrfs filesystem on one of these devices, by the same name.
    pub fn btrfs_over(&self, devices: &BTreeSet<DeviceNumber>) -> Option<String> {
        let mounted = entries(&self.root.join("fs/btrfs")).ok()?;
        let is_on = |uuid: &String| {
            let members = self.btrfs_devices(uuid);
            members.is_ok_and(|members| !members.is_disjoint(devices))
        };
        mounted.iter().map(|dir| name(dir)).find(is_on)
    }

    /// The devices through which the device can be written: itself, and a disk's partitions or a partition's
    /// disk.
    ///
    /// # Errors
    /// When there is no such device, or `/sys` is not there.
    pub fn writable_through(&self, number: DeviceNumber) -> io::Result<BTreeSet<DeviceNumber>> {
        let dir = self.dir(number)?;
        let mut devices = BTreeSet::from([number, device_number(disk_of(&dir))?]);
        for part in entries(&dir)? {
            if is_partition(&part) {
                devices.insert(device_number(&part)?);
            }
        }
        Ok(devices)
    }

    /// What `read` finds in the directories of the disks, read at the first call.
    fn list<'a>(
        &self,
        cache: &'a OnceLock<Vec<Arc<DeviceFacts>>>,
        read: impl Fn(&Path) -> io::Result<Option<Arc<DeviceFacts>>>,
    ) -> io::Result<&'a [Arc<DeviceFacts>]> {
        if let Some(disks) = cache.get() {
            return Ok(disks);
        }
        let mut disks = Vec::new();
        for dir in &paths_in(&self.root.join("block"))? {
            match read(dir) {
                Ok(disk) => disks.extend(disk),
                // A path of a multipath NVMe disk has no number.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It was removed meanwhile.
                Err(_) if !dir.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(cache.get_or_init(|| disks))
    }

    /// The device's directory. A partition's is below its disk's.
    fn dir(&self, number: DeviceNumber) -> io::Result<PathBuf> {
        let link = self.root.join("dev/block").join(number.to_string());
        // Not canonicalized, which is a system call for each component.
        let target = fs::read_link(&link).map_err(|error| {
            let text = format!("device {number} in {}: {error}", link.display());
            io::Error::new(error.kind(), text)
        })?;
        let below = target.strip_prefix("../..").unwrap_or(&target);
        Ok(self.root.join(below))
    }

    fn partition_uuid(&self, number: DeviceNumber, dir: &Path) -> Option<String> {
        if !is_partition(dir) {
            return None;
        }
        let uuid = properties(&dir.join("uevent"), "").remove("PARTUUID");
        let uuid = uuid.or_else(|| self.udev_properties(number).remove("ID_PART_ENTRY_UUID"));
        uuid.map(|uuid| uuid.to_ascii_lowercase())
    }

    fn udev_properties(&self, number: DeviceNumber) -> Properties {
        properties(&self.udev.join(format!("b{number}")), "E:")
    }
}

type Properties = HashMap<String, String>;

/// The `KEY=VALUE` lines of a file that have a prefix. A missing file has none.
fn properties(file: &Path, prefix: &str) -> Properties {
    let bytes = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.filter_map(|(key, value)| Some((key.to_owned(), joined(value)?))).collect()
}

/// The directory of the disk that a device is or is a partition of. A partition's is below its disk's.
fn disk_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(disk) if is_partition(dir) => disk,
        _ => dir,
    }
}

fn is_partition(dir: &Path) -> bool {
    dir.join("partition").exists()
}

/// A disk's name, by the strongest source that has one.
fn wwid(disk: &Path, udev: &Properties) -> Option<String> {
    let of_udev = |key| udev.get(key).cloned();
    let wwid = first_word(disk, ["wwid", "device/wwid"])
        .or_else(|| of_udev("ID_WWN_WITH_EXTENSION"))
        .or_else(|| of_udev("ID_WWN"));
    // The kernel and udev spell the same number differently.
    let wwid = wwid.map(|wwid| match wwid.strip_prefix("0x") {
        Some(number) => format!("naa.{}", number.to_ascii_lowercase()),
        None => wwid,
    });
    let number = wwid.as_ref().map(|it| it.split_once('.').map_or(&**it, |it| it.1));
    if number.is_some_and(is_meaningful) {
        return wwid;
    }
    if let Some(serial) = serial(disk) {
        let model = first_word(disk, ["device/model", "device/name"]);
        return Some(format!("serial.{}.{serial}", model.unwrap_or_default()));
    }
    let serial = of_udev("ID_SERIAL").filter(|it| is_meaningful(it))?;
    Some(format!("udev.{serial}"))
}

/// An md array's UUID, which the kernel and udev punctuate differently.
fn md_uuid(disk: &Path, udev: &Properties) -> Option<String> {
    // udev also gives the array's UUID to some of its members.
    let array = disk.join("md").is_dir().then_some(disk)?;
    let uuids = [first_word(array, ["md/uuid"]), udev.get("MD_UUID").cloned()];
    let uuids = uuids.into_iter().flatten();
    let mut uuids = uuids.map(|uuid| uuid.replace([':', '-'], "").to_ascii_lowercase());
    // The kernel has zeros for an array whose metadata it does not write.
    uuids.find(|uuid| is_meaningful(uuid))
}

/// A disk's serial number: in its driver's attribute, or in SCSI's page 0x80.
fn serial(disk: &Path) -> Option<String> {
    first_word(disk, ["serial", "device/serial"])
        .or_else(|| {
            let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
            joined(&String::from_utf8_lossy(page.get(4..)?))
        })
        .filter(|serial| is_meaningful(serial))
}

/// Whether a serial number identifies a disk: cheap enclosures all have `0000`.
fn is_meaningful(serial: &str) -> bool {
    serial.chars().any(|character| !matches!(character, '0' | '_' | '.' | '-' | '\u{fffd}'))
}

/// A value without its padding: ATA and SCSI pad fields with blanks or NUL.
fn joined(text: &str) -> Option<String> {
    let blank = |character: char| character.is_ascii_whitespace() || character == '\0';
    let words: Vec<&str> = text.split(blank).filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join("_"))
}

/// The first of these files of a directory that holds a value.
fn first_word<const N: usize>(dir: &Path, files: [&str; N]) -> Option<String> {
    files.into_iter().find_map(|file| joined(&attribute(&dir.join(file)).ok()?))
}

fn number_in(file: &Path) -> Option<u64> {
    attribute(file).ok()?.trim().parse().ok()
}

/// An attribute of the kernel, which is no longer than a page, so that one read has it.
fn attribute(file: &Path) -> io::Result<String> {
    let mut page = [0; 4096];
    let length = File::open(file)?.read(&mut page)?;
    Ok(String::from_utf8_lossy(&page[..length]).into_owned())
}

fn device_number(dir: &Path) -> io::Result<DeviceNumber> {
    let text = attribute(&dir.join("dev"))?;
    let invalid = || io::Error::other(format!("{}/dev holds {text:?}", dir.display()));
    DeviceNumber::parse(&text).ok_or_else(invalid)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The sorted entries of a directory; none if it is not there.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match paths_in(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries,
    }
}

#[cfg(test)]
mod tests;
