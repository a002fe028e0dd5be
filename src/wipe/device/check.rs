//! Verifies the result of a wipe.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use super::direct::{ALIGN, Direct};
use super::{DeviceError, ioctl};
use crate::wipe::progress::Progress;
use crate::wipe::signature;

/// The blocks that are read back after a device was zeroed, in addition to both ends.
const SAMPLES: u64 = 256;

/// Checks that a device has no known signature.
///
/// # Errors
/// [`DeviceError::SignatureLeft`] if it does.
pub fn check_reset(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    ioctl::drop_cache(device);
    match signature::find(device, size, progress)? {
        Some(signature) => Err(DeviceError::SignatureLeft(signature)),
        None => Ok(()),
    }
}

/// Reads both ends of a device, and blocks spread over it, from the disk itself.
///
/// This detects a disk that ignored the requests, but rarely one that lost a single write.
///
/// # Errors
/// [`DeviceError::NotZero`] if a byte is not zero.
pub fn check_zeroed(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    const BLOCK: u64 = ALIGN as u64;
    const END: u64 = 1 << 20;
    ioctl::drop_cache(device);
    let direct = Direct::new(device);
    let check = |range| direct.check_zero(range, progress);
    check(0..size.min(END))?;
    check(size.saturating_sub(END) / BLOCK * BLOCK..size)?;
    for sample in 0..SAMPLES {
        let start = size / SAMPLES * sample / BLOCK * BLOCK;
        check(start..size.min(start + BLOCK))?;
    }
    Ok(())
}

/// Checks that the size of a device has not changed: the new part of a grown device was not wiped.
pub fn same_size(mut device: &File, size: u64) -> Result<(), DeviceError> {
    match device.seek(SeekFrom::End(0)) {
        Ok(now) if now == size => Ok(()),
        Ok(now) => Err(DeviceError::Resized { size, now }),
        Err(error) => Err(DeviceError::io("read", size)(error)),
    }
}
