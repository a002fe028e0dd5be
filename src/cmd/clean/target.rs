//! The volume itself: opened, locked and judged, and held like this until it is clean.
//!
//! What is shown is read from the descriptors that are later written to, so that nobody confirms one
//! disk and wipes another.

use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::clean::Failure;
use crate::clean::device::{DeviceReport, verify_zeroed};
use crate::clean::method::Method;
use crate::clean::progress::Progress;
use crate::clean::trim::Trim;
use crate::clean::volume::Volume;
use crate::clean::wipe;
use crate::host::device::{Device, OpenError};
use crate::host::filesystem::{FsError, FsRoot};
use crate::host::lock::{LockError, VolumeLock};
use crate::plan::reasons;
use crate::scan::{Candidate, Machine, candidate_of_device};
use crate::types::MountPath;

use super::Refusal;
use super::judge::judge;
use super::needs::Needs;

/// How long to wait for whoever has a device or its lock. udev has both for a moment after each
/// change.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// What became of it.
#[derive(Debug)]
pub enum Done {
    /// A filesystem was emptied, and perhaps trimmed.
    Emptied(Option<Trim>),
    /// A device was wiped.
    Wiped {
        report: DeviceReport,
        /// Whether all of it was read back.
        verified: bool,
    },
}

/// A volume that may be cleaned, as far as this machine shows.
#[derive(Debug)]
pub struct Target {
    pub path: MountPath,
    pub volume: Volume,
    pub candidate: Candidate,
    /// The tables that it was judged by.
    pub machine: Machine,
    _lock: VolumeLock,
}

impl Target {
    /// Opens, locks and judges what is at a path. For a dry run a device is opened for reading only.
    pub fn open(path: &MountPath, dry_run: bool, needs: &Needs) -> Result<Self, Refusal> {
        let machine = machine(path)?;
        let volume = open(path, dry_run, &machine)?;
        let held = |error: &LockError| matches!(error, LockError::Held { .. });
        let lock = patiently(|| VolumeLock::acquire(volume.as_fd(), path.as_path()), held)
            .map_err(Refusal::Lock)?;
        let candidate = judge(&volume, path, &machine, needs)?;
        Ok(Self {
            path: path.clone(),
            volume,
            candidate,
            machine,
            _lock: lock,
        })
    }

    /// Whether no disk has the data.
    pub fn is_in_memory(&self) -> bool {
        matches!(&self.volume, Volume::Filesystem(root) if root.mount().fs_type == "tmpfs")
    }

    /// Makes sure that the path still leads to what was opened, and that it is still what was shown.
    pub fn look_again(&self, needs: &Needs) -> Result<(), Refusal> {
        let machine = machine(&self.path)?;
        match &self.volume {
            Volume::Filesystem(root) => {
                let now = open_filesystem(self.path.as_path(), &machine)?;
                let mount = |root: &FsRoot| (root.mount().id, root.device());
                if mount(&now) != mount(root) {
                    let now = judge(&Volume::Filesystem(now), &self.path, &machine, needs)?;
                    return Err(self.exchanged(&now));
                }
            }
            Volume::Device(device) => {
                device
                    .recheck(self.path.as_path())
                    .map_err(Refusal::Device)?;
            }
        }
        let now = judge(&self.volume, &self.path, &machine, needs)?;
        if now.identity == self.candidate.identity {
            Ok(())
        } else {
            Err(self.exchanged(&now))
        }
    }

    fn exchanged(&self, now: &Candidate) -> Refusal {
        Refusal::Exchanged {
            path: self.path.as_path().to_owned(),
            was: self.candidate.identity.to_string(),
            is: now.identity.to_string(),
        }
    }

    /// Deletes the data and makes sure that it is gone; afterwards the volume is let go. Blocking.
    pub fn wipe(
        self,
        method: &Method,
        trim: bool,
        verify: bool,
        progress: &Progress,
    ) -> Result<Done, Failure> {
        let device = match &self.volume {
            Volume::Filesystem(root) => {
                return wipe::empty(root, trim, progress).map(Done::Emptied);
            }
            Volume::Device(device) => device,
        };
        let report = wipe::reset(device, method, progress)?.ok_or_else(|| {
            let message = format!("{method} does not clean devices");
            Failure::new(reasons::VOLUME_FAILED_DELETE, message)
        })?;
        if verify {
            verify_zeroed(device.file(), device.size(), progress)?;
        }
        Ok(Done::Wiped {
            report,
            verified: verify,
        })
    }
}

