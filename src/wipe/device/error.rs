//! What can go wrong with a device.

use std::io;

use crate::wipe::progress::Cancelled;
use crate::wipe::signature::Signature;

/// Why a device could not be wiped.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device or the kernel refused.
    #[error(
        "cannot {what} the device at byte {offset}: {source}; look at the kernel log, the disk may be failing"
    )]
    Io {
        /// The verb: read, write, punch, discard.
        what: &'static str,
        /// In bytes from the start of the device: of a read or write, the sector that failed if it
        /// fails again, and else where the step began.
        offset: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Something that was written before did not get to the disk; the kernel does not say what.
    #[error(
        "cannot get what was written to the device out of its cache: {0}; look at the kernel log, the disk may be failing"
    )]
    Flush(#[source] io::Error),
    /// It has another end than when the wipe began.
    #[error(
        "the device had {size} bytes and now has {now}; cleaning starts again from the beginning"
    )]
    Resized {
        /// In bytes, when the wipe began.
        size: u64,
        /// In bytes, afterwards.
        now: u64,
    },
    /// The check afterwards found something.
    #[error(
        "the device was wiped, and yet shows a signature: {0}; something else is writing to it, or it does not keep what is written"
    )]
    SignatureLeft(Signature),
    /// The check afterwards found something.
    #[error(
        "the device was zeroed, and yet its byte {offset} is not zero; something else is writing to it, or it does not keep what is written"
    )]
    NotZero {
        /// Of the first such byte that was seen, from the start of the device.
        offset: u64,
    },
    /// Without them there is nothing to overwrite the device with.
    #[error(
        "cannot get random bytes from the kernel to overwrite the device with; does a seccomp profile forbid getrandom?"
    )]
    NoRandomBytes,
    /// It was told to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl DeviceError {
    /// One word for metrics and events.
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

    /// Where on the device it happened, if it has to do with a place.
    pub(super) fn place(&self) -> Option<u64> {
        match self {
            Self::Io { offset, .. } | Self::NotZero { offset } => Some(*offset),
            Self::SignatureLeft(signature) => Some(signature.offset),
            Self::Flush(_) | Self::Resized { .. } | Self::NoRandomBytes | Self::Cancelled(_) => {
                None
            }
        }
    }
}
