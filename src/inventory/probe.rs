//! One entry of a discovery directory: what it is, or why it is no volume.

use std::collections::BTreeSet;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;

use crate::config::{Class, DiscoveryPolicy};
use crate::host::device::{Device, OpenError};
use crate::host::filesystem::{FsError, FsRoot};
use crate::host::footprint::Footprint;
use crate::host::identity;
use crate::host::mounts::{DeviceNumber, MountTable};
use crate::host::sysfs::{DeviceFacts, Sysfs};
use crate::types::{HostPath, MountPath, SkipReason, VolumeMode};

use super::{Candidate, Contents, Finding, Skip, contents};

/// The machine's own tables, read once for a whole scan.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What is mounted, in our mount namespace.
    pub mounts: MountTable,
    /// What the kernel says of block devices.
    pub sysfs: Sysfs,
}

impl Machine {
    /// Reads the tables.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn read() -> io::Result<Self> {
        Ok(Self {
            mounts: MountTable::read()?,
            sysfs: Sysfs::default(),
        })
    }
}

/// Looks at one entry. It looks into it only if it is not taken: a volume with a PV may be in use. Never opens anything but a directory or a block device: opening a FIFO
/// would hang, and opening a tape would rewind it.
#[must_use]
pub fn probe(
    class: &Class,
    entry: &str,
    machine: &Machine,
    taken: Option<&BTreeSet<HostPath>>,
) -> Finding {
    let path = &class.mount_dir.join(entry);
    let inside = looks_into(class, entry, taken);
    let found = match file_type(path) {
        Ok(kind) if kind.is_dir() => filesystem(class, path, machine, inside),
        Ok(kind) if kind.is_block_device() => device(path, machine, inside),
        Ok(_) => Err(Skip::new(
            SkipReason::NotADirectoryOrBlockDevice,
            format!("{path} is neither a mount point nor a block device nor a link to one"),
        )),
        Err(skip) => Err(skip),
    };
    match found {
        Ok(candidate) => Finding::Volume(Box::new(candidate)),
        Err(skip) => Finding::Skipped(skip),
    }
}

/// Whether it matters what is in the volume.
fn looks_into(class: &Class, entry: &str, taken: Option<&BTreeSet<HostPath>>) -> bool {
    class.discovery_policy == DiscoveryPolicy::EmptyOnly
        && taken.is_some_and(|paths| !paths.contains(&class.host_dir.join(entry)))
}

