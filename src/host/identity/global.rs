//! The identity of a volume among all nodes, where each disk has one owner.
//!
//! | volume | hashed | unique |
//! |---|---|---|
//! | a disk or a partition | `wwid`, `start` | if the wwid is world-unique |
//! | a multipath device | as the disk to which all its paths lead | as the disk |
//! | another device-mapper device, an md array | `dm` or `md`, `start`, and the sorted wwids of all disks below as `on` | if all of these are |
//! | a filesystem on one of these | the same and `root` | as the device |
//! | any other that is not weak | its identity | no |
//!
//! Machines that were cloned have equal UUIDs of LVM, md, partitions and filesystems, and cloud providers give the
//! disks of many machines one serial number. So these only count together with world-unique names.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::super::filesystem::FsRoot;
use super::super::footprint::devices_of;
use super::super::mounts::DeviceNumber;
use super::super::sysfs::{DeviceFacts, Sysfs};
use super::{Fields, Identity, hash};

/// How device-mapper's names of multipath devices begin.
const MULTIPATH: &str = "mpath-";

/// The identity of a volume in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalIdentity {
    /// The first 32 hexadecimal digits of the SHA-256 of its text.
    pub hash: String,
    /// Whether no other storage in the world should have it.
    pub is_unique: bool,
    /// Whether more than two machines can reach the storage.
    pub is_shared: bool,
}

impl GlobalIdentity {
    /// The global identity of a filesystem volume; `None` for a weak one.
    ///
    /// # Errors
    /// When `/sys` does not answer.
    pub fn of_filesystem(
        root: &FsRoot,
        identity: &Identity,
        sysfs: &Sysfs,
    ) -> io::Result<Option<Self>> {
        let devices = devices_of(root, sysfs)?;
        let mut unique = match devices.first() {
            Some(number) if devices.len() == 1 => Unique::of(*number, sysfs)?,
            _ => None,
        };
        if let Some(unique) = &mut unique {
            unique.fields.set("root", Some(&root.mount().root));
        }
        Ok(Self::new(identity, unique))
    }

    /// The global identity of a device; `None` for a weak one.
    ///
    /// # Errors
    /// When `/sys` does not answer.
    pub fn of_device(
        number: DeviceNumber,
        identity: &Identity,
        sysfs: &Sysfs,
    ) -> io::Result<Option<Self>> {
        Ok(Self::new(identity, Unique::of(number, sysfs)?))
    }

    fn new(identity: &Identity, unique: Option<Unique>) -> Option<Self> {
        let text = unique.as_ref().map(|unique| unique.fields.versioned());
        (!identity.weak).then(|| Self {
            hash: hash(text.as_ref().unwrap_or(&identity.text)),
            is_unique: unique.is_some(),
            is_shared: unique.is_some_and(|unique| unique.is_shared),
        })
    }

    /// Whether PVs of this number of other nodes with this identity are of the same storage. A value that more than
    /// two nodes have is not unique, unless more than two can reach one disk.
    pub fn is_same_storage(&self, other_nodes: usize) -> bool {
        self.is_unique && (self.is_shared || other_nodes < 2)
    }
}

/// What identifies storage in the world.
struct Unique {
    fields: Fields,
    is_shared: bool,
}

impl Unique {
    fn of(number: DeviceNumber, sysfs: &Sysfs) -> io::Result<Option<Self>> {
        let device = sysfs.device(number)?;
        let below = device.below.iter().map(|number| sysfs.device(*number));
        let below = below.collect::<io::Result<Vec<_>>>()?;
        Ok(Self::of_stack(&device, &below))
    }

    /// That of a device, of all that it lies on (itself included); `None` if that is not unique.
    fn of_stack(device: &DeviceFacts, below: &[Arc<DeviceFacts>]) -> Option<Self> {
        let is_disk = |it: &&Arc<DeviceFacts>| it.below.len() == 1 && it.disk == it.number;
        let disks: Vec<_> = below.iter().filter(is_disk).collect();
        let wwids = disks.iter().map(|disk| disk.wwid.as_deref());
        let wwids = wwids.map(|wwid| wwid.filter(|it| is_world_unique(it)));
        let wwids: BTreeSet<_> = wwids.collect::<Option<_>>()?;
        let first = wwids.first()?;
        let of_multipath = |it: &DeviceFacts| {
            let uuid = it.dm_uuid.as_ref();
            uuid.is_some_and(|uuid| uuid.starts_with(MULTIPATH))
        };
        let is_one_disk = disks.iter().any(|disk| disk.number == device.disk)
            || (of_multipath(device) && wwids.len() == 1);
        let mut fields = Fields::default();
        if is_one_disk {
            fields.set("wwid", Some(first));
        } else {
            let uuids = [("dm", &device.dm_uuid), ("md", &device.md_uuid)];
            let (key, uuid) = uuids.into_iter().find(|(_, uuid)| uuid.is_some())?;
            fields.set(key, uuid.as_ref());
            fields.set("on", Some(Vec::from_iter(wwids).join(" ")));
        }
        fields.set("start", device.partition_start.map(|it| it.to_string()));
        Some(Self {
            fields,
            is_shared: below.iter().any(|it| it.shared_transport || of_multipath(it)),
        })
    }
}

/// Whether a manufacturer has a registered prefix for the wwid. NAA 3 is locally assigned.
fn is_world_unique(wwid: &str) -> bool {
    let (kind, number) = wwid.split_once('.').unwrap_or_default();
    let digits: Vec<u8> = number.bytes().filter(|it| *it != b'-').collect();
    let is_registered = match (kind, digits.first(), digits.len()) {
        ("naa", Some(b'2' | b'5'), 16) | ("naa", Some(b'6'), 32) => true,
        ("eui", _, length) => matches!(length, 16 | 24 | 32),
        ("uuid", _, length) => length == 32,
        _ => false,
    };
    let is_only = |wanted: u8| digits.iter().all(|it| it.eq_ignore_ascii_case(&wanted));
    let is_number = digits.iter().all(u8::is_ascii_hexdigit);
    is_registered && is_number && !is_only(b'0') && !is_only(b'f')
}

#[cfg(test)]
mod tests;
