//! Finds filesystems, volume managers and partition tables on a device by their magic numbers, at both ends
//! and at the places of their backups.
//!
//! A wiped device must have no signature, and a device with a signature is not empty. Backups count like
//! originals, because repair tools restore a filesystem from any of them.

mod backups;
mod table;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::device::failed;
use super::error::WipeError;
use super::progress::Progress;

pub use backups::spots;
use table::MAGICS;

/// Reads a device. It checks for cancellation before each read, because a failing disk may take half a minute for
/// each.
#[derive(Clone, Copy)]
struct Reader<'a> {
    device: &'a File,
    size: u64,
    progress: &'a Progress,
}

impl<'a> Reader<'a> {
    fn new(device: &'a File, size: u64, progress: &'a Progress) -> Self {
        Self {
            device,
            size,
            progress,
        }
    }

    /// Reads a range: zeros if it is not within the device.
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, WipeError> {
        self.progress.check()?;
        self.progress.add_step();
        let mut bytes = vec![0; length];
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= self.size) {
            let read = self.device.read_exact_at(&mut bytes, offset);
            read.map_err(failed("read", offset))?;
        }
        Ok(bytes)
    }
}

/// The first known signature on a device of `size` bytes: its type, as named by `blkid`, and its place.
///
/// # Errors
/// When the device cannot be read, or after a cancellation.
pub fn find(device: &File, size: u64, progress: &Progress) -> Result<Option<String>, WipeError> {
    let reader = Reader::new(device, size, progress);
    for (name, magic, places) in MAGICS {
        for offset in places
            .iter()
            .filter_map(|place| table::offset(*place, size))
        {
            if reader.read(offset, magic.len())? == *magic {
                return Ok(Some(signature(name, offset)));
            }
        }
    }
    match find_zfs(reader)? {
        None => backups::find_ext(reader),
        found => Ok(found),
    }
}

fn signature(name: &str, offset: u64) -> String {
    format!("{name} at byte {offset}")
}

/// ZFS has four labels, two at each end. The uberblocks in their second half have the magic number.
fn find_zfs(device: Reader<'_>) -> Result<Option<String>, WipeError> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const SLOT: usize = 1 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = device.size / LABEL * LABEL;
    let at_end = [2 * LABEL, LABEL].map(|distance| end.saturating_sub(distance));
    for label in [0, LABEL].into_iter().chain(at_end) {
        let start = label + RING;
        let ring = device.read(start, 128 << 10)?;
        for (slot, offset) in ring.chunks(SLOT).zip((start..).step_by(SLOT)) {
            // In the byte order of the machine that created the pool.
            let magic = backups::field(slot, 0);
            if [u64::from_le_bytes(magic), u64::from_be_bytes(magic)].contains(&MAGIC) {
                return Ok(Some(signature("zfs_member", offset)));
            }
        }
    }
    Ok(None)
}
