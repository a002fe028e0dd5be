//! Reads and writes a device with `O_DIRECT`, on two threads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use ring::error::Unspecified;

use super::keystream::Keystream;
use super::{DeviceError, ioctl};
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
        let too_large = ioctl::sector_size(device).is_some_and(|size| size > ALIGN);
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
        on_two_threads(range, |queue| self.write_from(queue, fill, progress))
    }

    /// Reads a range, aligned as for [`write`](Self::write), and counts the bytes. Fails at the first byte
    /// that is not zero.
    pub fn check_zero(&self, range: Range<u64>, progress: &Progress) -> Result<(), DeviceError> {
        on_two_threads(range, |queue| self.check_from(queue, progress))
    }

    /// [`check_zero`](Self::check_zero) for a few blocks that are not counted. It checks for cancellation
    /// first, because a failing disk may take half a minute for each block.
    pub fn check_sample(&self, range: Range<u64>, progress: &Progress) -> Result<(), DeviceError> {
        progress.check()?;
        progress.add_step();
        self.check_zero(range, &Progress::default())
    }

    fn write_from(
        &self,
        queue: &Queue,
        fill: Fill,
        progress: &Progress,
    ) -> Result<(), DeviceError> {
        let mut buffer = Buffer::new();
        let mut keystream = match fill {
            Fill::Zeros => None,
            Fill::Random => {
                Some(Keystream::new().map_err(|Unspecified| DeviceError::NoRandomBytes)?)
            }
        };
        while let Some(chunk) = queue.next() {
            progress.check()?;
            let block = buffer.block(&chunk);
            if let Some(keystream) = &mut keystream {
                keystream
                    .scramble(block)
                    .map_err(|Unspecified| DeviceError::NoRandomBytes)?;
            }
            let write = |block: &mut [u8], offset| self.device.write_all_at(block, offset);
            crash_point("write-chunk");
            self.transfer("write", block, chunk.start, progress, write)?;
            progress.add_bytes(chunk.end - chunk.start);
        }
        Ok(())
    }

    fn check_from(&self, queue: &Queue, progress: &Progress) -> Result<(), DeviceError> {
        let mut buffer = Buffer::new();
        while let Some(chunk) = queue.next() {
            progress.check()?;
            let block = buffer.block(&chunk);
            let read = |block: &mut [u8], offset| self.device.read_exact_at(block, offset);
            self.transfer("read", block, chunk.start, progress, read)?;
            if let Some(at) = not_zero(block) {
                let offset = chunk.start + at as u64;
                return Err(DeviceError::NotZero { offset });
            }
            progress.add_bytes(chunk.end - chunk.start);
        }
        Ok(())
    }

    /// Reads or writes a block. After an error it retries sector by sector to find the failing sector, which
    /// the kernel does not report. The transfer fails even if all sectors succeed then: a disk with
    /// intermittent errors is not reliable.
    fn transfer(
        &self,
        what: &'static str,
        block: &mut [u8],
        start: u64,
        progress: &Progress,
        act: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<(), DeviceError> {
        let Err(error) = act(block, start) else {
            return Ok(());
        };
        let sector = ioctl::sector_size(self.device).unwrap_or(ALIGN);
        for (piece, offset) in block.chunks_mut(sector).zip((start..).step_by(sector)) {
            if progress.is_cancelled() {
                break;
            }
            act(piece, offset).map_err(DeviceError::io(what, offset))?;
        }
        Err(DeviceError::io(what, start)(error))
    }
}

/// Two threads take the chunks of a range in ascending order: one prepares a chunk while the disk handles
/// the other. More threads are not faster.
fn on_two_threads(
    range: Range<u64>,
    work: impl Fn(&Queue) -> Result<(), DeviceError> + Sync,
) -> Result<(), DeviceError> {
    let queue = Queue::new(range);
    let work = || {
        let result = work(&queue);
        if result.is_err() {
            queue.close();
        }
        result
    };
    thread::scope(|scope| {
        // If no thread can be started, this one takes all chunks.
        let helper = queue
            .has_many()
            .then(|| thread::Builder::new().spawn_scoped(scope, work).ok())
            .flatten();
        let own = work();
        let others = helper.map_or(Ok(()), |helper| {
            helper
                .join()
                .unwrap_or_else(|cause| panic::resume_unwind(cause))
        });
        first_error(own, others)
    })
}

/// The error of two threads that is first on the device. A cancellation has the lowest rank. The order is
/// exact: chunks are taken in ascending order, and each thread finishes the chunk that it has taken.
fn first_error(
    own: Result<(), DeviceError>,
    others: Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let offset = |error: &DeviceError| error.offset().unwrap_or(u64::MAX);
    match (own, others) {
        (Err(own), Err(other)) if offset(&other) < offset(&own) => Err(other),
        (own, others) => own.and(others),
    }
}

