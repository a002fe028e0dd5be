//! Reading and writing past the page cache.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use ring::error::Unspecified;

use super::keystream::Keystream;
use super::{DeviceError, ioctl};
use crate::clean::progress::Progress;

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
    ///
    /// Two threads write, in the order of the device: while the disk is busy with one chunk, the next
    /// is on its way or being made. More gain nothing.
    pub fn write(
        &self,
        fill: Fill,
        range: Range<u64>,
        progress: &Progress,
    ) -> Result<(), DeviceError> {
        let queue = Queue::new(range);
        let work = || {
            let result = self.write_from(&queue, fill, progress);
            if result.is_err() {
                queue.close();
            }
            result
        };
        thread::scope(|scope| {
            // Where no thread is to be had, one writes it all.
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
            self.device
                .write_all_at(block, chunk.start)
                .map_err(DeviceError::io("write", chunk.start))?;
            progress.add_bytes(chunk.end - chunk.start);
        }
        Ok(())
    }

    /// Reads a range, aligned as above, and fails if it is not all zero.
    pub fn check_zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        let mut buffer = Buffer::new();
        let queue = Queue::new(range);
        while let Some(chunk) = queue.next() {
            let block = buffer.block(&chunk);
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

/// Of two that both wrote: what the disk says counts for more than that somebody stopped us meanwhile.
fn worse(own: Result<(), DeviceError>, others: Result<(), DeviceError>) -> Result<(), DeviceError> {
    match own {
        Ok(()) | Err(DeviceError::Cancelled(_)) => others.and(own),
        failed => failed,
    }
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
    use std::io;

    use super::*;
    use crate::clean::progress::Cancelled;

    #[test]
    fn a_failing_disk_is_not_hidden_by_a_stop() {
        let stopped = || Err(DeviceError::from(Cancelled));
        let failed = || Err(DeviceError::io("write", 0)(io::ErrorKind::Other.into()));
        for (own, others, expected) in [
            (Ok(()), Ok(()), None),
            (Ok(()), stopped(), Some("Cancelled")),
            (stopped(), Ok(()), Some("Cancelled")),
            (stopped(), failed(), Some("IoError")),
            (failed(), stopped(), Some("IoError")),
            (failed(), Ok(()), Some("IoError")),
            (Ok(()), failed(), Some("IoError")),
        ] {
            let found = worse(own, others).err();
            assert_eq!(found.as_ref().map(DeviceError::reason), expected);
        }
    }
}
