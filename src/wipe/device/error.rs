//! The errors of wiping a device.

use std::io;

use crate::wipe::progress::Cancelled;
use crate::wipe::signature::Signature;

/// Why a device could not be wiped.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device or the kernel returned an error.
    #[error(
        "cannot {what} the device at byte {offset}: {source}; look at the kernel log, the disk may be failing"
    )]
    Io {
        /// The verb: read, write, punch, discard.
        what: &'static str,
        /// In bytes from the start of the device: the failing sector of a read or write if its retry fails,
        /// else the start of the step.
        offset: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An earlier write did not reach the disk. The kernel does not report which.
    #[error(
        "cannot flush writes to the device: {0}; look at the kernel log, the disk may be failing"
    )]
    Flush(#[source] io::Error),
    /// Its size changed during the wipe.
    #[error(
        "the size of the device changed from {size} to {now} bytes; cleaning starts again from the beginning"
    )]
    Resized {
        /// In bytes, when the wipe began.
        size: u64,
        /// In bytes, afterwards.
        now: u64,
    },
    /// The verification found a signature.
    #[error(
        "the device was wiped, but shows a signature: {0}; another process is writing to it, or the device loses writes"
    )]
    SignatureLeft(Signature),
    /// The verification found a byte that is not zero.
    #[error(
        "the device was zeroed, but byte {offset} is not zero; another process is writing to it, or the device loses writes"
    )]
    NotZero {
        /// The offset of the first such byte that was read, from the start of the device.
        offset: u64,
    },
    /// The kernel returned no random bytes for the overwrite.
    #[error(
        "cannot get random bytes from the kernel to overwrite the device; allow getrandom in the seccomp profile"
    )]
    NoRandomBytes,
    /// It was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl DeviceError {
    /// The reason in CamelCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io { .. } | Self::Flush(_) => "IoError",
            Self::Resized { .. } => "Resized",
            Self::SignatureLeft(_) => "SignatureLeft",
            Self::NotZero { .. } => "NotZero",
            Self::NoRandomBytes => "NoRandomBytes",
            Self::Cancelled(_) => "Cancelled",
        }
    }

    pub(super) fn io(what: &'static str, offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            offset,
            source,
        }
    }

    /// The offset on the device, if the error has one.
    pub(super) fn offset(&self) -> Option<u64> {
        match self {
            Self::Io { offset, .. } | Self::NotZero { offset } => Some(*offset),
            Self::SignatureLeft(signature) => Some(signature.offset),
            Self::Flush(_) | Self::Resized { .. } | Self::NoRandomBytes | Self::Cancelled(_) => {
                None
            }
        }
    }
}
