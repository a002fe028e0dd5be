//! Whether a volume holds something, for classes that offer empty ones only.
//!
//! A volume is empty by the very checks that end our own cleaning, so that a volume that was cleaned
//! is offered again. They read one directory, or a few hundred KiB of a device, through the descriptor
//! that is open already.

use std::io;

use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::wipe::signature;
use crate::wipe::tree::{self, TreeError};

/// What looking into a volume showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nobody looked: it has a PV, it is in use, or its class does not care.
    NotLookedAt,
    /// Nothing, or a `lost+found` with nothing in it; of a device, no known signature.
    Empty,
    /// Something, of which this is the first that was found, in words.
    Holds(String),
}

pub(super) fn of_filesystem(root: &FsRoot) -> io::Result<Contents> {
    match tree::check_empty(root.as_fd()) {
        Ok(()) => Ok(Contents::Empty),
        Err(TreeError::NotEmpty { path }) => Ok(Contents::Holds(format!("the entry {path}"))),
        Err(error) => Err(io::Error::other(error)),
    }
}

pub(super) fn of_device(device: &Device) -> io::Result<Contents> {
    let found = signature::find(device.file(), device.size())?;
    Ok(found.map_or(Contents::Empty, |signature| {
        Contents::Holds(format!("the signature of {signature}"))
    }))
}
