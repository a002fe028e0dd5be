//! The places of the backup superblocks from which repair tools restore a filesystem.

use std::iter;
use std::ops::Range;

use super::signature;
use crate::wipe::device::Disk;
use crate::wipe::error::WipeError;

/// The bytes cleared at each end of a device. They include all known partition tables, RAID and volume
/// manager headers and first superblocks.
const END: u64 = 16 << 20;
/// Ranges are cleared in blocks of this size: no logical sector is larger.
const BLOCK: u64 = 4096;
/// The limit for backups whose places were read from superblocks. A filesystem of 16 TiB needs as many. A forged
/// superblock may claim any number.
const MAX_COPIES: usize = 1 << 17;
/// The offsets of the backup superblocks of btrfs.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// The byte ranges of a device that must be zero so that nothing on it can be recognised or repaired: both
/// ends, the usual places of backups and those that the existing superblocks name. The ranges are sorted and
/// disjoint, and consist of whole blocks except at the end of the device.
///
/// # Errors
/// When the device cannot be read, or after a cancellation.
pub fn spots(disk: Disk<'_>) -> Result<Vec<Range<u64>>, WipeError> {
    let size = disk.size;
    let ends = [(0, END), (size.saturating_sub(END), END)];
    let btrfs = BTRFS_COPIES.map(|offset| (offset, BLOCK));
    let ext = |geometry: ExtGeometry| geometry.copies(size).map(|(_, offset)| (offset, BLOCK));
    let usual = ExtGeometry::usual().flat_map(ext);
    let named = ExtGeometry::read(disk)?.into_iter().flat_map(ext);
    // Superblock, free space, inodes and free list: a sector of at most 4 KiB each.
    let groups = (0..size).step_by(xfs_group_size(disk)?).map(|offset| (offset, 4 * BLOCK));
    let named = named.chain(groups).take(MAX_COPIES);
    let places = ends.into_iter().chain(btrfs).chain(usual).chain(named);
    Ok(merge(places.collect(), size))
}

/// The blocks that contain these places, each an offset and a length.
fn merge(mut places: Vec<(u64, u64)>, size: u64) -> Vec<Range<u64>> {
    places.retain(|(offset, _)| *offset < size);
    places.sort_unstable();
    let mut merged: Vec<Range<u64>> = Vec::new();
    for (offset, length) in places {
        let start = offset / BLOCK * BLOCK;
        let end = (offset + length).next_multiple_of(BLOCK).min(size);
        match merged.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => merged.push(start..end),
        }
    }
    merged
}

/// The block group layout of an ext2, ext3 or ext4 filesystem.
#[derive(Clone, Copy, Debug)]
struct ExtGeometry {
    block: u64,
    blocks_per_group: u64,
    /// Only groups 0, 1 and powers of 3, 5 and 7 have backups.
    sparse: bool,
    /// The groups that have a backup with `sparse_super2`.
    named: [u64; 2],
}

impl ExtGeometry {
    /// The defaults of `mke2fs`: the bitmap of a group fills one block.
    fn usual() -> impl Iterator<Item = Self> {
        [1024, 2048, 4096].into_iter().map(|block| Self {
            block,
            blocks_per_group: 8 * block,
            sparse: true,
            named: [0; 2],
        })
    }

    /// The geometry of the existing filesystem.
    fn read(disk: Disk<'_>) -> Result<Option<Self>, WipeError> {
        let superblock = disk.read(1024, 1024)?;
        let u32_at = |offset| u64::from(u32::from_le_bytes(field(&superblock, offset)));
        let blocks_per_group = u32_at(0x20);
        let shift = u32_at(0x18);
        // `mke2fs` creates no smaller groups and no blocks above 64 KiB.
        if field(&superblock, 0x38) != *b"\x53\xef" || blocks_per_group < 256 || shift > 6 {
            return Ok(None);
        }
        Ok(Some(Self {
            block: 1024 << shift,
            blocks_per_group,
            sparse: u32_at(0x64) & 0x1 != 0,
            named: [u32_at(0x24c), u32_at(0x250)],
        }))
    }

    /// The groups that have backups, with the offsets of these.
    fn copies(self, size: u64) -> impl Iterator<Item = (u64, u64)> {
        let stride = self.blocks_per_group * self.block;
        let groups = size / stride + 1;
        let powers = [3_u64, 5, 7]
            .into_iter()
            .flat_map(|base| iter::successors(Some(base), move |power| power.checked_mul(base)));
        let sparse = iter::once(1).chain(powers).chain(self.named);
        let all = 1..if self.sparse { 1 } else { groups };
        // With blocks of 1 KiB, the first block belongs to no group.
        let first = if self.block == 1024 { 1024 } else { 0 };
        sparse
            .chain(all)
            .filter(move |group| (1..groups).contains(group))
            .map(move |group| (group, group * stride + first))
    }
}

/// A backup of an ext superblock at one of the usual places. Its group number and block size must match,
/// because the magic number has only two bytes.
pub(super) fn find_ext(disk: Disk<'_>) -> Result<Option<String>, WipeError> {
    for geometry in ExtGeometry::usual() {
        for (group, offset) in geometry.copies(disk.size) {
            let superblock = disk.read(offset, 0x60)?;
            let same_group = u64::from(u16::from_le_bytes(field(&superblock, 0x5a))) == group;
            let shift = u32::from_le_bytes(field(&superblock, 0x18));
            let same_block = shift <= 6 && 1024 << shift == geometry.block;
            if field(&superblock, 0x38) == *b"\x53\xef" && same_group && same_block {
                return Ok(Some(signature("ext4", offset + 0x38)));
            }
        }
    }
    Ok(None)
}

/// The allocation group size of the existing XFS; without one, a size that no device has. Each group begins with a
/// superblock.
fn xfs_group_size(disk: Disk<'_>) -> Result<usize, WipeError> {
    let superblock = disk.read(0, 128)?;
    let block = u64::from(u32::from_be_bytes(field(&superblock, 4)));
    let blocks = u64::from(u32::from_be_bytes(field(&superblock, 84)));
    let size = usize::try_from(block * blocks).unwrap_or(usize::MAX);
    // XFS has no smaller groups. A forged superblock must not create millions of spots.
    let is_xfs = field(&superblock, 0) == *b"XFSB" && size >= 16 << 20;
    Ok(if is_xfs { size } else { usize::MAX })
}

/// A field of a fixed structure. All offsets are constants within it.
pub(super) fn field<const N: usize>(structure: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&structure[offset..offset + N]);
    bytes
}
