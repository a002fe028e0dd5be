//! Probes one entry of a discovery directory: what it is, or why it is not a volume.

use std::collections::BTreeSet;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;

use crate::config::{Class, DiscoveryPolicy};
use crate::host::Machine;
use crate::host::access::{Access, OpenError};
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::mark::{MarkOnDisk, Place};
use crate::types::{HostPath, MountPath, SkipReason, VolumeMode};
use crate::wipe::device::Disk;
use crate::wipe::progress::Progress;

use super::{Candidate, Contents, Opened, Skip};

/// Probes one entry. Its contents are read only if it is not taken: a volume with a PV may be in use. Opens only
/// directories and block devices: opening a FIFO would block, and opening a tape would rewind it. `None`: it was removed
/// since it was listed.
///
/// # Errors
/// Why it is not a volume.
pub(super) fn probe(
    class: &Class,
    entry: &str,
    machine: &Machine,
    taken: Option<&BTreeSet<HostPath>>,
) -> Result<Option<Candidate>, Skip> {
    let path = &class.mount_dir.join(entry);
    let volume = match open(class, path, machine) {
        Err(_) if is_removed(path) => return Ok(None),
        opened => opened?,
    };
    let unreadable = |error| Skip::new(SkipReason::Unreadable, format!("{path}: {error}"));
    let mut candidate = volume.candidate(path, &class.name, machine).map_err(unreadable)?;
    if candidate.capacity == 0 {
        let text = format!("{path} has a size of 0 bytes");
        return Err(Skip::new(SkipReason::NoCapacity, text));
    }
    let is_taken = taken.is_none_or(|paths| paths.contains(&class.host_dir.join(entry)));
    let has_past = candidate.mark.has_past();
    if (class.discovery_policy == DiscoveryPolicy::EmptyOnly || has_past)
        && !is_taken
        && candidate.in_use.is_none()
    {
        candidate.contents = volume.contents().map_err(unreadable)?;
    }
    let mark = &candidate.mark;
    let is_unmarked =
        mark.on_disk == MarkOnDisk::Absent && mark.place == Some(Place::StateDirectory);
    let needs_blank = machine.state.is_in_doubt() || class.devices.is_some();
    if is_unmarked && needs_blank && !is_taken && candidate.in_use.is_none() {
        let progress = Progress::default();
        candidate.is_blank = match &volume {
            Opened::Device(device) => {
                let disk = Disk::new(device.file(), device.size(), &progress);
                disk.check_zeroed().is_ok()
            }
            Opened::Filesystem(_) => volume.contents().is_ok_and(|it| it == Contents::Empty),
        };
        // The link may lead to another disk than the one that was taken in, which has a mark.
        let is_data = !candidate.is_blank && candidate.contents == Contents::Empty;
        if class.devices.is_some() && is_data {
            let what = "data, without a mark, although its class takes in blank disks".to_owned();
            candidate.contents = Contents::Holds(what);
        }
    }
    Ok(Some(candidate))
}

/// Whether an entry was removed after it was listed.
fn is_removed(path: &MountPath) -> bool {
    let found = fs::symlink_metadata(path.as_path());
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn open(class: &Class, path: &MountPath, machine: &Machine) -> Result<Opened, Skip> {
    let opened = if !file_type(path)?.is_dir() {
        Device::open(path.as_path(), Access::Probe).map(Opened::Device)
    } else if class.volume_mode == VolumeMode::Block {
        let class = &class.name;
        let text = format!("{path} is a directory, but class {class:?} has volumeMode Block");
        return Err(Skip::new(SkipReason::ModeMismatch, text));
    } else {
        FsRoot::open(path.as_path(), &machine.mounts).map(Opened::Filesystem)
    };
    opened.map_err(|error| {
        let text = error.to_string();
        match error {
            OpenError::NotMounted(_) => Skip::new(SkipReason::NotMounted, text).gone(),
            OpenError::InUse(_) => Skip::new(SkipReason::DeviceInUse, text),
            _ => Skip::new(SkipReason::Unreadable, text),
        }
    })
}

/// The type of a directory or block device. A symbolic link counts only if it leads to a block device.
fn file_type(path: &MountPath) -> Result<FileType, Skip> {
    let wrong = |what: &str| {
        let text = format!("{path} is {what}");
        Skip::new(SkipReason::NotADirectoryOrBlockDevice, text)
    };
    let unreadable = |error| {
        let text = format!("{path} cannot be looked at: {error}");
        Skip::new(SkipReason::Unreadable, text)
    };
    let own = fs::symlink_metadata(path.as_path()).map_err(unreadable)?.file_type();
    if own.is_dir() || own.is_block_device() {
        return Ok(own);
    }
    let target = match fs::metadata(path.as_path()) {
        Err(error) if own.is_symlink() && error.kind() == io::ErrorKind::NotFound => {
            return Err(wrong(
                "a symbolic link to nothing, as far as this container sees; is the host's /dev mounted there (mountDevVolume and privileged in the chart)?",
            )
            .gone());
        }
        target => target.map_err(unreadable)?.file_type(),
    };
    if target.is_block_device() {
        return Ok(target);
    }
    Err(wrong(if own.is_symlink() {
        "a symbolic link to something that is not a block device; bind-mount a directory instead"
    } else {
        "neither a mount point nor a block device nor a link to one"
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_entry_that_is_not_there_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap().parse::<MountPath>().unwrap();
        assert!(is_removed(&path.join("removed")));
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        assert!(!is_removed(&path.join("link")), "a link to nothing");
    }
}
