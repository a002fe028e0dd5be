//! Finds filesystems, volume managers and partition tables on a device by their magic numbers, at both ends
//! and at the places of their backups.
//!
//! A wiped device must have no signature, and a device with a signature is not empty. Backups count like
//! originals, because repair tools restore a filesystem from any of them.

mod backups;
mod table;
#[cfg(test)]
mod tests;

use super::device::Disk;
use super::error::WipeError;

pub use backups::spots;
use table::MAGICS;

/// The first known signature on a device: its type, as named by `blkid`, and its place.
///
/// # Errors
/// When the device cannot be read, or after a cancellation.
pub fn find(disk: Disk<'_>) -> Result<Option<String>, WipeError> {
    for (name, magic, places) in MAGICS {
        for offset in places.iter().filter_map(|place| table::offset(*place, disk.size)) {
            if disk.read(offset, magic.len())? == *magic {
                return Ok(Some(signature(name, offset)));
            }
        }
    }
    match find_zfs(disk)? {
        None => backups::find_ext(disk),
        found => Ok(found),
    }
}

fn signature(name: &str, offset: u64) -> String {
    format!("{name} at byte {offset}")
}

/// ZFS has four labels, two at each end. The uberblocks in their second half have the magic number.
fn find_zfs(disk: Disk<'_>) -> Result<Option<String>, WipeError> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const SLOT: usize = 1 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = disk.size / LABEL * LABEL;
    let at_end = [2 * LABEL, LABEL].map(|distance| end.saturating_sub(distance));
    for label in [0, LABEL].into_iter().chain(at_end) {
        let start = label + RING;
        let ring = disk.read(start, 128 << 10)?;
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
