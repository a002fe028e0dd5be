//! Verifies the result of a wipe.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use super::direct::{ALIGN, Direct};
use super::{DeviceError, ioctl};
use crate::wipe::progress::Progress;
use crate::wipe::signature::{self, ReadAt};

/// The blocks that are read back after a device was zeroed, in addition to both ends.
const SAMPLES: u64 = 256;

/// Checks that a device has no known signature.
///
/// # Errors
/// [`DeviceError::SignatureLeft`] if it does.
pub fn check_reset(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    ioctl::drop_cache(device);
    match reading(device, progress, |device| signature::find(device, size))? {
        Some(signature) => Err(DeviceError::SignatureLeft(signature)),
        None => Ok(()),
    }
}

/// Reads both ends of a device, and blocks spread over it, from the disk itself.
///
/// This detects a disk that ignored the requests, but rarely one that lost a single write. Use
/// [`verify_zeroed`] for that.
///
/// # Errors
/// [`DeviceError::NotZero`] if a byte is not zero.
pub fn check_zeroed(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    const BLOCK: u64 = ALIGN as u64;
    const END: u64 = 1 << 20;
    ioctl::drop_cache(device);
    let direct = Direct::new(device);
    let check = |range| direct.check_sample(range, progress);
    check(0..size.min(END))?;
    check(size.saturating_sub(END) / BLOCK * BLOCK..size)?;
    for sample in 0..SAMPLES {
        let start = size / SAMPLES * sample / BLOCK * BLOCK;
        check(start..size.min(start + BLOCK))?;
    }
    Ok(())
}

/// Reads a device from its first to its last byte, from the disk itself.
///
/// It takes about as long as writing the device. It counts its progress and can be cancelled like a wipe.
///
/// # Errors
/// [`DeviceError::NotZero`] with the first byte that is not zero, and [`DeviceError::Io`] if a byte before
/// it cannot be read.
pub fn verify_zeroed(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    progress.expect_bytes(size);
    ioctl::drop_cache(device);
    Direct::new(device).check_zero(0..size, progress)?;
    same_size(device, size)
}

/// Checks that the size of a device has not changed: the new part of a grown device was not wiped.
pub fn same_size(mut device: &File, size: u64) -> Result<(), DeviceError> {
    match device.seek(SeekFrom::End(0)) {
        Ok(now) if now == size => Ok(()),
        Ok(now) => Err(DeviceError::Resized { size, now }),
        Err(error) => Err(DeviceError::io("read", size)(error)),
    }
}

/// Runs a read function and adds the offset of the failed read to its error.
pub fn reading<T>(
    device: &File,
    progress: &Progress,
    read: impl FnOnce(&dyn ReadAt) -> io::Result<T>,
) -> Result<T, DeviceError> {
    let reader = OffsetReader {
        device,
        progress,
        offset: Cell::new(0),
    };
    read(&reader).map_err(|error| {
        let stopped = progress.check().map_err(DeviceError::from);
        stopped
            .err()
            .unwrap_or_else(|| DeviceError::io("read", reader.offset.get())(error))
    })
}

/// Records the offset of the last read.
struct OffsetReader<'a> {
    device: &'a File,
    progress: &'a Progress,
    offset: Cell<u64>,
}

impl ReadAt for OffsetReader<'_> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.offset.set(offset);
        self.progress.check().map_err(io::Error::other)?;
        self.progress.add_step();
        FileExt::read_exact_at(self.device, buffer, offset)
    }
}
