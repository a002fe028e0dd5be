//! Finds filesystems, volume managers and partition tables on a device by their magic numbers, at both ends
//! and at the places of their backups.
//!
//! A wiped device must have no signature, and a device with a signature is not empty. Backups count like
//! originals, because repair tools restore a filesystem from any of them.

mod backups;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::device::DeviceError;
use super::progress::Progress;

pub use backups::spots;
use table::MAGICS;

/// Reads a device, or a partition of it. It checks for cancellation before each read, because a failing disk may
/// take half a minute for each.
#[derive(Clone, Copy)]
struct Reader<'a> {
    device: &'a File,
    /// The start and the size in bytes of the readable part.
    start: u64,
    size: u64,
    progress: &'a Progress,
}

impl Reader<'_> {
    /// Fills `buffer`, with zeros if the range is not within the part.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.progress.check()?;
        self.progress.add_step();
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            buffer.fill(0);
            return Ok(());
        }
        let offset = self.start + offset;
        let read = self.device.read_exact_at(buffer, offset);
        read.map_err(DeviceError::io("read", offset))
    }

    /// Reads a structure of a fixed length.
    fn structure<const N: usize>(&self, offset: u64) -> Result<[u8; N], DeviceError> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes).map(|()| bytes)
    }
}

/// A known signature on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The type, as named by `blkid`.
    pub name: &'static str,
    /// The offset of the magic number in bytes from the start of the device.
    pub offset: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.name, self.offset)
    }
}

/// The first known signature on a device of `size` bytes.
///
/// # Errors
/// When the device cannot be read, or after a cancellation.
pub fn find(
    device: &File,
    size: u64,
    progress: &Progress,
) -> Result<Option<Signature>, DeviceError> {
    let reader = Reader {
        device,
        start: 0,
        size,
        progress,
    };
    for magic in MAGICS {
        for offset in magic.offsets(size) {
            let mut found = [0; table::LONGEST];
            let found = &mut found[..magic.bytes.len()];
            reader.read(offset, found)?;
            if *found == *magic.bytes {
                let name = magic.name;
                return Ok(Some(Signature { name, offset }));
            }
        }
    }
    match find_zfs(reader)? {
        None => backups::find_ext(reader),
        found => Ok(found),
    }
}

/// ZFS has four labels, two at each end. The uberblocks in their second half have the magic number.
fn find_zfs(device: Reader<'_>) -> Result<Option<Signature>, DeviceError> {
    const LABEL: u64 = 256 << 10;
    const RING: usize = 128 << 10;
    const SLOT: usize = 1 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = device.size / LABEL * LABEL;
    let mut ring = vec![0; RING];
    let labels = [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ];
    for label in labels.into_iter().flatten() {
        let start = label + RING as u64;
        device.read(start, &mut ring)?;
        let (slots, _) = ring.as_chunks::<SLOT>();
        for (slot, offset) in slots.iter().zip((start..).step_by(SLOT)) {
            // In the byte order of the machine that created the pool.
            let magic: [u8; 8] = backups::field(slot, 0);
            if [u64::from_le_bytes(magic), u64::from_be_bytes(magic)].contains(&MAGIC) {
                return Ok(Some(Signature {
                    name: "zfs_member",
                    offset,
                }));
            }
        }
    }
    Ok(None)
}
