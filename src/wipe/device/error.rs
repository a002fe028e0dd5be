//! The errors of wiping a device.

use std::io;

use crate::wipe::progress::Cancelled;
use crate::wipe::signature::Signature;

/// Why a device could not be wiped.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device or the kernel returned an error.
    #[error(
        "cannot {what} the device at byte {offset}: {source}; the kernel log names the sector, the disk may be failing"
    )]
    Io {
        /// The verb: read, write, punch, discard.
        what: &'static str,
        /// The start of the failed request, in bytes from the start of the device. The kernel log names the sector.
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
        /// The offset of such a byte from the start of the device.
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
    pub(in crate::wipe) fn io(what: &'static str, offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            offset,
            source,
        }
    }
}
