//! Writes marks on open and locked volumes.

use std::fmt::Display;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::crash::crash_point;
use crate::host::Machine;
use crate::host::access::{Access, OpenError};
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::identity::Identity;
use crate::host::lock::VolumeLock;
use crate::host::mark::{
    Mark, MarkError, MarkState, MarkedVolume, RootAttributes, StateDir, check_usable, header_hash,
};
use crate::inventory::{Candidate, Volume};
use crate::plan::{Agreement, MarkWrite, agreement, holds_leftovers, mark_of, reasons};
use crate::types::{MountPath, VolumeMode};
use crate::view::PvView;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;
use crate::wipe::tree;

use super::blocking::blocking;
use super::volume::Opened;
use super::{CleanupContext, Commit, Failure, Obstacle};

/// How often, and how long each time, the lock of a volume is waited for before its mark is written.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What the mark of a locked volume is found by.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    pub(crate) state: StateDir,
    pub(crate) class: String,
    pub(crate) path: MountPath,
    pub(crate) kind: VolumeMode,
    pub(crate) identity: Identity,
}

impl Marker {
    /// Writes a mark. Blocking.
    ///
    /// # Errors
    /// When it cannot be written durably.
    pub(super) fn write(&self, lock: &VolumeLock, mark: &Mark) -> Result<(), MarkError> {
        // The lock of a filesystem is on its root.
        let root = (self.kind == VolumeMode::Filesystem).then(|| lock.as_fd());
        let path = self.path.as_path();
        let volume = MarkedVolume::new(root, &self.identity, &self.class, path);
        self.state.write(&volume, mark).map(drop)
    }

    /// Writes the mark of a filesystem to the state directory, where it outlives the filesystem. Blocking.
    ///
    /// # Errors
    /// Likewise.
    pub(super) fn keep(&self, lock: &VolumeLock, mark: &Mark) -> Result<(), MarkError> {
        let (root, path) = (Some(lock.as_fd()), self.path.as_path());
        let volume = MarkedVolume::new(root, &self.identity, &self.class, path);
        self.state.keep(&volume, mark)
    }

    /// Records how clean the volume is, and restores what the offer recorded of its root.
    ///
    /// # Errors
    /// When the mark cannot be written durably.
    pub(crate) async fn free(
        self,
        mark: Option<Mark>,
        method: &Method,
        lock: VolumeLock,
    ) -> Result<VolumeLock, Failure> {
        let Some(mut mark) = mark else {
            return Ok(lock);
        };
        mark.state = MarkState::Free;
        mark.data_left = method.leaves_data();
        let work = move || {
            let errors = mark.root.as_ref().map(|root| root.restore(lock.as_fd()));
            for error in errors.into_iter().flatten() {
                tracing::warn!(error, "the root of the volume is not as it was offered");
            }
            if self.kind == VolumeMode::Filesystem {
                let usable = check_usable(lock.as_fd(), mark.root.as_ref());
                usable.map_err(|why| Failure::new(why.to_string()))?;
            }
            crash_point("mark-free");
            self.write(&lock, &mark)?;
            Ok(lock)
        };
        blocking(false, work).await
    }
}

