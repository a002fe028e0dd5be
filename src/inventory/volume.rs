//! An open volume, what it is, and whether it is empty.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::host::Machine;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::footprint::Footprint;
use crate::host::identity::{self, GlobalIdentity, Identity};
use crate::host::mark::{
    Mark, MarkFact, MarkOnDisk, MarkState, MarkedVolume, RootAttributes, header_hash,
};
use crate::host::sysfs::Sysfs;
use crate::host::users::device_user;
use crate::types::{MountPath, VolumeMode};
use crate::wipe::device::Disk;
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::signature;
use crate::wipe::tree;

use super::Candidate;

/// What is in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Not read: it has a PV, it is in use, or its class offers volumes with data.
    NotLookedAt,
    /// Nothing but an empty `lost+found`; on a device, no known signature.
    Empty,
    /// Data; this names the first that was found.
    Holds(String),
}

/// An open volume.
#[derive(Debug)]
pub(crate) enum Opened {
    /// The root directory of the filesystem that is mounted at the path.
    Filesystem(FsRoot),
    /// The device. A cleanup opens it exclusively.
    Device(Device),
}

impl Opened {
    /// Identifies it. `path` is where it is offered by a class.
    ///
    /// # Errors
    /// When the kernel does not answer, or its mark cannot be read.
    pub(crate) fn candidate(
        &self,
        path: &MountPath,
        class: &str,
        machine: &Machine,
    ) -> io::Result<Candidate> {
        let sysfs = &machine.sysfs;
        let identity = self.identity(path, sysfs)?;
        let mut candidate = match self {
            Self::Filesystem(root) => {
                let (capacity, read_only) = root.size_and_read_only()?;
                Candidate {
                    kind: VolumeMode::Filesystem,
                    capacity,
                    global: GlobalIdentity::of_filesystem(root, &identity, sysfs)?,
                    identity,
                    footprint: Footprint::of_filesystem(root, sysfs)?,
                    read_only,
                    in_use: None,
                    contents: Contents::NotLookedAt,
                    rotational: BTreeSet::new(),
                    mark: MarkFact::default(),
                    is_as_offered: false,
                    is_blank: false,
                    root: None,
                }
            }
            Self::Device(device) => {
                let facts = sysfs.device(device.number())?;
                Candidate {
                    kind: VolumeMode::Block,
                    capacity: device.size(),
                    global: GlobalIdentity::of_device(device.number(), &identity, sysfs)?,
                    identity,
                    footprint: Footprint::of_device(&facts),
                    read_only: facts.read_only,
                    in_use: device_user(&facts, machine)?,
                    contents: Contents::NotLookedAt,
                    rotational: BTreeSet::new(),
                    mark: MarkFact::default(),
                    is_as_offered: false,
                    is_blank: false,
                    root: None,
                }
            }
        };
        let below =
            candidate.footprint.devices().iter().filter_map(|number| sysfs.device(*number).ok());
        let rotational = below.filter(|facts| facts.rotational);
        candidate.rotational = rotational.map(|facts| facts.disk).collect();
        if !machine.state.is_open() {
            return Ok(candidate);
        }
        let marked = self.marked(path, class, &candidate.identity);
        candidate.mark = machine.marks.find(&marked)?;
        if let MarkOnDisk::Valid(mark) = &candidate.mark.on_disk {
            candidate.is_as_offered = match self {
                Self::Device(device) if needs_header(mark, &candidate.identity) => {
                    mark.header == Some(header_hash(device)?)
                }
                Self::Device(_) => false,
                Self::Filesystem(root) => match &mark.root {
                    Some(recorded) if recorded.is_owner_of(root.as_fd())? => true,
                    _ if mark.state == MarkState::Offered => {
                        candidate.root = RootAttributes::read(root.as_fd()).ok();
                        candidate.root.is_none()
                    }
                    recorded => recorded.is_none(),
                },
            };
        }
        Ok(candidate)
    }

    /// Its identity at the path where it is offered.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(crate) fn identity(&self, path: &MountPath, sysfs: &Sysfs) -> io::Result<Identity> {
        match self {
            Self::Filesystem(root) => identity::of_filesystem(root, sysfs),
            Self::Device(device) => identity::of_device(device, path.as_path(), sysfs),
        }
    }

    /// What its mark is found by.
    pub(crate) fn marked<'a>(
        &'a self,
        path: &'a MountPath,
        class: &'a str,
        identity: &'a Identity,
    ) -> MarkedVolume<'a> {
        let root = match self {
            Self::Filesystem(root) => Some(root.as_fd()),
            Self::Device(_) => None,
        };
        MarkedVolume::new(root, identity, class, path.as_path())
    }

    /// Looks for data, for classes with `discoveryPolicy: EmptyOnly`.
    ///
    /// These are the checks that verify our own cleaning, so a cleaned volume is offered again. They read one
    /// directory, or a few hundred KiB of a device, through the open descriptor.
    ///
    /// # Errors
    /// When the volume cannot be read.
    pub(super) fn contents(&self) -> io::Result<Contents> {
        let data = match self {
            Self::Filesystem(root) => match tree::check_empty(root.as_fd()) {
                Ok(()) => None,
                Err(WipeError::NotEmpty(path)) => Some(format!("the entry {path}")),
                Err(error) => return Err(io::Error::other(error)),
            },
            Self::Device(device) => {
                let found =
                    signature::find(Disk::new(device.file(), device.size(), &Progress::default()));
                let found = found.map_err(io::Error::other)?;
                found.map(|signature| format!("the signature of {signature}"))
            }
        };
        Ok(data.map_or(Contents::Empty, Contents::Holds))
    }
}

/// Whether the header of a device decides something: an offer was interrupted, or only the header can tell whether an
/// unused device without a name is that of the mark, which was written before the last reboot.
fn needs_header(mark: &Mark, identity: &Identity) -> bool {
    let is_unproven = || identity.weak && mark.identity_hash != identity.hash();
    match mark.state {
        MarkState::Pending => true,
        MarkState::Offered | MarkState::Free => is_unproven(),
        MarkState::Used | MarkState::Wiping => false,
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Filesystem(root) => root.as_fd(),
            Self::Device(device) => device.file().as_fd(),
        }
    }
}
