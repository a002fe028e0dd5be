//! Reading and writing past the page cache.

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

/// What `O_DIRECT` asks of addresses in memory and on the device, if its logical sectors are not larger.
pub const ALIGN: usize = 4096;
/// Large enough for a disk to be at its full speed, and small enough to be stopped at any time.
const CHUNK: usize = 1 << 20;

/// A device with `O_DIRECT` switched on while this lives.
///
/// It is switched on in the descriptor that we have. Opening the device once more would look it up
/// by its number, which may belong to another disk by then. Where `O_DIRECT` is not to be had, or takes
/// larger pieces than ours, reads and writes go through the cache.
pub struct Direct<'a> {
    device: &'a File,
    before: Option<OFlag>,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Zeros,
    /// Bytes that nobody can tell before or afterwards.
    Random,
}

impl<'a> Direct<'a> {
    pub fn new(device: &'a File) -> Self {
        // Linux has such sectors since 6.15.
        let too_large = ioctl::sector_size(device).is_some_and(|size| size > ALIGN);
        let before = fcntl(device, FcntlArg::F_GETFL)
            .map(OFlag::from_bits_retain)
            .ok()
            .filter(|_| !too_large);
        if let Some(flags) = before {
            let _ = fcntl(device, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT));
        }
        Self { device, before }
    }

    /// Writes over a range, and counts what is written. `range` begins at a multiple of [`ALIGN`] and
    /// ends at one, or with the device.
    pub fn write(
        &self,
        fill: Fill,
        range: Range<u64>,
        progress: &Progress,
    ) -> Result<(), DeviceError> {
        by_two(range, |queue| self.write_from(queue, fill, progress))
    }

    /// Reads a range, aligned as above, counts what is read, and fails at the first byte that is not
    /// zero.
    pub fn check_zero(&self, range: Range<u64>, progress: &Progress) -> Result<(), DeviceError> {
        by_two(range, |queue| self.check_from(queue, progress))
    }

    /// The same for a few blocks. They are not counted, and a dying disk may take half a minute for
    /// each, so that one can stop before it.
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

    /// Reads or writes a block. If that fails it is tried once more, sector by sector, to tell which of
    /// them fails: the kernel does not. Should none fail then, it is an error all the same, for a disk
    /// that works now and again is not to be trusted.
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

/// Has two threads take chunks of a range, in the order of the device: while the disk is busy with one,
/// the next is on its way or being made. More gain nothing.
fn by_two(
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
        // Where no thread is to be had, one does it all.
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
        worse(own, others)
    })
}

/// Of two that both worked: what was met first on the device counts, and for more than that somebody
/// stopped us meanwhile. Whoever fails does so after all chunks before its own have been taken, and
/// the other one comes to the end of those.
fn worse(own: Result<(), DeviceError>, others: Result<(), DeviceError>) -> Result<(), DeviceError> {
    let place = |error: &DeviceError| error.place().unwrap_or(u64::MAX);
    match (own, others) {
        (Err(own), Err(other)) if place(&other) < place(&own) => Err(other),
        (own, others) => own.and(others),
    }
}

/// Where the first byte is that is not zero.
fn not_zero(block: &[u8]) -> Option<usize> {
    // Byte by byte it would take longer than the disk.
    let (pages, _) = block.as_chunks::<ALIGN>();
    let is_zero = |page: &&[u8; ALIGN]| **page == [0; ALIGN];
    let start = pages.iter().take_while(is_zero).count() * ALIGN;
    let at = block[start..].iter().position(|byte| *byte != 0)?;
    Some(start + at)
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.before {
            let _ = fcntl(self.device, FcntlArg::F_SETFL(flags));
        }
    }
}

/// A range, chunk by chunk, for whoever is free to take the next.
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

    /// Whether there is more than one chunk left.
    fn has_many(&self) -> bool {
        self.next.load(Ordering::Relaxed) + (CHUNK as u64) < self.end
    }

    /// Gives out nothing more.
    fn close(&self) {
        self.next.store(self.end, Ordering::Relaxed);
    }
}

/// A chunk's memory, at an address that `O_DIRECT` takes; zeros at first.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Self {
        Self(vec![0; CHUNK + ALIGN])
    }

    /// As much of it as the chunk is long.
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
    fn what_is_met_first_counts_and_is_not_hidden_by_a_stop() {
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
            let found = worse(own, others).err();
            let found = found.as_ref().map(|error| (error.reason(), error.place()));
            assert_eq!(found, expected);
        }
    }

    proptest! {
        #[test]
        fn the_first_byte_that_is_not_zero_is_found(
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

    /// A disk that fails a large transfer, and then at none of its sectors.
    #[test]
    fn an_error_that_does_not_come_again_is_an_error() {
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
        let place = |bad| transfer(bad).unwrap_err().place();
        let start = 1 << 20;
        assert_eq!(place(0..0), Some(start));
        assert_eq!(place(start + 4097..start + 4098), Some(start + 4096));
        assert_eq!(place(start + 8192..start + 9000), Some(start + 8192));
    }
}
