//! Wipes a committed volume and verifies the result.

use std::path::PathBuf;

use futures::FutureExt;
use nix::errno::Errno;
use tokio::time::timeout;

use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::mark::{Mark, MarkError, MarkOnDisk, MarkState};
use crate::host::mounts::{Mount, MountTable};
use crate::inventory::Candidate;
use crate::wipe::device::{Disk, WipeOutcome};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;
use crate::wipe::trim::Trim;
use crate::wipe::{tree, trim};

use super::blocking::{PROBE_TIMEOUT, blocking};
use super::external::external;
use super::format;
use super::volume::{OpenVolume, Opened};
use super::{BoxedVolume, CleanVolume, Cleaning, Commit, Failure, Lock, LockedVolume, Marking};

impl LockedVolume for OpenVolume {
    fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    fn mark(self: Box<Self>, commit: &Commit, state: MarkState) -> Marking {
        let mark = commit.mark_in(state, &self.candidate.mark.on_disk);
        let work = move || {
            let written = mark.map(|mark| self.marker.write(&self.lock, &mark));
            match written.unwrap_or(Ok(())) {
                // A full filesystem that never had a mark: the wipe makes room for the next one.
                Err(MarkError::NoPlace(why))
                    if self.candidate.mark.on_disk == MarkOnDisk::Absent =>
                {
                    tracing::warn!(why, "the volume is cleaned without a mark");
                }
                written => written?,
            }
            Ok(self as BoxedVolume)
        };
        let write = async {
            crash_point("mark-wiping");
            let written = timeout(PROBE_TIMEOUT, blocking(false, work)).await;
            written.unwrap_or_else(|_| {
                let message = "writing the mark to the disk or the state directory timed out";
                Err(Failure::new(message))
            })
        };
        write.boxed()
    }

    fn wipe<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a> {
        let (order, mark) = (&commit.order, commit.mark.clone());
        if order.method == Method::Reformat {
            return self.reformat(commit, progress).boxed();
        }
        let trim = order.volume.class.trim;
        self.clean(&order.method, trim, mark, progress).boxed()
    }

    fn verify<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a> {
        let (method, progress) = (commit.order.method.clone(), progress.clone());
        let this = *self;
        // The check owns the lock: it may hang in a system call and outlive this task.
        let check = move || match this.volume {
            Opened::Device(device) => {
                Ok((super::job::check(&method, &device, &progress)?, this.lock))
            }
            Opened::Filesystem(_) => {
                let message = "a Job cleans only devices; this is a bug";
                Err(Failure::new(message))
            }
        };
        let verify = async move {
            let (data_left, lock) = blocking(true, check).await?;
            let mark = commit.mark.clone();
            let lock = Box::new(this.marker.free(mark, &commit.order.method, lock).await?);
            Ok(CleanVolume { data_left, lock })
        };
        verify.boxed()
    }

    fn close(self: Box<Self>) -> Lock {
        Box::new(self.lock)
    }
}

impl OpenVolume {
    /// Deletes the data, verifies that it is gone, and writes `mark` as free.
    ///
    /// `method` concerns devices only, and `trim` filesystems only.
    ///
    /// # Errors
    /// [`Failure`] with the cause. Data may be left.
    pub(crate) async fn clean(
        self,
        method: &Method,
        trim: bool,
        mark: Option<Mark>,
        progress: &Progress,
    ) -> Result<CleanVolume, Failure> {
        let (lock, marker) = (self.lock, self.marker);
        let (idle, of_thread) = (self.volume.allows_idle_io(), progress.clone());
        // The thread owns the lock: it may hang in a system call and outlive this task.
        let (outcome, lock) = match (self.volume, method.clone()) {
            (Opened::Filesystem(root), _) => {
                let work = move || empty(&root, trim, &of_thread).map(|()| (None, lock));
                blocking(idle, work).await?
            }
            (Opened::Device(device), Method::Command(words)) => {
                external(&marker, device, &lock, &words, progress).await?;
                (None, lock)
            }
            (Opened::Device(device), method) => {
                let work = move || Ok((Some(reset(&device, &method, &of_thread)?), lock));
                blocking(idle, work).await?
            }
        };
        if let Some(outcome) = outcome {
            tracing::info!("{}", outcome.as_str());
        }
        let lock = Box::new(marker.free(mark, method, lock).await?);
        let data_left = outcome == Some(WipeOutcome::SignaturesOnly);
        Ok(CleanVolume { data_left, lock })
    }

