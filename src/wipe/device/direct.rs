//! Reads and writes a device with `O_DIRECT`, on two threads.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use ring::error::Unspecified;
use rustix::fs::ioctl_blksszget;

use super::keystream::Keystream;
use super::{Disk, failed};
use crate::crash::crash_point;
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;

/// The alignment for `O_DIRECT` in memory and on the device, if its logical sectors are not larger.
pub const ALIGN: usize = 4096;
/// Large enough for a disk's full throughput, small enough for a prompt cancellation.
const CHUNK: usize = 1 << 20;

impl Disk<'_> {
    /// Overwrites a range with zeros and counts the bytes. `range` begins at a multiple of [`ALIGN`] and ends at one or
    /// with the device.
    pub(super) fn write_zeros(self, range: Range<u64>) -> Result<(), WipeError> {
        self.on_two_threads(range, |block, offset| self.write(block, offset))
    }

    /// Overwrites a range, aligned as for [`Self::write_zeros`], with unpredictable bytes, and counts them.
    pub(super) fn write_random(self, range: Range<u64>) -> Result<(), WipeError> {
        let no_random = |Unspecified| {
            WipeError::Failed("cannot get random bytes from the kernel to overwrite the device; allow getrandom in the seccomp profile".into())
        };
        let keystream = Keystream::new().map_err(no_random)?;
        self.on_two_threads(range, |block, offset| {
            keystream.scramble(block, offset).map_err(no_random)?;
            self.write(block, offset)
        })
    }

    fn write(self, block: &[u8], offset: u64) -> Result<(), WipeError> {
        crash_point("write-chunk");
        let written = self.device.write_all_at(block, offset);
        written.map_err(failed("write", offset))
    }

    /// Reads a few blocks, aligned as for [`Self::write_zeros`], and fails at a byte that is not zero. It checks for
    /// cancellation first, because a failing disk may take half a minute for each block.
    pub(super) fn check_zero(self, range: Range<u64>) -> Result<(), WipeError> {
        self.progress.check()?;
        self.progress.add_step();
        // These bytes are not counted.
        let uncounted = Progress::default();
        let disk = Disk::new(self.device, self.size, &uncounted);
        disk.on_two_threads(range, |block, start| {
            let read = self.device.read_exact_at(block, start);
            read.map_err(failed("read", start))?;
            let found = (start..).zip(block).find(|(_, byte)| **byte != 0);
            found.map_or(Ok(()), |(offset, _)| Err(WipeError::NotZero(offset)))
        })
    }

    /// Two threads take the chunks of a range in ascending order: one prepares a chunk while the disk handles
    /// the other. More threads are not faster. They transfer the chunks from or to memory that is aligned for `O_DIRECT`
    /// and initially zero.
    ///
    /// `O_DIRECT` is set on the existing descriptor: opening the device again would resolve its number, which may belong
    /// to another disk by then. Where it is not supported or requires a larger alignment, the page cache is used.
    fn on_two_threads(
        self,
        range: Range<u64>,
        transfer: impl Fn(&mut [u8], u64) -> Result<(), WipeError> + Sync,
    ) -> Result<(), WipeError> {
        let next = AtomicU64::new(range.start);
        let length = range.end.saturating_sub(range.start);
        let chunk = usize::try_from(length).map_or(CHUNK, |length| length.min(CHUNK));
        let transfer_chunks = || {
            let mut memory = vec![0; chunk + ALIGN];
            let aligned = memory.as_ptr().align_offset(ALIGN);
            loop {
                let start = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if start >= range.end {
                    return Ok(());
                }
                self.progress.check()?;
                let length = (range.end - start).min(CHUNK as u64);
                let end = aligned + usize::try_from(length).unwrap_or(chunk);
                transfer(&mut memory[aligned..end], start)?;
                self.progress.add_bytes(length);
            }
        };
        let first_error = OnceLock::new();
        let work = || {
            if let Err(error) = transfer_chunks() {
                // The other thread takes no more chunks either.
                next.store(range.end, Ordering::Relaxed);
                let _ = first_error.set(error);
            }
        };
        // Linux supports larger sectors since 6.15.
        let too_large = ioctl_blksszget(self.device).is_ok_and(|size| size as usize > ALIGN);
        let flags = fcntl(self.device, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        let flags = flags.ok().filter(|_| !too_large);
        let set = |flags| fcntl(self.device, FcntlArg::F_SETFL(flags));
        let _ = flags.map(|flags| set(flags | OFlag::O_DIRECT));
        thread::scope(|scope| {
            if length > CHUNK as u64 {
                // If no thread can be started, this one takes all chunks.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let _ = flags.map(set);
        first_error.into_inner().map_or(Ok(()), Err)
    }
}