/// The type of what is at the path, where a symbolic link counts only if it leads to a device.
fn file_type(path: &MountPath) -> Result<FileType, Skip> {
    let unreadable = |error: &io::Error| {
        Skip::new(
            SkipReason::Unreadable,
            format!("{path} cannot be looked at: {error}"),
        )
    };
    let own = fs::symlink_metadata(path.as_path())
        .map_err(|error| unreadable(&error))?
        .file_type();
    if !own.is_symlink() {
        return Ok(own);
    }
    match fs::metadata(path.as_path()) {
        Ok(target) if target.file_type().is_block_device() => Ok(target.file_type()),
        Ok(_) => Err(Skip::new(
            SkipReason::NotADirectoryOrBlockDevice,
            format!(
                "{path} is a symbolic link to something that is not a block device; bind-mount a directory instead"
            ),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Skip::new(
            SkipReason::NotADirectoryOrBlockDevice,
            format!(
                "{path} is a symbolic link to nothing, as far as this container sees; is the host's /dev mounted there (mountDevVolume and privileged in the chart)?"
            ),
        )
        .gone()),
        Err(error) => Err(unreadable(&error)),
    }
}

fn filesystem(
    class: &Class,
    path: &MountPath,
    machine: &Machine,
    inside: bool,
) -> Result<Candidate, Skip> {
    if class.volume_mode == VolumeMode::Block {
        return Err(Skip::new(
            SkipReason::ModeMismatch,
            format!(
                "{path} is a directory, but class {:?} has volumeMode Block",
                class.name
            ),
        ));
    }
    let root = FsRoot::open(path.as_path(), &machine.mounts).map_err(|error| match error {
        // Tools look for this very line; the Go provisioner writes it.
        FsError::NotMounted { .. } => Skip::new(
            SkipReason::NotMounted,
            format!("path \"{path}\" is not a valid mount point"),
        )
        .gone(),
        error => Skip::new(SkipReason::Unreadable, error.to_string()),
    })?;
    let unreadable = |error| unreadable(path, &error);
    let candidate = candidate_of_filesystem(&root, machine).map_err(unreadable)?;
    let mut candidate = with_capacity(candidate, path)?;
    if inside {
        candidate.contents = contents::of_filesystem(&root).map_err(unreadable)?;
    }
    Ok(candidate)
}

fn device(path: &MountPath, machine: &Machine, inside: bool) -> Result<Candidate, Skip> {
    let device = Device::open_readonly(path.as_path()).map_err(|error| match error {
        OpenError::InUse { .. } => Skip::new(SkipReason::DeviceInUse, error.to_string()),
        error => Skip::new(SkipReason::Unreadable, error.to_string()),
    })?;
    let unreadable = |error| unreadable(path, &error);
    let candidate = candidate_of_device(&device, path, machine).map_err(unreadable)?;
    let mut candidate = with_capacity(candidate, path)?;
    if inside && candidate.in_use.is_none() {
        candidate.contents = contents::of_device(&device).map_err(unreadable)?;
    }
    Ok(candidate)
}

fn unreadable(path: &MountPath, error: &io::Error) -> Skip {
    Skip::new(SkipReason::Unreadable, format!("{path}: {error}"))
}

fn with_capacity(candidate: Candidate, path: &MountPath) -> Result<Candidate, Skip> {
    if candidate.capacity == 0 {
        return Err(Skip::new(
            SkipReason::NoCapacity,
            format!("{path} has a size of 0 bytes"),
        ));
    }
    Ok(candidate)
}

/// The candidate behind an open filesystem root. Cleaning calls it too, on the very descriptor that
/// it is going to clean through.
///
/// # Errors
/// When the kernel does not answer.
pub fn candidate_of_filesystem(root: &FsRoot, machine: &Machine) -> io::Result<Candidate> {
    let footprint = Footprint::of_filesystem(root, &machine.sysfs)?;
    Ok(Candidate {
        kind: VolumeMode::Filesystem,
        capacity: root.total_bytes()?,
        identity: identity::of_filesystem(root, &machine.sysfs)?,
        rotational: rotational(footprint.devices(), &machine.sysfs),
        footprint,
        read_only: root.read_only()?,
        in_use: None,
        contents: Contents::NotLookedAt,
    })
}

/// The candidate behind an open device; see [`candidate_of_filesystem`].
///
/// # Errors
/// When the kernel does not answer.
pub fn candidate_of_device(
    device: &Device,
    path: &MountPath,
    machine: &Machine,
) -> io::Result<Candidate> {
    let facts = machine.sysfs.device(device.number())?;
    let footprint = Footprint::of_device(&facts);
    let in_use = device_user(&facts, machine)?;
    Ok(Candidate {
        kind: VolumeMode::Block,
        capacity: device.size(),
        identity: identity::of_device(device, path.as_path(), &machine.sysfs)?,
        rotational: rotational(footprint.devices(), &machine.sysfs),
        footprint,
        read_only: facts.read_only,
        in_use,
        contents: Contents::NotLookedAt,
    })
}

/// Who uses a device, as far as looking shows.
///
/// # Errors
/// When `/sys` does not answer.
pub(crate) fn device_user(facts: &DeviceFacts, machine: &Machine) -> io::Result<Option<String>> {
    // A disk is in use with any of its partitions, and a partition with its disk.
    let through = machine.sysfs.writable_through(facts.number)?;
    let mut mounts = through
        .iter()
        .filter_map(|it| machine.mounts.of_device(*it));
    let mounted = mounts.next();
    // An exclusive open does not see a loop device on top.
    let loops = machine.sysfs.loops_over(&through)?;
    Ok(mounted
        .map(|mount| {
            let what = match mount.device {
                number if number == facts.number => "",
                number if number == facts.disk => "its disk is ",
                _ => "a partition of it is ",
            };
            format!("{what}mounted on {}", mount.point.display())
        })
        .or_else(|| {
            facts
                .holders
                .first()
                .map(|holder| format!("held by {holder}"))
        })
        .or_else(|| loops.first().map(|name| format!("{name} lies on it"))))
}

fn rotational(devices: &BTreeSet<DeviceNumber>, sysfs: &Sysfs) -> BTreeSet<DeviceNumber> {
    devices
        .iter()
        .filter_map(|number| sysfs.device(*number).ok())
        .filter(|facts| facts.rotational)
        .map(|facts| facts.disk)
        .collect()
}
