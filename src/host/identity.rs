//! The identity of a volume: a text that is stable as long as the storage is the same.
//!
//! `v1:` and `key=value` fields, sorted and separated by commas. Values are percent-encoded where
//! they hold `,`, `=`, `%` or anything but printable ASCII.
//!
//! | fields | meaning |
//! |---|---|
//! | `fs`, `root`, `uuid` | a filesystem volume: type, directory within the filesystem, UUID |
//! | `on` | the disk below the filesystem, itself as fields: distinguishes clones with one UUID |
//! | `fs`, `path`, `root` | a filesystem without a UUID, or whose UUID the kernel does not report: *weak* |
//! | `wwid` | a disk |
//! | `start`, `partuuid` | a partition: first sector, UUID in the partition table |
//! | `dm`, `md` | a device-mapper device or md array, by its UUID |
//! | `loop`, `offset` | a loop device: file, inode and offset in the file |
//! | `boot`, `seq`, `size`, `start`, `link` | a device without any of these: *weak* |
//!
//! A filesystem without a UUID also has `on`. If the disk below it has no name either, it has the fields of a weak
//! device.
//!
//! Mount ids, device numbers and device names are never part of it: they change at a reboot. Data that a pod or the
//! kubelet writes to a device does not change the device's identity.

mod sharing;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use super::device::Device;
use super::filesystem::FsRoot;
use super::sysfs::{DeviceFacts, Sysfs};
use super::{fs_uuid, ioctl};

pub use sharing::may_share;

const VERSION: &str = "v1:";

/// The bytes of a value that are percent-encoded, besides those that are not ASCII.
const RESERVED: &AsciiSet = &CONTROLS.add(b',').add(b'=').add(b'%');

/// Fields that identify storage: if both identities have one with equal values, they may be the same.
const IDENTIFYING: [&str; 8] = ["dm", "loop", "md", "on", "partuuid", "path", "uuid", "wwid"];

/// Fields of a weak device that change at a reboot.
const BOOT_FIELDS: [&str; 2] = ["boot", "seq"];

/// An observed identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The canonical text.
    pub text: String,
    /// Whether other storage can have the same. A weak identity must not be compared with another volume's.
    pub weak: bool,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How an observed identity relates to a recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The same storage.
    Same,
    /// Other storage.
    Different,
    /// Unknown: cleaning requires consent. See [`only_rebooted`].
    Unknown,
}

/// Compares the identity recorded on a PV with the observed one.
#[must_use]
pub fn compare(recorded: &str, observed: &Identity) -> Match {
    if recorded == observed.text && Fields::parse(recorded).is_some() {
        return Match::Same;
    }
    let (Some(then), Some(now)) = (Fields::parse(recorded), Fields::parse(&observed.text)) else {
        return Match::Unknown;
    };
    // `seq` is unique within one boot; the next boot starts counting again.
    let rebooted = then.0.get("boot") != now.0.get("boot");
    let may_change = |key| key == "boot" || (rebooted && key == "seq");
    if then
        .shared(&now)
        .any(|(key, then, now)| then != now && !may_change(key))
    {
        return Match::Different;
    }
    let same_on_disk = ["start", "wwid"]
        .iter()
        .all(|key| then.has(key) && now.has(key));
    if same_on_disk && then.without(&["partuuid"]) == now.without(&["partuuid"]) {
        // Old kernels without udev do not show a partition's UUID; disk and first sector suffice.
        return Match::Same;
    }
    let has_uuid_now = then.has("on") && then.has("path") && now.has("uuid");
    if has_uuid_now && then.without(&["path"]) == now.without(&["uuid"]) {
        // A newer kernel reports the UUID. The disk below sufficed before, and still does.
        return Match::Same;
    }
    // A filesystem on a weak device can be any of its type after a reboot.
    let identifies = |key| IDENTIFYING.contains(&key) || (key == "fs" && then.has("boot"));
    let (then_keys, now_keys) = (then.without(&["seq"]), now.without(&["seq"]));
    if then_keys.0.keys().eq(now_keys.0.keys())
        || then.shared(&now).any(|(key, ..)| identifies(key))
    {
        Match::Unknown
    } else {
        Match::Different
    }
}

/// Whether the only difference is that a weak device was recorded before the last reboot, which is all that
/// `weakIdentity: Accept` accepts.
#[must_use]
pub fn only_rebooted(recorded: &str, observed: &Identity) -> bool {
    let Some((then, now)) = Fields::parse(recorded).zip(Fields::parse(&observed.text)) else {
        return false;
    };
    let boots = then.0.get("boot").zip(now.0.get("boot"));
    boots.is_some_and(|(then, now)| then != now)
        && then.without(&BOOT_FIELDS) == now.without(&BOOT_FIELDS)
}

