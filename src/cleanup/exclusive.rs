//! Opens and locks a device for one cleaner, in the process or in a Job.

use std::io;
use std::os::fd::AsFd;

use crate::host::device::{Device, OpenError};
use crate::host::lock::{LockError, VolumeLock};
use crate::inventory::{Candidate, Machine, candidate_of_device};
use crate::plan::reasons;
use crate::types::MountPath;

use super::{Failure, NotifyAfter, Stop};

/// Opens a device exclusively, locks and identifies it. Blocking.
pub(crate) fn take(
    path: &MountPath,
    machine: &Machine,
) -> Result<(Device, VolumeLock, Candidate), Stop> {
    let device = open(path)?;
    let lock = locked(VolumeLock::acquire(device.file().as_fd(), path.as_path()))?;
    let candidate = candidate_of_device(&device, path, machine).map_err(|e| io_failed(path, &e))?;
    if let Some(by) = candidate.in_use {
        return Err(Stop::InUse {
            by,
            notify: NotifyAfter::ShortUse,
        });
    }
    Ok((device, lock, candidate))
}

/// Opens a device exclusively. Blocking.
pub(crate) fn open(path: &MountPath) -> Result<Device, Stop> {
    Device::open_exclusive(path.as_path()).map_err(|error| match error {
        OpenError::InUse { .. } => Stop::InUse {
            by: error.to_string(),
            notify: NotifyAfter::LongUse,
        },
        error => failed(error.to_string()),
    })
}

pub(crate) fn locked(lock: Result<VolumeLock, LockError>) -> Result<VolumeLock, Stop> {
    lock.map_err(|error| match error {
        LockError::Held { .. } => Stop::InUse {
            by: error.to_string(),
            notify: NotifyAfter::Zero,
        },
        error @ LockError::Io { .. } => failed(error.to_string()),
    })
}

pub(super) fn io_failed(path: &MountPath, error: &io::Error) -> Stop {
    failed(format!("{path}: {error}"))
}

pub(super) fn failed(message: impl Into<String>) -> Stop {
    Stop::Failed(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
}
