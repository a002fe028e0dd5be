//! The wipe, and the check that it worked.

use std::path::PathBuf;
use std::time::Instant;

use nix::errno::Errno;

use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::lock::VolumeLock;
use crate::host::mounts::{Mount, MountTable};
use crate::plan::{CleanOrder, reasons};
use crate::types::MountPath;

use super::Failure;
use super::blocking::blocking;
use super::commit::Committed;
use super::external::{Target, external};
use super::gate::no_cleaner_of_devices;
use super::volume::Volume;
use crate::wipe::device::{DeviceReport, WipeOutcome};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;
use crate::wipe::trim::Trim;
use crate::wipe::{device, tree, trim};

/// A volume that was wiped, checked and synced. Only a value of this type can be released.
///
/// It holds the volume's lock, and no slot: the API server may refuse the release for ever.
#[derive(Debug)]
pub struct Wiped {
    pub(super) cleaned: Cleaned,
    /// What cleaned, in the words of the metrics' label `type`.
    pub(super) by: &'static str,
    /// When it began.
    pub(super) begun: Instant,
}

/// A volume whose data is gone.
#[derive(Debug)]
pub(super) struct Cleaned {
    pub(super) order: CleanOrder,
    /// What became of the data on a device, if that is known.
    pub(super) means: Option<WipeOutcome>,
    #[expect(dead_code, reason = "locked until it is dropped")]
    pub(super) lock: VolumeLock,
}

impl Committed {
    /// Deletes the data and makes sure that it is gone.
    ///
    /// # Errors
    /// [`Failure`] with the cause. What is left then is cleaned again later, from the beginning.
    pub(super) async fn wipe(self, progress: &Progress) -> Result<Cleaned, Failure> {
        let Self {
            order,
            identity,
            volume,
            lock,
        } = self;
        crash_point("wipe");
        let progress = progress.clone();
        let (mut means, idle) = (None, volume.is_alone());
        // The lock goes where the work is: a cleaner that outlives this task, hanging in a system call,
        // still holds it.
        let lock = match volume {
            Volume::Filesystem(root) => {
                let (path, trim) = (order.mount_path.clone(), order.class.trim);
                blocking(idle, move || {
                    filesystem(&root, &path, trim, &progress).map(|()| lock)
                })
                .await?
            }
            Volume::Device(device) => {
                if let Method::Command(words) = &order.method {
                    let target = Target {
                        pv: order.pv.name.clone(),
                        path: order.mount_path.clone(),
                        identity,
                    };
                    external(&target, device, &lock, words, &progress).await?;
                    lock
                } else {
                    let order = order.clone();
                    let native = move || Ok((native(&order, &device, &progress)?, lock));
                    let (by, lock) = blocking(idle, native).await?;
                    means = Some(by);
                    lock
                }
            }
        };
        Ok(Cleaned { order, means, lock })
    }
}

/// [`empty`], and a word in the log.
fn filesystem(
    root: &FsRoot,
    path: &MountPath,
    trim: bool,
    progress: &Progress,
) -> Result<(), Failure> {
    let trimmed = empty(root, trim, progress)?;
    tracing::debug!(%path, removed = progress.entries(), "the directory is empty");
    match trimmed {
        None => {}
        Some(Trim::Done { bytes }) => tracing::debug!(%path, bytes, "trimmed what is free"),
        Some(Trim::NotOffered(errno)) => tracing::debug!(%path, %errno, "nothing to trim with"),
        Some(Trim::Failed(errno)) => tracing::warn!(
            %path,
            %errno,
            "the volume is empty, but trimming its filesystem failed: what was deleted stays on the disk until it is overwritten; look at the kernel log"
        ),
        Some(Trim::OutOfTime) => tracing::warn!(
            %path,
            "the volume is empty, but the cleanupTimeout of its class left no time to trim its filesystem: some of what was deleted stays on the disk until it is overwritten"
        ),
    }
    Ok(())
}

/// Empties a filesystem, and if `trim` is set tells the disk below it which blocks are free; returns
/// what came of that.
pub(crate) fn empty(
    root: &FsRoot,
    trim: bool,
    progress: &Progress,
) -> Result<Option<Trim>, Failure> {
    let nested = nested_mounts(root.mount())?;
    tree::empty(root.as_fd(), &nested, progress)?;
    is_gone(root)?;
    if !trim {
        return Ok(None);
    }
    progress.data_is_gone();
    let trimmed = trim::trim(root.as_fd(), progress).map_err(tree::TreeError::from)?;
    if let Trim::Failed(errno @ (Errno::EIO | Errno::EROFS)) = trimmed {
        let message = format!(
            "the volume is empty, but trimming its filesystem failed ({errno}), so its disk may be broken: look at the \
             kernel log; to do without, set trim of its class to false"
        );
        return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message));
    }
    // That may have taken minutes, in which somebody wrote or the disk broke.
    is_gone(root)?;
    Ok(Some(trimmed))
}

/// Makes sure that nothing is in a volume, and that the disk knows.
fn is_gone(root: &FsRoot) -> Result<(), Failure> {
    crash_point("verify");
    tree::sync(root.as_fd())?;
    tree::check_empty(root.as_fd())?;
    Ok(())
}

fn nested_mounts(volume: &Mount) -> Result<Vec<PathBuf>, Failure> {
    let table = MountTable::read().map_err(|error| Failure::cleaning(&error))?;
    let inside = table.inside(volume.device, &volume.root);
    Ok(inside.map(|mount| mount.point.clone()).collect())
}

/// [`reset`], and a word in the log.
fn native(
    order: &CleanOrder,
    device: &Device,
    progress: &Progress,
) -> Result<WipeOutcome, Failure> {
    let report =
        reset(device, &order.method, progress)?.ok_or_else(|| no_cleaner_of_devices(order))?;
    let (pv, path, means) = (&order.pv.name, &order.path, report.means.as_str());
    if let Some(fallback) = report.fallback {
        tracing::warn!(pv, %path, means, "{fallback}; it was made zero in another way instead");
    }
    tracing::info!(pv, %path, means, "{}", report.means.outcome());
    Ok(report.means)
}

/// Wipes a device by one of our own methods, and checks the result. `None`, and nothing done, for a
/// method that is none of these.
pub(crate) fn reset(
    device: &Device,
    method: &Method,
    progress: &Progress,
) -> Result<Option<DeviceReport>, Failure> {
    let (file, size) = (device.file(), device.size());
    let zeroed = |report| device::check_zeroed(file, size, progress).map(|()| report);
    let report = match method {
        Method::QuickReset => device::quick_reset(file, size, progress)?,
        Method::Zero { passes } => {
            device::zero_times(file, size, *passes, progress).and_then(zeroed)?
        }
        Method::Overwrite { passes } => {
            device::overwrite(file, size, *passes, progress).and_then(zeroed)?
        }
        Method::Discard => device::discard(file, size, progress).and_then(zeroed)?,
        Method::DeleteContents | Method::Command(_) => return Ok(None),
    };
    crash_point("verify");
    // What a cleaner has looked at itself is looked at again: this is the last look at the old data.
    device::check_reset(file, size, progress)?;
    Ok(Some(report))
}
