//! The type and the UUID in the superblock of a filesystem, which mkfs writes last.

use super::device::Disk;
use super::error::WipeError;
use crate::types::FsType;

/// The length of a UUID.
const LENGTH: usize = 16;

/// The complete filesystem on a device: its type and UUID.
///
/// # Errors
/// When the device cannot be read.
pub fn find(disk: Disk<'_>) -> Result<Option<(FsType, String)>, WipeError> {
    // The places of the magic number and of the UUID.
    let ext4 = (FsType::Ext4, 1024 + 56, &[0x53, 0xef][..], 1024 + 104);
    let xfs = (FsType::Xfs, 0, &b"XFSB"[..], 32);
    for (fs_type, place, magic, uuid) in [ext4, xfs] {
        if disk.read(place, magic.len())? != magic {
            continue;
        }
        // mkfs.xfs writes the superblock first, too, and sets sb_inprogress until it ends.
        if fs_type == FsType::Xfs && disk.read(126, 1)? != [0] {
            return Ok(None);
        }
        let digits = disk.read(uuid, LENGTH)?.into_iter().enumerate().map(|(at, byte)| match at {
            4 | 6 | 8 | 10 => format!("-{byte:02x}"),
            _ => format!("{byte:02x}"),
        });
        return Ok(Some((fs_type, digits.collect())));
    }
    Ok(None)
}
