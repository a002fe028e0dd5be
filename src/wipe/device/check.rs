//! Looks whether a wipe did what it was to do.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use super::direct::{ALIGN, Direct};
use super::{DeviceError, ioctl};
use crate::wipe::progress::Progress;
use crate::wipe::signature::{self, ReadAt};

/// Places that are read back after a device was zeroed, beside both ends.
const SAMPLES: u64 = 256;

/// Looks whether a device shows any known signature.
///
/// # Errors
/// [`DeviceError::SignatureLeft`] if it does.
pub fn check_reset(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    ioctl::drop_cache(device);
    match reading(device, progress, |device| signature::find_in(device, size))? {
        Some(signature) => Err(DeviceError::SignatureLeft(signature)),
        None => Ok(()),
    }
}

/// Reads both ends of a device, and blocks spread over it, from the disk itself.
///
/// That finds a disk that ignored what it was told, and hardly one that lost a single write:
/// [`verify_zeroed`] does.
///
/// # Errors
/// [`DeviceError::NotZero`] if a byte is not zero.
pub fn check_zeroed(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    const BLOCK: u64 = ALIGN as u64;
    const END: u64 = 1 << 20;
    ioctl::drop_cache(device);
    let direct = Direct::new(device);
    let look = |range| direct.check_sample(range, progress);
    look(0..size.min(END))?;
    look(size.saturating_sub(END) / BLOCK * BLOCK..size)?;
    for sample in 0..SAMPLES {
        let start = size / SAMPLES * sample / BLOCK * BLOCK;
        look(start..size.min(start + BLOCK))?;
    }
    Ok(())
}

/// Reads a device from its first to its last byte, from the disk itself.
///
/// It takes about as long as to write as much, and can be watched and stopped like a wipe.
///
/// # Errors
/// [`DeviceError::NotZero`] with the first byte of all that is not zero, and [`DeviceError::Io`] if
/// something before it cannot be read.
pub fn verify_zeroed(device: &File, size: u64, progress: &Progress) -> Result<(), DeviceError> {
    progress.expect_bytes(size);
    ioctl::drop_cache(device);
    Direct::new(device).check_zero(0..size, progress)?;
    same_size(device, size)
}

/// Looks whether a device still ends where it did: of one that grew, the new part was not wiped.
pub fn same_size(mut device: &File, size: u64) -> Result<(), DeviceError> {
    match device.seek(SeekFrom::End(0)) {
        Ok(now) if now == size => Ok(()),
        Ok(now) => Err(DeviceError::Resized { size, now }),
        Err(error) => Err(DeviceError::io("read", size)(error)),
    }
}

/// Has something read that does not say by itself where it could not.
pub fn reading<T>(
    device: &File,
    progress: &Progress,
    read: impl FnOnce(&dyn ReadAt) -> io::Result<T>,
) -> Result<T, DeviceError> {
    let traced = Traced {
        device,
        progress,
        offset: Cell::new(0),
    };
    read(&traced).map_err(|error| {
        let stopped = progress.check().map_err(DeviceError::from);
        stopped
            .err()
            .unwrap_or_else(|| DeviceError::io("read", traced.offset.get())(error))
    })
}

/// Remembers where the last read was.
struct Traced<'a> {
    device: &'a File,
    progress: &'a Progress,
    offset: Cell<u64>,
}

impl ReadAt for Traced<'_> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.offset.set(offset);
        self.progress.check().map_err(io::Error::other)?;
        self.progress.add_step();
        FileExt::read_exact_at(self.device, buffer, offset)
    }
}
