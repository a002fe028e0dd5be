//! An open volume: a filesystem root or a device, locked and identified.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::host::claims::claimed_by;
use crate::host::device::{Device, OpenError};
use crate::host::filesystem::FsRoot;
use crate::host::lock::VolumeLock;
use crate::host::sysfs::Sysfs;
use crate::inventory::{Candidate, Machine, candidate_of_device, candidate_of_filesystem};
use crate::types::{MountPath, VolumeMode};

use super::NotifyAfter;
use super::inspect::{NodeFacts, Obstacle, inspect};

/// An open volume.
#[derive(Debug)]
pub(crate) enum Volume {
    /// The root directory of the filesystem that is mounted at the path.
    Filesystem(FsRoot),
    /// The device, opened exclusively.
    Device(Device),
}

impl Volume {
    /// Whether idle I/O priority slows down only this volume. A thread that waits for the disk in the idle
    /// class may hold locks of the filesystem, which other directories of the same filesystem share.
    pub(crate) fn allows_idle_io(&self) -> bool {
        match self {
            Self::Filesystem(root) => root.mount().root == Path::new("/"),
            Self::Device(_) => true,
        }
    }
}

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To clean it.
    Write,
    /// To create its PV. Closing a device that was open for writing would make udev probe it again.
    Read,
}

/// A volume that no other cleaner and no exclusive user has.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) volume: Volume,
    pub(crate) lock: VolumeLock,
    pub(crate) candidate: Candidate,
}

impl OpenVolume {
    /// Opens, locks, identifies and inspects what is at a path. Blocking.
    ///
    /// # Errors
    /// Why it must not be offered or cleaned.
    pub(crate) fn open(
        path: &MountPath,
        kind: VolumeMode,
        access: Access,
        facts: &NodeFacts,
    ) -> Result<Self, Obstacle> {
        let opened = Self::take(path, kind, access, &facts.machine)?;
        inspect(&opened, facts)?;
        Ok(opened)
    }

    /// The same without the inspection. Blocking.
    ///
    /// # Errors
    /// Why it cannot be opened, locked or identified.
    pub(crate) fn take(
        path: &MountPath,
        kind: VolumeMode,
        access: Access,
        machine: &Machine,
    ) -> Result<Self, Obstacle> {
        let unknown = |error: io::Error| Obstacle::Unknown(format!("{path}: {error}"));
        let acquire = match access {
            Access::Write => VolumeLock::acquire,
            Access::Read => VolumeLock::acquire_shared,
        };
        let (volume, lock, candidate) = match kind {
            VolumeMode::Filesystem => {
                let root = FsRoot::open(path.as_path(), &machine.mounts)
                    .map_err(|error| Obstacle::Unknown(error.to_string()))?;
                let lock = acquire(root.as_fd(), path.as_path())?;
                let candidate = candidate_of_filesystem(&root, machine).map_err(unknown)?;
                (Volume::Filesystem(root), lock, candidate)
            }
            VolumeMode::Block => {
                let device = open_device(path, access, &machine.sysfs)?;
                let lock = acquire(device.file().as_fd(), path.as_path())?;
                let candidate = candidate_of_device(&device, path, machine).map_err(unknown)?;
                (Volume::Device(device), lock, candidate)
            }
        };
        match candidate.in_use {
            Some(user) => Err(Obstacle::in_use(user)),
            None => Ok(Self {
                volume,
                lock,
                candidate,
            }),
        }
    }
}

/// Opens a device exclusively. Blocking.
pub(super) fn open_device(
    path: &MountPath,
    access: Access,
    sysfs: &Sysfs,
) -> Result<Device, Obstacle> {
    let opened = match access {
        Access::Write => Device::open_exclusive(path.as_path()),
        Access::Read => Device::open_exclusive_readonly(path.as_path()),
    };
    opened.map_err(|error| match error {
        OpenError::InUse { .. } => Obstacle::InUse {
            user: claimed_by(path.as_path(), sysfs),
            notify: NotifyAfter::LongUse,
        },
        error => Obstacle::Unknown(error.to_string()),
    })
}

impl AsFd for Volume {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Filesystem(root) => root.as_fd(),
            Self::Device(device) => device.file().as_fd(),
        }
    }
}