/// The identity of a filesystem volume.
///
/// # Errors
/// When filesystem or `/sys` do not answer.
pub fn of_filesystem(root: &FsRoot, sysfs: &Sysfs) -> io::Result<Identity> {
    let mut fields = Fields::default();
    fields.set("fs", &root.mount().fs_type);
    fields.set("root", &root.mount().root);
    let uuid = fs_uuid::on_disk(root.as_fd(), &root.mount().fs_type)?;
    match &uuid {
        Some(uuid) => fields.set("uuid", uuid),
        None => fields.set("path", root.path()),
    }
    if let Some(facts) = device_below(root, sysfs)? {
        let below = disk_fields(&facts);
        if !below.is_empty() {
            fields.set("on", below.to_string());
        } else if uuid.is_none() {
            fields.0.extend(weak_fields(&facts, facts.size)?.0);
        }
    }
    Ok(Identity {
        text: fields.versioned(),
        weak: uuid.is_none(),
    })
}

/// The identity of a device. `path` is where it is offered.
///
/// # Errors
/// When device or `/sys` do not answer.
pub fn of_device(device: &Device, path: &Path, sysfs: &Sysfs) -> io::Result<Identity> {
    let facts = sysfs.device(device.number())?;
    let inode = match facts.loop_backing {
        Some(_) => ioctl::loop_backing(device.file())?.map(|backing| backing.inode),
        None => None,
    };
    let mut fields = device_fields(&facts, inode);
    let weak = fields.is_empty();
    if weak {
        fields = weak_fields(&facts, Some(device.size()))?;
        if let Ok(link) = std::fs::read_link(path) {
            fields.set("link", link);
        }
    }
    Ok(Identity {
        text: fields.versioned(),
        weak,
    })
}

/// The only device below a filesystem. A btrfs of several has none: its set of disks can change.
fn device_below(root: &FsRoot, sysfs: &Sysfs) -> io::Result<Option<DeviceFacts>> {
    let devices = super::footprint::devices_of(root, sysfs)?;
    match (devices.first(), devices.len()) {
        (Some(number), 1) => sysfs.device(*number).map(Some),
        _ => Ok(None),
    }
}

/// The identifying fields of a device; empty if it has none.
fn device_fields(facts: &DeviceFacts, loop_inode: Option<u64>) -> Fields {
    let mut fields = disk_fields(facts);
    if let Some((file, inode)) = fields.0.get_mut("loop").zip(loop_inode) {
        file.extend(format!(":{inode}").into_bytes());
    }
    if let Some(uuid) = &facts.partition_uuid {
        fields.set("partuuid", uuid);
    }
    fields
}

/// The identifying fields that every kernel shows to every container.
fn disk_fields(facts: &DeviceFacts) -> Fields {
    let mut fields = Fields::default();
    if let Some(wwid) = &facts.wwid {
        fields.set("wwid", wwid);
    } else if let Some(uuid) = &facts.dm_uuid {
        fields.set("dm", uuid);
    } else if let Some(uuid) = &facts.md_uuid {
        fields.set("md", uuid);
    } else if let Some(file) = &facts.loop_backing {
        fields.set("loop", file);
        fields.set_number("offset", Some(facts.loop_offset).filter(|it| *it != 0));
    }
    if !fields.is_empty() {
        fields.set_number("start", facts.partition_start);
    }
    fields
}

/// What distinguishes a device without a name until the next boot. `size` is in bytes.
fn weak_fields(facts: &DeviceFacts, size: Option<u64>) -> io::Result<Fields> {
    let mut fields = Fields::default();
    let boot = procfs::sys::kernel::random::boot_id();
    fields.set("boot", boot.map_err(io::Error::other)?);
    fields.set_number("seq", facts.diskseq);
    fields.set_number("size", size);
    fields.set_number("start", facts.partition_start);
    Ok(fields)
}

/// The fields of an identity, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields(BTreeMap<String, Vec<u8>>);

impl Fields {
    fn set(&mut self, key: &str, value: impl AsRef<OsStr>) {
        self.0
            .insert(key.to_owned(), value.as_ref().as_bytes().to_vec());
    }

    fn set_number(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.set(key, value.to_string());
        }
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn without(&self, keys: &[&str]) -> Self {
        let mut rest = self.clone();
        rest.0.retain(|key, _| !keys.contains(&key.as_str()));
        rest
    }

    /// The fields that both have: key, ours, theirs.
    fn shared<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a str, &'a [u8], &'a [u8])> {
        self.0.iter().filter_map(|(key, ours)| {
            Some((key.as_str(), ours.as_slice(), other.0.get(key)?.as_slice()))
        })
    }

    fn versioned(&self) -> String {
        format!("{VERSION}{self}")
    }

    /// Parses an identity; only the canonical form is accepted.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = BTreeMap::new();
        for field in text.strip_prefix(VERSION)?.split(',') {
            let (key, value) = field.split_once('=')?;
            fields.insert(key.to_owned(), percent_decode_str(value).collect());
        }
        let fields = Self(fields);
        (fields.versioned() == text).then_some(fields)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{key}={}", percent_encode(value, RESERVED))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