/// The index of the first byte that is not zero.
fn not_zero(block: &[u8]) -> Option<usize> {
    // Comparing byte by byte would be slower than the disk.
    let (pages, _) = block.as_chunks::<ALIGN>();
    let is_zero = |page: &&[u8; ALIGN]| **page == [0; ALIGN];
    let start = pages.iter().take_while(is_zero).count() * ALIGN;
    let at = block[start..].iter().position(|byte| *byte != 0)?;
    Some(start + at)
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.flags {
            let _ = fcntl(self.device, FcntlArg::F_SETFL(flags));
        }
    }
}

/// The chunks of a range, shared by the threads.
struct Queue {
    next: AtomicU64,
    end: u64,
}

impl Queue {
    fn new(range: Range<u64>) -> Self {
        Self {
            next: AtomicU64::new(range.start),
            end: range.end,
        }
    }

    fn next(&self) -> Option<Range<u64>> {
        let start = self.next.fetch_add(CHUNK as u64, Ordering::Relaxed);
        (start < self.end).then(|| start..self.end.min(start + CHUNK as u64))
    }

    /// Whether more than one chunk is left.
    fn has_many(&self) -> bool {
        self.next.load(Ordering::Relaxed) + (CHUNK as u64) < self.end
    }

    /// Returns no more chunks.
    fn close(&self) {
        self.next.store(self.end, Ordering::Relaxed);
    }
}

/// The memory of a chunk, aligned for `O_DIRECT`; initially zeros.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Self {
        Self(vec![0; CHUNK + ALIGN])
    }

    /// A slice with the length of the chunk.
    fn block(&mut self, chunk: &Range<u64>) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGN);
        let length = usize::try_from(chunk.end - chunk.start).unwrap_or(CHUNK);
        &mut self.0[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wipe::progress::Cancelled;

    #[test]
    fn first_error_on_the_device_is_returned_and_outranks_a_cancellation() {
        let stopped = || Err(DeviceError::from(Cancelled));
        let failed = |at| Err(DeviceError::io("write", at)(io::ErrorKind::Other.into()));
        let not_zero = |offset| Err(DeviceError::NotZero { offset });
        for (own, others, expected) in [
            (Ok(()), Ok(()), None),
            (Ok(()), stopped(), Some(("Cancelled", None))),
            (stopped(), Ok(()), Some(("Cancelled", None))),
            (stopped(), failed(0), Some(("IoError", Some(0)))),
            (failed(9), stopped(), Some(("IoError", Some(9)))),
            (failed(9), Ok(()), Some(("IoError", Some(9)))),
            (Ok(()), failed(9), Some(("IoError", Some(9)))),
            (failed(9), not_zero(8), Some(("NotZero", Some(8)))),
            (not_zero(8), failed(7), Some(("IoError", Some(7)))),
        ] {
            let found = first_error(own, others).err();
            let found = found.as_ref().map(|error| (error.reason(), error.offset()));
            assert_eq!(found, expected);
        }
    }

    proptest! {
        #[test]
        fn first_byte_that_is_not_zero_is_found(
            length in 0..3 * ALIGN,
            places in proptest::collection::vec((0..3 * ALIGN, 1_u8..), 0..4),
        ) {
            let mut block = vec![0; length];
            for (place, byte) in places {
                if let Some(at) = block.get_mut(place) {
                    *at = byte;
                }
            }
            prop_assert_eq!(not_zero(&block), block.iter().position(|byte| *byte != 0));
        }
    }

    /// The disk fails a large transfer, but none of its sectors.
    #[test]
    fn intermittent_error_fails_the_transfer() {
        let file = tempfile::tempfile().unwrap();
        let direct = Direct::new(&file);
        let transfer = |bad: Range<u64>| {
            let mut block = vec![0; 4 * ALIGN];
            let act = |block: &mut [u8], offset: u64| {
                let touched = offset < bad.end && bad.start < offset + block.len() as u64;
                let fails = block.len() == 4 * ALIGN || touched;
                if fails {
                    Err(io::Error::other("bad"))
                } else {
                    Ok(())
                }
            };
            direct.transfer("read", &mut block, 1 << 20, &Progress::default(), act)
        };
        let place = |bad| transfer(bad).unwrap_err().offset();
        let start = 1 << 20;
        assert_eq!(place(0..0), Some(start));
        assert_eq!(place(start + 4097..start + 4098), Some(start + 4096));
        assert_eq!(place(start + 8192..start + 9000), Some(start + 8192));
    }
}
