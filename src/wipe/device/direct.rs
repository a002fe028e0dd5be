//! Reads and writes a device with `O_DIRECT`, on two threads.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use ring::error::Unspecified;
use rustix::fs::ioctl_blksszget;

use super::DeviceError;
use super::keystream::Keystream;
use crate::crash::crash_point;
use crate::wipe::progress::Progress;

/// The alignment for `O_DIRECT` in memory and on the device, if its logical sectors are not larger.
pub const ALIGN: usize = 4096;
/// Large enough for a disk's full throughput, small enough for a prompt cancellation.
const CHUNK: usize = 1 << 20;

/// A device with `O_DIRECT` enabled until this is dropped.
///
/// The flag is set on the existing descriptor: opening the device again would resolve its number, which
/// may belong to another disk by then. Where `O_DIRECT` is not supported or requires a larger alignment,
/// reads and writes use the page cache.
pub struct Direct<'a> {
    device: &'a File,
    /// The flags before `O_DIRECT` was set.
    flags: Option<OFlag>,
}

/// The data to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Zeros,
    /// Unpredictable bytes from a new key, which is not kept.
    Random,
}

impl<'a> Direct<'a> {
    pub fn new(device: &'a File) -> Self {
        // Linux supports larger sectors since 6.15.
        let too_large = ioctl_blksszget(device).is_ok_and(|size| size as usize > ALIGN);
        let flags = fcntl(device, FcntlArg::F_GETFL)
            .map(OFlag::from_bits_retain)
            .ok()
            .filter(|_| !too_large);
        if let Some(flags) = flags {
            let _ = fcntl(device, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT));
        }
        Self { device, flags }
    }

    /// Overwrites a range and counts the bytes. `range` begins at a multiple of [`ALIGN`] and ends at one or
    /// with the device.
    pub fn write(
        &self,
        fill: Fill,
        range: Range<u64>,
        progress: &Progress,
    ) -> Result<(), DeviceError> {
        let no_random = |Unspecified| DeviceError::NoRandomBytes;
        on_two_threads(range, progress, || {
            let mut keystream = match fill {
                Fill::Zeros => None,
                Fill::Random => Some(Keystream::new().map_err(no_random)?),
            };
            Ok(move |block: &mut [u8], offset| {
                if let Some(keystream) = &mut keystream {
                    keystream.scramble(block).map_err(no_random)?;
                }
                crash_point("write-chunk");
                let written = self.device.write_all_at(block, offset);
                written.map_err(DeviceError::io("write", offset))
            })
        })
    }

    /// Reads a few blocks, aligned as for [`write`](Self::write), and fails at a byte that is not zero. It
    /// checks for cancellation first, because a failing disk may take half a minute for each block.
    pub fn check_zero(&self, range: Range<u64>, progress: &Progress) -> Result<(), DeviceError> {
        progress.check()?;
        progress.add_step();
        // These bytes are not counted.
        on_two_threads(range, &Progress::default(), || {
            Ok(|block: &mut [u8], start| {
                let read = self.device.read_exact_at(block, start);
                read.map_err(DeviceError::io("read", start))?;
                let found = (start..).zip(block).find(|(_, byte)| **byte != 0);
                found.map_or(Ok(()), |(offset, _)| Err(DeviceError::NotZero { offset }))
            })
        })
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.flags {
            let _ = fcntl(self.device, FcntlArg::F_SETFL(flags));
        }
    }
}

/// Two threads take the chunks of a range in ascending order: one prepares a chunk while the disk handles
/// the other. More threads are not faster. Each thread transfers its chunks by a function of its own, from
/// or to memory that is aligned for `O_DIRECT` and initially zero.
fn on_two_threads<T: FnMut(&mut [u8], u64) -> Result<(), DeviceError>>(
    range: Range<u64>,
    progress: &Progress,
    transfer: impl Fn() -> Result<T, DeviceError> + Sync,
) -> Result<(), DeviceError> {
    let next = AtomicU64::new(range.start);
    let transfer_chunks = || {
        let mut memory = vec![0; CHUNK + ALIGN];
        let aligned = memory.as_ptr().align_offset(ALIGN);
        let mut transfer = transfer()?;
        loop {
            let start = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
            if start >= range.end {
                return Ok(());
            }
            progress.check()?;
            let length = (range.end - start).min(CHUNK as u64);
            let end = aligned + usize::try_from(length).unwrap_or(CHUNK);
            transfer(&mut memory[aligned..end], start)?;
            progress.add_bytes(length);
        }
    };
    let work = || {
        // After an error, the other thread takes no more chunks either.
        transfer_chunks().inspect_err(|_| next.store(range.end, Ordering::Relaxed))
    };
    thread::scope(|scope| {
        // If no thread can be started, this one takes all chunks.
        let helper = (range.end.saturating_sub(range.start) > CHUNK as u64)
            .then(|| thread::Builder::new().spawn_scoped(scope, work).ok())
            .flatten();
        let own = work();
        let others = helper.map_or(Ok(()), |helper| {
            helper
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        });
        own.and(others)
    })
}
