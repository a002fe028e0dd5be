//! The wipe, and the check that it worked.

use std::path::PathBuf;

use crate::host::device::Device;
use crate::host::lock::VolumeLock;
use crate::host::mounts::MountTable;
use crate::plan::{CleanOrder, reasons};
use crate::scan::{Machine, candidate_of_device};

use super::commit::Committed;
use super::gate::{Volume, open_exclusive};
use super::method::{Method, describe};
use super::permit::Permit;
use super::progress::Progress;
use super::{Failure, Stop, command, device, tree};

/// A volume that was wiped, checked and synced. Only a value of this type can be released.
#[derive(Debug)]
pub struct Wiped {
    pub(super) order: CleanOrder,
    _lock: VolumeLock,
    _permit: Permit,
}

impl Committed {
    /// Deletes the data and makes sure that it is gone.
    ///
    /// # Errors
    /// [`Failure`] with the cause. What is left then is cleaned again later, from the beginning.
    pub async fn wipe(self, progress: &Progress) -> Result<Wiped, Failure> {
        let Self {
            order,
            identity,
            volume,
            lock,
            permit,
        } = self;
        let progress = progress.clone();
        // The lock goes where the work is: a cleaner that outlives this task, hanging in a system call,
        // still holds it.
        let lock = match volume {
            Volume::Filesystem(root) => {
                let path = order.mount_path.clone();
                blocking(move || {
                    let nested = nested_mounts(&root.mount().point)?;
                    let report = tree::empty(root.as_fd(), &nested, &progress)?;
                    tree::sync(root.as_fd())?;
                    tree::check_empty(root.as_fd())?;
                    tracing::debug!(%path, removed = report.removed, "the directory is empty");
                    Ok(lock)
                })
                .await?
            }
            Volume::Device(device) => {
                if let Method::Command(words) = &order.method {
                    external(&order, &identity, device, &lock, words, &progress).await?;
                    lock
                } else {
                    let order = order.clone();
                    blocking(move || native(&order, &device, &progress).map(|()| lock)).await?
                }
            }
        };
        Ok(Wiped {
            order,
            _lock: lock,
            _permit: permit,
        })
    }
}

/// Runs a cleaner where it can block. Its own panic is a failure like any other.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            let message = format!("the cleaner ended in a panic ({error}); this is a bug");
            Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
        })
}

fn nested_mounts(path: &std::path::Path) -> Result<Vec<PathBuf>, Failure> {
    let table = MountTable::read().map_err(|error| Failure::cleaning(&error))?;
    Ok(table.below(path).map(|mount| mount.point.clone()).collect())
}

fn native(order: &CleanOrder, device: &Device, progress: &Progress) -> Result<(), Failure> {
    let (file, size) = (device.file(), device.size());
    let zeroed = |report| device::check_zeroed(file, size).map(|()| report);
    let report = match &order.method {
        Method::QuickReset => device::quick_reset(file, size, progress)?,
        Method::Zero { passes } => {
            let mut report = device::zero(file, size, progress)?;
            for _ in 1..*passes {
                report = device::zero(file, size, progress)?;
            }
            zeroed(report)?
        }
        Method::Overwrite { passes } => {
            device::overwrite(file, size, *passes, progress).and_then(zeroed)?
        }
        Method::Discard => device::discard(file, size, progress).and_then(zeroed)?,
        Method::DeleteContents | Method::Command(_) => return Err(no_cleaner_of_devices(order)),
    };
    // What a cleaner has looked at itself is looked at again: this is the last look at the old data.
    device::check_reset(file, size)?;
    let (pv, path, means) = (&order.pv.name, &order.path, report.means.as_str());
    if let Some(fallback) = report.fallback {
        tracing::warn!(pv, %path, means, "{fallback}; it was made zero in the way of dd_zero.sh instead");
    }
    tracing::info!(pv, %path, means, "{}", report.means.outcome());
    Ok(())
}

/// The volume is a device, and its class has it cleaned in a way that is none for devices.
pub(super) fn no_cleaner_of_devices(order: &CleanOrder) -> Failure {
    let message = format!(
        "{} does not clean devices; correct the blockCleanerCommand of class {:?}",
        order.method, order.class.name
    );
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}

/// An external program opens the device itself, and programs such as mkfs want it for themselves: so
/// our exclusive descriptor is closed, the lock stays, and afterwards the device has to prove that
/// it is still the same one.
async fn external(
    order: &CleanOrder,
    identity: &str,
    device: Device,
    lock: &VolumeLock,
    words: &[String],
    progress: &Progress,
) -> Result<(), Failure> {
    let (number, size) = (device.number(), device.size());
    // The program looks the path up once more: at least it must lead to this device right now.
    device
        .recheck(order.mount_path.as_path())
        .map_err(|error| Failure::cleaning(&error))?;
    drop(device);
    let path = order.mount_path.as_path().as_os_str();
    let pv = order.pv.name.clone();
    let log = |line: &str| tracing::info!(pv, "cleaner: {line}");
    let env = [("LOCAL_PV_BLKDEVICE", path)];
    command::run(words, &env, lock.as_fd(), log, progress).await?;
    let (order, identity) = (order.clone(), identity.to_owned());
    blocking(move || {
        let device = open_exclusive(&order).map_err(|stop| match stop {
            Stop::Failed(failure) => failure,
            other => Failure::new(reasons::VOLUME_FAILED_DELETE, format!("after the cleaner ended: {other}")),
        })?;
        let machine = Machine::read().map_err(|error| Failure::cleaning(&error))?;
        let after = candidate_of_device(&device, &order.mount_path, &machine)
            .map_err(|error| Failure::cleaning(&error))?;
        if (device.number(), device.size()) != (number, size) || after.identity.text != identity {
            return Err(Failure::new(
                reasons::VOLUME_IDENTITY_MISMATCH,
                format!(
                    "while {:?} ran, another device took the place of {identity:?} at {}: {:?}; both need to be looked at",
                    describe(&order.class.block_cleaner_command), order.mount_path, after.identity.text
                ),
            ));
        }
        device::check_reset(device.file(), device.size())?;
        Ok(())
    })
    .await
}