/// Locks a volume exclusively. Waits for those who only read it for a moment, such as udev. Blocking.
fn lock_alone(volume: &Opened, path: &Path) -> Result<VolumeLock, OpenError> {
    for _ in 0..LOCK_ATTEMPTS {
        match VolumeLock::acquire(volume, path, Access::Clean) {
            Err(OpenError::Locked(_)) => thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
    VolumeLock::acquire(volume, path, Access::Clean)
}

/// Writes a mark, unless the volume or its mark has changed since the scan. Blocking.
///
/// # Errors
/// Why it is not written.
pub(super) fn write_mark(write: &MarkWrite, machine: &Machine) -> Result<(), Obstacle> {
    let mut mark = write.mark.clone();
    let (volume, identity, _lock) = lock_unchanged(&write.volume, &mark.class, machine)?;
    match &volume {
        Opened::Filesystem(root) if write.resets_root => {
            // Its contents may have come back since the scan.
            let reset = tree::check_empty(root.as_fd())
                .and_then(|()| tree::reset(root.as_fd(), &Progress::default()));
            reset.map_err(|error| unknown(&write.volume, &error))?;
            let found = || RootAttributes::read(root.as_fd()).ok();
            let offered = mark.root.take();
            mark.root = offered.or_else(|| found().map(RootAttributes::without_inherited));
            let restored = mark.root.as_ref().map(|it| it.restore(root.as_fd()));
            let failed = restored.unwrap_or_default();
            if !failed.is_empty() {
                let why = format!("its root cannot be reset: {}", failed.join(", "));
                return Err(unknown(&write.volume, &why));
            }
            if !mark.read_only {
                let usable = check_usable(root.as_fd(), mark.root.as_ref());
                usable.map_err(|why| unknown(&write.volume, &why))?;
            }
        }
        Opened::Filesystem(root) if mark.state == MarkState::Pending && !mark.is_adoption() => {
            mark.root = RootAttributes::read(root.as_fd()).ok();
        }
        // An adopted PV has no earlier mark.
        Opened::Device(device)
            if mark.state == MarkState::Pending
                || (mark.state == MarkState::Offered && mark.header.is_none()) =>
        {
            mark.header = Some(header_hash(device)?);
        }
        _ => {}
    }
    crash_point("write-mark");
    let marked = volume.marked(&write.volume.mount_path, &mark.class, &identity);
    let written = machine.state.write(&marked, &mark).map(drop);
    written.map_err(|error| unknown(&write.volume, &error))
}

fn unknown(volume: &Volume, error: &dyn Display) -> Obstacle {
    Obstacle::Unknown(format!("{}: {error}", volume.mount_path))
}

/// Opens and locks a volume that, with its mark, is as at the scan. Two provisioners of a rolling update must not both act
/// on what they have seen. Blocking.
///
/// # Errors
/// Why it is not the same.
pub(super) fn lock_unchanged(
    expected: &Volume,
    class: &str,
    machine: &Machine,
) -> Result<(Opened, Identity, VolumeLock), Obstacle> {
    let path = &expected.mount_path;
    let volume = match expected.candidate.kind {
        VolumeMode::Filesystem => {
            Opened::Filesystem(FsRoot::open(path.as_path(), &machine.mounts)?)
        }
        VolumeMode::Block => Opened::Device(Device::open(path.as_path(), Access::Probe)?),
    };
    let lock = lock_alone(&volume, path.as_path())?;
    let identity =
        volume.identity(path, &machine.sysfs).map_err(|error| unknown(expected, &error))?;
    let marked = volume.marked(path, class, &identity);
    // The marks of the machine may be older than the last write.
    let found =
        machine.state.read_of(&marked)?.find(&marked).map_err(|error| unknown(expected, &error))?;
    let is_same =
        identity == expected.candidate.identity && found.on_disk == expected.candidate.mark.on_disk;
    if !is_same {
        let why = "the volume or its mark has changed since the last scan";
        return Err(unknown(expected, &why));
    }
    Ok((volume, identity, lock))
}

/// Whether the mark of a locked volume allows to clean it.
///
/// # Errors
/// PV and mark contradict each other.
pub(super) fn judge(
    context: &CleanupContext,
    pv: &PvView,
    candidate: &Candidate,
) -> Result<(), Failure> {
    let state = context.state.borrow();
    let Some(cluster) = state.settings.judges(candidate) else {
        return Ok(());
    };
    match agreement(pv, cluster, candidate, context.cluster.now()) {
        Agreement::Agrees | Agreement::Lags(_) => Ok(()),
        Agreement::Mismatch(why) => Err(Failure::with_reason(reasons::VOLUME_MARK_MISMATCH, why)),
    }
}

/// The mark of a volume whose wipe begins. `None`: the volume can have none.
pub(super) fn wiping(context: &CleanupContext, pv: &PvView, candidate: &Candidate) -> Option<Mark> {
    let state = context.state.borrow();
    let cluster = state.settings.judges(candidate)?;
    let now = context.cluster.now();
    let mut mark = mark_of(pv, cluster, candidate, MarkState::Wiping, now);
    mark.release.clone_from(&pv.release);
    Some(mark)
}

/// Whether a volume is clean already, by its mark: an earlier process could not release its PV. Another release of the
/// same PV is that of another use, after a restore of etcd.
pub(super) fn is_free(commit: &Commit, candidate: &Candidate) -> bool {
    let (Some(found), Some(mark)) = (candidate.mark.on_disk.valid(), &commit.mark) else {
        return false;
    };
    let is_same = found.cluster == mark.cluster
        && found.pv_uid == mark.pv_uid
        && found.release == mark.release
        && mark.release.is_some();
    let is_its_disk = found.identity_hash == candidate.identity.hash();
    let order = &commit.order;
    let leftovers = holds_leftovers(&order.volume.class, &candidate.mark.on_disk);
    let is_free = found.state == MarkState::Free && !leftovers;
    is_same && is_its_disk && is_free && order.orphan_on.is_none()
}
