//! Emulated disks: an image, where it is plugged in, and what is wrong with it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::run;

pub const MIB: u64 = 1 << 20;
/// What all [slow](Disk::slow) disks of a machine together write in a second.
pub const SLOW: u64 = 8 * MIB;
/// How many requests the [rotating](Disk::rotating) disks of a machine together read in a second.
pub const SEEKS: u32 = 100;
const BLOCK: usize = 4096;
const EIO: u32 = 5;

/// Where a disk is plugged in. What is plugged in at the same place later has the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A slot of the PCI bus, 16 and up.
    Nvme(u8),
    /// A logical unit of the SCSI controller.
    Scsi(u8),
}

impl Place {
    /// The PCI slot of the SCSI controller.
    pub const SCSI_SLOT: u8 = 5;

    /// udev's name for the disk that is there.
    pub fn path(self) -> PathBuf {
        let name = match self {
            Self::Nvme(slot) => format!("pci-0000:00:{slot:02x}.0-nvme-1"),
            Self::Scsi(unit) => format!("pci-0000:00:{:02x}.0-scsi-0:0:0:{unit}", Self::SCSI_SLOT),
        };
        Path::new("/dev/disk/by-path").join(name)
    }

    /// Offers whatever disk is there in a discovery directory; the volume's path.
    pub fn offer(self, dir: &Path) -> PathBuf {
        offer(self.path(), dir)
    }

    /// Offers one of its partitions.
    pub fn offer_partition(self, dir: &Path, number: u8) -> PathBuf {
        offer(format!("{}-part{number}", self.path().display()).into(), dir)
    }
}

fn offer(device: PathBuf, dir: &Path) -> PathBuf {
    let path = dir.join(device.file_name().unwrap());
    symlink(device, &path).unwrap();
    path
}

/// What fails at a bad sector.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Read,
    Write,
    /// The disk's own way to make zeros.
    Zero,
    Discard,
}

impl Fault {
    /// QEMU's word.
    fn iotype(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Zero => "write-zeroes",
            Self::Discard => "discard",
        }
    }
}

/// A disk: what is on it stays when it is pulled, or the machine loses its power.
#[derive(Clone, Debug)]
pub struct Disk {
    name: String,
    image: PathBuf,
    /// Options of QEMU's block device, beside the usual ones.
    backend: Value,
    /// A block driver between the disk and its image.
    filter: Option<Value>,
    /// Properties of the device, beside the usual ones.
    properties: Value,
}

impl Disk {
    /// A new disk; `name` is its serial number, too.
    pub fn new(dir: &Path, name: &str, size: u64) -> Self {
        let image = dir.join(format!("{name}.img"));
        File::create_new(&image).unwrap().set_len(size).unwrap();
        Self {
            name: name.to_owned(),
            image,
            backend: json!({ "discard": "unmap" }),
            filter: None,
            properties: json!({}),
        }
    }

    /// The same disk on a bad day: all such disks together write [`SLOW`] bytes in a second.
    pub fn slow(&self) -> Self {
        let filter = json!({ "driver": "throttle", "throttle-group": "slow" });
        Self { filter: Some(filter), ..self.clone() }
    }

    /// The same disk, which seeks before it reads.
    pub fn rotating(&self) -> Self {
        let filter = json!({ "driver": "throttle", "throttle-group": "rotating" });
        Self { filter: Some(filter), ..self.clone() }
    }

    /// The same disk with a sector at which something always fails. `offset` is in bytes.
    pub fn failing(&self, fault: Fault, offset: u64) -> Self {
        let filter = json!({ "driver": "blkdebug", "inject-error": [{
            "event": "none", "iotype": fault.iotype(), "sector": offset / 512, "errno": EIO,
        }] });
        Self { filter: Some(filter), ..self.clone() }
    }

    /// The same disk, which reports discards that it does not do.
    pub fn ignoring_discards(&self) -> Self {
        Self { backend: json!({ "discard": "ignore" }), ..self.clone() }
    }

    /// The same disk with sectors of so many bytes.
    pub fn with_sectors(mut self, size: u32) -> Self {
        self.properties["logical_block_size"] = json!(size);
        self.properties["physical_block_size"] = json!(size);
        self
    }

    /// The same disk with a world-wide name.
    pub fn with_wwn(mut self, number: u64) -> Self {
        self.properties["wwn"] = json!(number);
        self
    }

    /// The same disk as it is seen over another cable.
    pub fn by_another_path(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.properties["serial"] = json!(self.name);
        name.clone_into(&mut other.name);
        other
    }

    /// Makes partitions from an sfdisk script.
    pub fn partition(&self, script: &str) {
        let mut sfdisk = Command::new("sfdisk")
            .arg("--quiet")
            .arg(&self.image)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(sfdisk.wait().unwrap().success());
    }

    /// Makes a filesystem on it.
    pub fn format(&self, fs_type: &str) {
        let image = self.image.to_str().unwrap();
        run(&format!("mkfs.{fs_type}"), &["-q", image]);
    }

    /// The file behind it.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Its name in QEMU.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes a tenant's data over all of it.
    pub fn fill(&self) {
        let secret = format!("{}'s secret ", self.name);
        let block: Vec<u8> = secret.bytes().cycle().take(BLOCK).collect();
        let size = fs::metadata(&self.image).unwrap().len();
        let content = block.repeat(usize::try_from(size).unwrap() / BLOCK);
        let file = File::options().write(true).open(&self.image).unwrap();
        file.write_all_at(&content, 0).unwrap();
    }

    /// All that is on it.
    pub fn content(&self) -> Vec<u8> {
        fs::read(&self.image).unwrap()
    }

    /// Its first block, which is soon read.
    pub fn beginning(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let file = File::open(&self.image).unwrap();
        file.read_exact_at(&mut block, 0).unwrap();
        block
    }

    /// How much of it is not zero, in blocks of 4 KiB.
    pub fn left(&self) -> usize {
        let zeros = [0; BLOCK];
        let content = self.content();
        content.chunks(BLOCK).filter(|block| **block != zeros[..block.len()]).count()
    }

    /// Whether all of it is zero.
    pub fn is_zero(&self) -> bool {
        self.left() == 0
    }

    /// The block device, for `-blockdev` and `blockdev-add`.
    pub fn node(&self) -> Value {
        let mut image = json!({
            "driver": "raw",
            "file": { "driver": "file", "filename": self.image, "discard": "unmap", "locking": "off" },
        });
        merge(&mut image, &self.backend);
        let mut node = match &self.filter {
            Some(filter) => {
                let mut node = filter.clone();
                let below = if filter["driver"] == "blkdebug" { "image" } else { "file" };
                node[below] = image;
                node
            }
            None => image,
        };
        node["node-name"] = json!(self.name);
        node
    }

    /// The device, for `-device` and `device_add`.
    pub fn device(&self, place: Place) -> Value {
        let mut device = match place {
            Place::Nvme(slot) => {
                json!({ "driver": "nvme", "bus": "pci.0", "addr": format!("{slot:#x}") })
            }
            Place::Scsi(unit) => json!({
                "driver": "scsi-hd", "bus": "scsi.0", "lun": unit, "rotation_rate": 1,
            }),
        };
        merge(&mut device, &json!({ "id": id(self), "serial": self.name, "drive": self.name }));
        merge(&mut device, &self.properties);
        device
    }
}

/// The device's name in QEMU, which is not its block device's.
pub fn id(disk: &Disk) -> String {
    format!("disk-{}", disk.name)
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}
