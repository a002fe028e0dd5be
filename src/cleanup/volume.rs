//! An open volume: a filesystem root or a device, locked and identified.

use std::io;
use std::path::Path;

use crate::host::Machine;
pub(crate) use crate::host::access::Access;
use crate::host::access::OpenError;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::lock::VolumeLock;
use crate::host::mark::StateDir;
use crate::host::users::claimed_by;
use crate::inventory::Candidate;
pub(crate) use crate::inventory::Opened;
use crate::retry;
use crate::types::{MountPath, VolumeMode};
use crate::wipe::progress::Progress;

use super::blocking::{PROBE_TIMEOUT, open_when_free};
use super::inspect::{NodeFacts, Obstacle, inspect};
use super::mark::Marker;

impl Opened {
    /// Whether idle I/O priority slows down only this volume. A thread that waits for the disk in the idle
    /// class may hold locks of the filesystem, which other directories of the same filesystem share.
    pub(crate) fn allows_idle_io(&self) -> bool {
        match self {
            Self::Filesystem(root) => root.mount().root == Path::new("/"),
            Self::Device(_) => true,
        }
    }
}

/// A volume that no other cleaner and no exclusive user has.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) volume: Opened,
    pub(crate) lock: VolumeLock,
    pub(crate) candidate: Candidate,
    pub(crate) marker: Marker,
}

impl OpenVolume {
    /// Opens, locks, identifies and inspects what is at a path. Blocking.
    ///
    /// # Errors
    /// Why it must not be offered or cleaned.
    pub(crate) fn open(
        path: &MountPath,
        class: &str,
        kind: VolumeMode,
        access: Access,
        facts: &NodeFacts,
    ) -> Result<Self, Obstacle> {
        let opened = Self::take(path, class, kind, access, &facts.machine)?;
        inspect(&opened, facts)?;
        Ok(opened)
    }

    /// The same without the inspection. Blocking.
    ///
    /// # Errors
    /// Why it cannot be opened, locked or identified.
    pub(crate) fn take(
        path: &MountPath,
        class: &str,
        kind: VolumeMode,
        access: Access,
        machine: &Machine,
    ) -> Result<Self, Obstacle> {
        let unknown = |error: io::Error| Obstacle::Unknown(format!("{path}: {error}"));
        let volume = match kind {
            VolumeMode::Filesystem => {
                Opened::Filesystem(FsRoot::open(path.as_path(), &machine.mounts)?)
            }
            VolumeMode::Block => Opened::Device(open_device(path, access, machine)?),
        };
        let lock = VolumeLock::acquire(&volume, path.as_path(), access)?;
        let candidate = volume.candidate(path, class, machine).map_err(unknown)?;
        match &candidate.in_use {
            Some(user) => Err(Obstacle::in_use(user.as_str())),
            None => Ok(Self {
                volume,
                lock,
                marker: Marker {
                    state: machine.state.clone(),
                    class: class.to_owned(),
                    path: path.clone(),
                    kind,
                    identity: candidate.identity.clone(),
                },
                candidate,
            }),
        }
    }
}

/// Opens a device exclusively. Blocking.
pub(super) fn open_device(
    path: &MountPath,
    access: Access,
    machine: &Machine,
) -> Result<Device, Obstacle> {
    Device::open(path.as_path(), access).map_err(|error| match error {
        OpenError::InUse(_) => Obstacle::InUse {
            user: claimed_by(path.as_path(), machine),
            notify_after: retry::LONG_USE,
        },
        error => error.into(),
    })
}

/// Opens a device to clean it, once udev and similar programs have closed it.
pub(super) async fn reopen(path: &MountPath, progress: &Progress) -> Result<Device, Obstacle> {
    let path = path.clone();
    let open = move || open_device(&path, Access::Clean, &Machine::read(&StateDir::default())?);
    open_when_free(PROBE_TIMEOUT, progress, open).await
}
