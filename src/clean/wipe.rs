//! The wipe, and the check that it worked.

use std::path::{Path, PathBuf};

use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::lock::VolumeLock;
use crate::host::mounts::MountTable;
use crate::plan::{CleanOrder, reasons};
use crate::scan::{Machine, candidate_of_device};
use crate::types::MountPath;

use super::commit::Committed;
use super::device::Means;
use super::gate::{Volume, open_exclusive};
use super::method::Method;
use super::permit::Permit;
use super::priority::IdleIo;
use super::progress::Progress;
use super::trim::Trim;
use super::{Failure, Stop, command, device, tree, trim};

/// A volume that was wiped, checked and synced. Only a value of this type can be released.
#[derive(Debug)]
pub struct Wiped {
    pub(super) order: CleanOrder,
    /// What became of the data on a device, if one of our own cleaners did it.
    pub(super) means: Option<Means>,
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
        let mut means = None;
        // The lock goes where the work is: a cleaner that outlives this task, hanging in a system call,
        // still holds it.
        let lock = match volume {
            Volume::Filesystem(root) => {
                let (path, trim) = (order.mount_path.clone(), order.class.trim);
                blocking(move || filesystem(&root, &path, trim, &progress).map(|()| lock)).await?
            }
            Volume::Device(device) => {
                if let Method::Command(words) = &order.method {
                    external(&order, &identity, device, &lock, words, &progress).await?;
                    lock
                } else {
                    let order = order.clone();
                    let native = move || Ok((native(&order, &device, &progress)?, lock));
                    let (by, lock) = blocking(native).await?;
                    means = Some(by);
                    lock
                }
            }
        };
        Ok(Wiped {
            order,
            means,
            _lock: lock,
            _permit: permit,
        })
    }
}

/// Runs a cleaner where it can block, and last in the queue for the disk. Its own panic is a failure
/// like any other.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let idle_work = || {
        let _idle = IdleIo::begin();
        work()
    };
    tokio::task::spawn_blocking(idle_work)
        .await
        .unwrap_or_else(|error| {
            let message = format!("the cleaner ended in a panic ({error}); this is a bug");
            Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
        })
}

/// Empties a filesystem, and tells the disk below it which blocks are free.
fn filesystem(
    root: &FsRoot,
    path: &MountPath,
    trim: bool,
    progress: &Progress,
) -> Result<(), Failure> {
    let nested = nested_mounts(&root.mount().point)?;
    let report = tree::empty(root.as_fd(), &nested, progress)?;
    tree::sync(root.as_fd())?;
    tree::check_empty(root.as_fd())?;
    tracing::debug!(%path, removed = report.removed, "the directory is empty");
    if !trim {
        return Ok(());
    }
    match trim::trim(root.as_fd(), progress).map_err(tree::TreeError::from)? {
        Trim::Done { bytes } => tracing::debug!(%path, bytes, "trimmed what is free"),
        Trim::NotOffered(errno) => tracing::debug!(%path, %errno, "nothing to trim with"),
        Trim::Failed(errno) => tracing::warn!(
            %path,
            %errno,
            "the volume is empty, but trimming its filesystem failed: what was deleted stays on the disk until it is overwritten; look at the kernel log"
        ),
    }
    Ok(())
}

fn nested_mounts(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let table = MountTable::read().map_err(|error| Failure::cleaning(&error))?;
    Ok(table.below(path).map(|mount| mount.point.clone()).collect())
}

fn native(order: &CleanOrder, device: &Device, progress: &Progress) -> Result<Means, Failure> {
    let (file, size) = (device.file(), device.size());
    let zeroed = |report| device::check_zeroed(file, size).map(|()| report);
    let report = match &order.method {
        Method::QuickReset => device::quick_reset(file, size, progress)?,
        Method::Zero { passes } => {
            device::zero_times(file, size, *passes, progress).and_then(zeroed)?
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
    Ok(report.means)
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
                    order.class.cleaner.to_string(), order.mount_path, after.identity.text
                ),
            ));
        }
        device::check_reset(device.file(), device.size())?;
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::priority::is_idle;

    #[test]
    fn cleaners_come_last_at_the_disk_and_what_their_thread_does_next_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            assert_eq!(blocking(|| Ok(is_idle())).await, Ok(true));
            let next = tokio::task::spawn_blocking(is_idle).await;
            assert!(!next.unwrap());
        });
    }
}
