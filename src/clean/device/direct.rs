//! Reading and writing past the page cache.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::DeviceError;
use crate::clean::progress::Progress;

/// What `O_DIRECT` asks of addresses in memory and on the device; no logical sector is larger.
pub const ALIGN: usize = 4096;
/// Large enough for a disk to be at its full speed, and small enough to be stopped at any time.
const CHUNK: usize = 1 << 20;

/// A device with `O_DIRECT` switched on while this lives.
///
/// It is switched on in the descriptor that we have. Opening the device once more would look it up
/// by its number, which may belong to another disk by then. Where `O_DIRECT` is not to be had, reads
/// and writes go through the cache.
pub struct Direct<'a> {
    device: &'a File,
    before: Option<OFlag>,
    buffer: Vec<u8>,
}

impl<'a> Direct<'a> {
    pub fn new(device: &'a File) -> Self {
        let before = fcntl(device, FcntlArg::F_GETFL)
            .map(OFlag::from_bits_retain)
            .ok();
        if let Some(flags) = before {
            let _ = fcntl(device, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT));
        }
        Self {
            device,
            before,
            buffer: vec![0; CHUNK + ALIGN],
        }
    }

    /// Writes zeros, and counts them. `range` begins at a multiple of [`ALIGN`] and ends at one, or with the device.
    pub fn zero(&self, range: Range<u64>, progress: &Progress) -> Result<(), DeviceError> {
        let start = self.buffer.as_ptr().align_offset(ALIGN);
        for chunk in chunks(range) {
            progress.check()?;
            let zeros = &self.buffer[start..start + length(&chunk)];
            self.device
                .write_all_at(zeros, chunk.start)
                .map_err(DeviceError::io("write", chunk.start))?;
            progress.add_bytes(chunk.end - chunk.start);
        }
        Ok(())
    }

    /// Reads a range, aligned as above, and fails if it is not all zero.
    pub fn check_zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        let mut buffer = vec![0; CHUNK + ALIGN];
        let start = buffer.as_ptr().align_offset(ALIGN);
        for chunk in chunks(range) {
            let block = &mut buffer[start..start + length(&chunk)];
            self.device
                .read_exact_at(block, chunk.start)
                .map_err(DeviceError::io("read", chunk.start))?;
            if let Some(at) = block.iter().position(|byte| *byte != 0) {
                let offset = chunk.start + (at / ALIGN * ALIGN) as u64;
                return Err(DeviceError::NotZero { offset });
            }
        }
        Ok(())
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.before {
            let _ = fcntl(self.device, FcntlArg::F_SETFL(flags));
        }
    }
}

fn chunks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range
        .step_by(CHUNK)
        .map(move |start| start..end.min(start + CHUNK as u64))
}

/// The length of a chunk, which fits.
fn length(chunk: &Range<u64>) -> usize {
    usize::try_from(chunk.end - chunk.start).unwrap_or(CHUNK)
}