    /// Makes the filesystem again, and writes the mark as free.
    async fn reformat(self, commit: &Commit, progress: &Progress) -> Result<CleanVolume, Failure> {
        let (order, mark) = (&commit.order, commit.mark.clone());
        let rule = order.volume.class.devices.clone();
        let (Opened::Filesystem(root), Some(rule), Some(of_disk)) =
            (self.volume, rule, mark.clone())
        else {
            let message = "a filesystem is made again only with a mark; set STATE_DIRECTORY to a mounted host directory";
            return Err(Failure::new(message));
        };
        let lock = format::reformat(root, self.lock, &self.marker, rule, of_disk, progress).await?;
        let lock = Box::new(self.marker.free(mark, &order.method, lock).await?);
        let data_left = false;
        Ok(CleanVolume { data_left, lock })
    }
}

/// Empties a filesystem and trims it if `trim` is set. Logs if deleted data can still be read from the disk.
fn empty(root: &FsRoot, trim: bool, progress: &Progress) -> Result<(), Failure> {
    let nested = nested_mounts(root.mount())?;
    tree::empty(root.as_fd(), &nested, progress)?;
    check_gone(root)?;
    if !trim {
        return Ok(());
    }
    let trimmed = trim::trim_rarely(root.as_fd(), root.mount().device, progress)?;
    tracing::debug!(removed = progress.entries(), ?trimmed, "the directory is empty");
    match trimmed {
        Trim::Failed(errno @ (Errno::EIO | Errno::EROFS)) => {
            let message = format!(
                "the volume is empty, but trimming its filesystem failed ({errno}), so its disk may be broken: see the \
                 kernel log; to clean without trim, set trim of its class to false"
            );
            return Err(Failure::new(message));
        }
        Trim::Failed(errno) => {
            tracing::warn!(
                "the volume is empty, but its filesystem is not trimmed ({errno}; see the kernel log): deleted data stays on the disk until it is overwritten"
            );
        }
        Trim::TooEarly => {
            tracing::info!(
                "the volume is empty; its filesystem was trimmed less than 10 minutes ago, so a later cleanup trims it again"
            );
        }
        Trim::Done { .. } | Trim::NotOffered(_) => {}
    }
    // Verified again: the trim may take minutes, in which a process may write or the disk may fail.
    check_gone(root)
}

/// Syncs the volume and checks that it is empty.
fn check_gone(root: &FsRoot) -> Result<(), Failure> {
    crash_point("verify");
    tree::sync(root.as_fd())?;
    tree::check_empty(root.as_fd())?;
    Ok(())
}

fn nested_mounts(volume: &Mount) -> Result<Vec<PathBuf>, Failure> {
    let table = MountTable::read()?;
    let inside = table.inside(volume.device, &volume.root);
    Ok(inside.map(|mount| mount.point.clone()).collect())
}

/// Wipes a device by a built-in method and verifies the result.
fn reset(device: &Device, method: &Method, progress: &Progress) -> Result<WipeOutcome, Failure> {
    let disk = Disk::new(device.file(), device.size(), progress);
    let zeroed = |wiped| disk.check_zeroed().map(|()| wiped);
    let wiped = match method {
        Method::QuickReset => disk.quick_reset()?,
        Method::Zero(passes) => disk.zero(*passes).and_then(zeroed)?,
        Method::Overwrite(passes) => disk.overwrite(*passes).and_then(zeroed)?,
        Method::Discard => disk.discard().and_then(zeroed)?,
        Method::DeleteContents | Method::Reformat | Method::Command(_) => {
            let message = format!("{method} does not clean devices");
            return Err(Failure::new(message));
        }
    };
    crash_point("verify");
    // Also after cleaners that verify their own result: this is the last check before the release.
    disk.check_reset()?;
    Ok(wiped)
}