/// The path as a PersistentVolume would have it: from the root, and without `..`.
pub fn absolute(path: &Path) -> Result<MountPath, Refusal> {
    let look = |source| Refusal::Look {
        path: path.to_owned(),
        source,
    };
    // What is above a symbolic link, only the kernel knows.
    let full = if path.components().any(|part| part == Component::ParentDir) {
        match (path.parent(), path.file_name()) {
            // In its own place a link may be refused.
            (Some(parent), Some(name)) => parent.canonicalize().map(|it| it.join(name)),
            _ => path.canonicalize(),
        }
    } else {
        std::path::absolute(path)
    };
    let full = full.map_err(look)?;
    let text = full.to_str().ok_or_else(|| Refusal::NotUtf8 {
        path: path.to_owned(),
    })?;
    MountPath::normalise(text).map_err(|fault| Refusal::Path {
        path: path.to_owned(),
        fault,
    })
}

/// All is judged by the mount table, so that there has to be one.
fn machine(path: &MountPath) -> Result<Machine, Refusal> {
    let machine = Machine::read().map_err(|source| Refusal::NoMountTable {
        path: path.as_path().to_owned(),
        source,
    })?;
    let complete = machine.mounts.complete();
    complete.map(|()| machine).map_err(Refusal::UnknownNeeds)
}

pub(super) fn looking_at(path: &Path) -> impl Fn(io::Error) -> Refusal {
    move |source| Refusal::Look {
        path: path.to_owned(),
        source,
    }
}

/// Opens a directory or a block device, and nothing else.
fn open(mount_path: &MountPath, dry_run: bool, machine: &Machine) -> Result<Volume, Refusal> {
    let path = mount_path.as_path();
    let leads_to = path.metadata().map_err(looking_at(path))?;
    if !leads_to.is_dir() {
        return open_device(mount_path, dry_run, machine).map(Volume::Device);
    }
    if path.is_symlink() {
        let target = path.canonicalize().map_err(looking_at(path))?;
        let path = path.to_owned();
        return Err(Refusal::Link { path, target });
    }
    open_filesystem(path, machine).map(Volume::Filesystem)
}

fn open_filesystem(path: &Path, machine: &Machine) -> Result<FsRoot, Refusal> {
    FsRoot::open(path, &machine.mounts).map_err(|error| match error {
        FsError::NotMounted { path } => Refusal::NotMounted { path },
        error => Refusal::Filesystem(error),
    })
}

fn open_device(
    mount_path: &MountPath,
    dry_run: bool,
    machine: &Machine,
) -> Result<Device, Refusal> {
    let path = mount_path.as_path();
    let open = if dry_run {
        Device::open_exclusive_readonly
    } else {
        Device::open_exclusive
    };
    let busy = |error: &OpenError| matches!(error, OpenError::InUse { .. });
    patiently(|| open(path), busy).map_err(|error| match error {
        OpenError::NotABlockDevice { path, .. } => Refusal::NoVolume { path },
        OpenError::NotAllowed { path, source } => Refusal::NotAllowed { path, source },
        OpenError::InUse { path } => match user(mount_path, machine) {
            Some(by) => Refusal::InUse { path, by },
            None => Refusal::Device(OpenError::InUse { path }),
        },
        error => Refusal::Device(error),
    })
}

/// Who keeps a device from being opened, where our tables show it.
fn user(path: &MountPath, machine: &Machine) -> Option<String> {
    let device = Device::open_readonly(path.as_path()).ok()?;
    candidate_of_device(&device, path, machine).ok()?.in_use
}

/// Tries again for a while what may pass.
fn patiently<T, E>(
    mut act: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match act() {
            Err(error) if may_pass(&error) && begun.elapsed() < PATIENCE => sleep(PAUSE),
            result => return result,
        }
    }
}
