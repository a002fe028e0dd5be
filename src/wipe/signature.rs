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
use std::io;
use std::os::unix::fs::FileExt;

pub use backups::spots;
use table::MAGICS;

/// A source that can be read at any offset: a device, or an image in a test.
pub trait ReadAt {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
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
/// When the device cannot be read.
pub fn find(device: &dyn ReadAt, size: u64) -> io::Result<Option<Signature>> {
    for magic in MAGICS {
        if let Some(offset) = magic.at.offset(size) {
            let mut found = [0; table::LONGEST];
            let found = &mut found[..magic.bytes.len()];
            read_within(device, size, offset, found)?;
            if *found == *magic.bytes {
                return Ok(Some(Signature {
                    name: magic.name,
                    offset,
                }));
            }
        }
    }
    match find_zfs(device, size)? {
        None => backups::find_ext(device, size),
        found => Ok(found),
    }
}

/// Fills `buffer`, with zeros if the range is not within the device.
fn read_within(device: &dyn ReadAt, size: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    if offset
        .checked_add(buffer.len() as u64)
        .is_some_and(|end| end <= size)
    {
        device.read_exact_at(offset, buffer)
    } else {
        buffer.fill(0);
        Ok(())
    }
}

/// ZFS has four labels, two at each end. The uberblocks in their second half have the magic number.
fn find_zfs(device: &dyn ReadAt, size: u64) -> io::Result<Option<Signature>> {
    const LABEL: u64 = 256 << 10;
    const RING: usize = 128 << 10;
    const SLOT: usize = 1 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = size / LABEL * LABEL;
    let mut ring = vec![0; RING];
    for label in [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ] {
        let Some(start) = label.map(|label| label + RING as u64) else {
            continue;
        };
        read_within(device, size, start, &mut ring)?;
        for (slot, offset) in ring.chunks_exact(SLOT).zip((start..).step_by(SLOT)) {
            let Some(magic) = slot.first_chunk() else {
                continue;
            };
            // In the byte order of the machine that created the pool.
            if [u64::from_le_bytes(*magic), u64::from_be_bytes(*magic)].contains(&MAGIC) {
                return Ok(Some(Signature {
                    name: "zfs_member",
                    offset,
                }));
            }
        }
    }
    Ok(None)
}
