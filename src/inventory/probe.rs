//! Probes one entry of a discovery directory: what it is, or why it is not a volume.

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

/// The facts of the machine, read once for a whole scan.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The mounts of our mount namespace.
    pub mounts: MountTable,
    /// The facts about block devices.
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

/// Probes one entry. Its contents are read only if it is not taken: a volume with a PV may be in use. Opens only
/// directories and block devices: opening a FIFO would block, and opening a tape would rewind it.
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

/// Whether the contents of the volume have to be read.
fn looks_into(class: &Class, entry: &str, taken: Option<&BTreeSet<HostPath>>) -> bool {
    class.discovery_policy == DiscoveryPolicy::EmptyOnly
        && taken.is_some_and(|paths| !paths.contains(&class.host_dir.join(entry)))
}

/// The file type at the path. A symbolic link counts only if it leads to a block device.
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
        // Tools search for this log line, which the Go provisioner writes too.
        FsError::NotMounted { .. } => Skip::new(
            SkipReason::NotMounted,
            format!("path \"{path}\" is not a valid mount point"),
        )
        .gone(),
        error @ FsError::Io(..) => Skip::new(SkipReason::Unreadable, error.to_string()),
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

/// The candidate of an open filesystem root. A cleanup calls it on the descriptor that it cleans through.
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

/// The candidate of an open device; see [`candidate_of_filesystem`].
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

/// The visible user of a device.
///
/// # Errors
/// When `/sys` does not answer.
pub(crate) fn device_user(facts: &DeviceFacts, machine: &Machine) -> io::Result<Option<String>> {
    // A disk is in use if one of its partitions is, and a partition if its disk is.
    let through = machine.sysfs.writable_through(facts.number)?;
    let mut mounts = through
        .iter()
        .filter_map(|it| machine.mounts.of_device(*it));
    let mounted = mounts.next();
    // A loop device over it does not make an exclusive open fail.
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
