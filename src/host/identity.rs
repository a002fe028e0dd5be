//! The identity of a volume: a text that is stable as long as the storage is the same.
//!
//! `v1:` and `key=value` fields, sorted and separated by commas. Values are percent-encoded where
//! they hold `,`, `=`, `%` or anything but printable ASCII.
//!
//! | fields | meaning |
//! |---|---|
//! | `fs`, `root`, `uuid` | a filesystem volume: type, directory within the filesystem, UUID |
//! | `on` | the disk below the filesystem, itself as fields: distinguishes clones with one UUID |
//! | `fs=made`, `root`, `uuid` | one that the provisioner made on the disk `on`: the same digits of the UUID each time |
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

mod global;
mod sharing;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use super::device::Device;
use super::filesystem::FsRoot;
use super::ioctl;
use super::sysfs::{DeviceFacts, Sysfs};

pub use global::GlobalIdentity;
pub use sharing::may_share;

const VERSION: &str = "v1:";

/// The type of all filesystems that the provisioner makes.
const MADE: &str = "made";

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

impl Identity {
    /// Whether it holds only until the next boot.
    pub fn is_of_boot(&self) -> bool {
        let fields = Fields::parse(&self.text);
        fields.is_none_or(|fields| fields.has("boot"))
    }

    /// The first 32 hexadecimal digits of the SHA-256 of the text, for names.
    pub fn hash(&self) -> String {
        hash(&self.text)
    }
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
pub fn compare(recorded: &str, observed: &Identity) -> Match {
    // As in most passes.
    if recorded == observed.text && recorded.starts_with(VERSION) {
        return Match::Same;
    }
    let Some((then, now)) = Fields::parse(recorded).zip(Fields::parse(&observed.text)) else {
        return Match::Unknown;
    };
    // `seq` is unique within one boot; the next boot starts counting again.
    let rebooted = then.0.get("boot") != now.0.get("boot");
    let may_change = |key| key == "boot" || (rebooted && key == "seq");
    if then.shared(&now).any(|(key, then, now)| then != now && !may_change(key)) {
        return Match::Different;
    }
    // Old kernels without udev do not show a partition's UUID; disk and first sector suffice.
    let is_partition = then.has("start") && then.has("wwid");
    // A newer kernel reports the UUID. The disk below sufficed before, and still does.
    let has_uuid_now = then.has("on") && then.has("path") && now.has("uuid");
    if then == now
        || (is_partition && then.without(&["partuuid"]) == now.without(&["partuuid"]))
        || (has_uuid_now && then.without(&["path"]) == now.without(&["uuid"]))
    {
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
pub fn only_rebooted(recorded: &str, observed: &Identity) -> bool {
    let Some((then, now)) = Fields::parse(recorded).zip(Fields::parse(&observed.text)) else {
        return false;
    };
    let boots = then.0.get("boot").zip(now.0.get("boot"));
    boots.is_some_and(|(then, now)| then != now)
        && then.without(&BOOT_FIELDS) == now.without(&BOOT_FIELDS)
}

/// The text of an identity without the fields that change at a reboot.
pub fn without_boot(identity: &Identity) -> String {
    let fields = Fields::parse(&identity.text).unwrap_or_default();
    fields.without(&BOOT_FIELDS).versioned()
}

/// The identity of a filesystem volume.
///
/// # Errors
/// When filesystem or `/sys` do not answer.
pub fn of_filesystem(root: &FsRoot, sysfs: &Sysfs) -> io::Result<Identity> {
    let mut fields = Fields::default();
    fields.set("fs", Some(&root.mount().fs_type));
    fields.set("root", Some(&root.mount().root));
    let uuid = ioctl::uuid_on_disk(root.as_fd(), &root.mount().fs_type)?;
    let weak = uuid.is_none();
    fields.set("path", weak.then_some(root.path()));
    fields.set("uuid", uuid);
    let devices = super::footprint::devices_of(root, sysfs)?;
    // The devices of a btrfs of several can change.
    if let (Some(number), 1) = (devices.first(), devices.len()) {
        let facts = sysfs.device(*number)?;
        let below = disk_fields(&facts);
        if let Some(begin) = made(&below) {
            let uuid = fields.0.get("uuid");
            // The volume stays the same when its filesystem is made again, with another type, too.
            if uuid.is_some_and(|uuid| uuid.starts_with(&begin)) {
                fields.set("fs", Some(MADE));
                fields.set("uuid", Some(begin));
            }
            fields.set("on", Some(below.to_string()));
        } else if weak {
            fields.0.extend(weak_fields(&facts)?.0);
        }
    }
    Ok(Identity { text: fields.versioned(), weak })
}

/// A UUID for a filesystem that the provisioner makes on a device. It begins with digits of the device's name, so that the
/// filesystem is recognised without a record, on any node. The rest is random: XFS replays its log only over blocks that have
/// another UUID, or are older. `None`: the device has no name.
///
/// # Errors
/// When `/proc` is not readable.
pub fn uuid_to_make(facts: &DeviceFacts) -> io::Result<Option<String>> {
    let random = procfs::sys::kernel::random::uuid().map_err(io::Error::other)?;
    let random = random.trim().get(24..).unwrap_or_default();
    Ok(made(&disk_fields(facts)).map(|begin| begin + random))
}

/// Whether the provisioner made the filesystem with this UUID on this device.
pub fn has_made(facts: &DeviceFacts, uuid: &str) -> bool {
    made(&disk_fields(facts)).is_some_and(|begin| uuid.starts_with(&begin))
}

/// Whether the provisioner made a filesystem, by its identity.
pub fn is_made(identity: &Identity) -> bool {
    let fields = Fields::parse(&identity.text).unwrap_or_default();
    let has = |key, value| fields.0.get(key).is_some_and(|it| it == value);
    has("fs", MADE) && has("root", "/")
}

/// The digits of a UUID of version 8 (RFC 9562) that are those of a device's name: of its SHA-256.
fn made(name: &Fields) -> Option<String> {
    if name.0.is_empty() {
        return None;
    }
    let hash = super::sha256(format!("local-volume-provisioner {name}").as_bytes());
    let at = |range: Range<usize>| &hash[range];
    let (start, version, variant) = (at(0..8), at(13..16), at(17..20));
    Some(format!("{start}-{}-8{version}-a{variant}-", at(8..12)))
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
    let weak = fields.0.is_empty();
    if weak {
        fields = weak_fields(&facts)?;
        fields.set("link", std::fs::read_link(path).ok());
    }
    Ok(Identity { text: fields.versioned(), weak })
}

/// The identifying fields of a device; empty if it has none.
fn device_fields(facts: &DeviceFacts, loop_inode: Option<u64>) -> Fields {
    let mut fields = disk_fields(facts);
    if let Some((file, inode)) = fields.0.get_mut("loop").zip(loop_inode) {
        *file = format!("{file}:{inode}");
    }
    fields.set("partuuid", facts.partition_uuid.as_ref());
    fields
}

/// The identifying fields that every kernel shows to every container.
fn disk_fields(facts: &DeviceFacts) -> Fields {
    let file = facts.loop_backing.as_ref();
    // The strongest comes first.
    let names = [
        ("wwid", facts.wwid.as_ref().map(OsStr::new)),
        ("dm", facts.dm_uuid.as_ref().map(OsStr::new)),
        ("md", facts.md_uuid.as_ref().map(OsStr::new)),
        ("loop", file.map(|it| it.as_os_str())),
    ];
    let mut fields = Fields::default();
    if let Some((key, name)) = names.iter().find_map(|(key, name)| Some((key, (*name)?))) {
        fields.set(key, Some(name));
        fields.set("start", facts.partition_start.map(|it| it.to_string()));
    }
    if fields.has("loop") {
        let offset = Some(facts.loop_offset).filter(|it| *it != 0);
        fields.set("offset", offset.map(|it| it.to_string()));
    }
    fields
}

/// What distinguishes a device without a name until the next boot.
fn weak_fields(facts: &DeviceFacts) -> io::Result<Fields> {
    let mut fields = Fields::default();
    let boot = procfs::sys::kernel::random::boot_id();
    fields.set("boot", Some(boot.map_err(io::Error::other)?));
    fields.set("seq", facts.diskseq.map(|it| it.to_string()));
    fields.set("size", facts.size.map(|it| it.to_string()));
    fields.set("start", facts.partition_start.map(|it| it.to_string()));
    Ok(fields)
}

/// The first 32 hexadecimal digits of the SHA-256 of a text.
pub fn hash(text: &str) -> String {
    let mut hash = super::sha256(text.as_bytes());
    hash.truncate(32);
    hash
}

/// The fields of an identity. The values are encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn set(&mut self, key: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            let value = percent_encode(value.as_ref().as_bytes(), RESERVED).to_string();
            self.0.insert(key.to_owned(), value);
        }
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn without(&self, keys: &[&str]) -> Self {
        let mut rest = self.clone();
        rest.0.retain(|key, _| !keys.contains(&key.as_str()));
        rest
    }

    /// The fields that both have: key, ours, theirs.
    fn shared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        let ours = self.0.iter();
        ours.filter_map(|(key, ours)| {
            Some((key.as_str(), ours.as_str(), other.0.get(key)?.as_str()))
        })
    }

    fn versioned(&self) -> String {
        format!("{VERSION}{self}")
    }

    /// Parses an identity; only the canonical form is accepted.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = Self::default();
        for field in text.strip_prefix(VERSION)?.split(',') {
            let (key, value) = field.split_once('=')?;
            let value: Vec<u8> = percent_decode_str(value).collect();
            fields.set(key, Some(OsStr::from_bytes(&value)));
        }
        (fields.versioned() == text).then_some(fields)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
