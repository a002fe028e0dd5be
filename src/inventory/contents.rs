//! Whether a volume is empty, for classes with `discoveryPolicy: EmptyOnly`.
//!
//! These are the checks that verify our own cleaning, so a cleaned volume is offered again. They read one directory,
//! or a few hundred KiB of a device, through the open descriptor.

use std::io;

use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::{signature, tree};

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

pub(super) fn of_filesystem(root: &FsRoot) -> io::Result<Contents> {
    match tree::check_empty(root.as_fd()) {
        Ok(()) => Ok(Contents::Empty),
        Err(WipeError::NotEmpty(path)) => Ok(Contents::Holds(format!("the entry {path}"))),
        Err(error) => Err(io::Error::other(error)),
    }
}

pub(super) fn of_device(device: &Device) -> io::Result<Contents> {
    let found = signature::find(device.file(), device.size(), &Progress::default());
    let found = found.map_err(io::Error::other)?;
    Ok(found.map_or(Contents::Empty, |signature| {
        Contents::Holds(format!("the signature of {signature}"))
    }))
}
