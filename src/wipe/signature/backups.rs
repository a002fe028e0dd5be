//! The places of the backup superblocks from which repair tools restore a filesystem.

use std::fs::File;
use std::iter;
use std::ops::Range;

use super::{Reader, signature};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;

/// The bytes cleared at each end of a device. They include all known partition tables, RAID and volume
/// manager headers and first superblocks.
const END: u64 = 16 << 20;
/// The bytes cleared at each end of a partition.
const PARTITION_END: u64 = 1 << 20;
/// Ranges are cleared in blocks of this size: no logical sector is larger.
const BLOCK: u64 = 4096;
/// The limit for backups whose places were read from superblocks, of all partitions together. A filesystem
/// of 16 TiB needs as many. Forged superblocks and partition tables may claim any number.
const MAX_COPIES: usize = 1 << 17;
/// The limit for entries of a partition table. Tools create 128 by default.
const MAX_GPT_ENTRIES: u32 = 256;
/// The offsets of the backup superblocks of btrfs.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// The byte ranges of a device that must be zero so that nothing on it can be recognised or repaired: both
/// ends, the usual places of backups and those that the existing superblocks name, also in partitions. The
/// ranges are sorted and disjoint, and consist of whole blocks except at the end of the device.
///
/// # Errors
/// When the device cannot be read, or after a cancellation.
pub fn spots(device: &File, size: u64, progress: &Progress) -> Result<Vec<Range<u64>>, WipeError> {
    let whole = Reader {
        device,
        start: 0,
        size,
        progress,
    };
    let mut spots = Vec::new();
    let mut copies = MAX_COPIES;
    add_spots(whole, END, &mut copies, &mut spots)?;
    for partition in partitions(whole)? {
        let part = Reader {
            start: partition.start,
            size: partition.end - partition.start,
            ..whole
        };
        add_spots(part, PARTITION_END, &mut copies, &mut spots)?;
    }
    Ok(merge(spots, size))
}

/// Adds the spots of a device or a partition, of which the first and the last `end` bytes are cleared. `copies`
/// is the number of backups that superblocks may still name.
fn add_spots(
    part: Reader<'_>,
    end: u64,
    copies: &mut usize,
    spots: &mut Vec<Range<u64>>,
) -> Result<(), WipeError> {
    let size = part.size;
    let ends = [(0, end), (size.saturating_sub(end), end)];
    let btrfs = BTRFS_COPIES.map(|offset| (offset, BLOCK));
    let ext = |geometry: ExtGeometry| geometry.copies(size).map(|(_, offset)| (offset, BLOCK));
    let usual = ExtGeometry::usual().flat_map(ext);
    let named = ExtGeometry::read(part)?.into_iter().flat_map(ext);
    // Superblock, free space, inodes and free list: a sector of at most 4 KiB each.
    let groups = (0..size).step_by(xfs_group_size(part)?);
    let groups = groups.map(|offset| (offset, 4 * BLOCK));
    let limited: Vec<_> = named.chain(groups).take(*copies).collect();
    *copies -= limited.len();
    let places = ends.into_iter().chain(btrfs).chain(usual).chain(limited);
    spots.extend(places.map(|(offset, length)| {
        let end = offset.saturating_add(length).min(size);
        part.start + offset.min(size)..part.start + end
    }));
    Ok(())
}

fn merge(mut spots: Vec<Range<u64>>, size: u64) -> Vec<Range<u64>> {
    spots.sort_unstable_by_key(|spot| spot.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for spot in spots.into_iter().filter(|spot| !spot.is_empty()) {
        let start = spot.start / BLOCK * BLOCK;
        let end = spot.end.next_multiple_of(BLOCK).min(size);
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
    fn read(device: Reader<'_>) -> Result<Option<Self>, WipeError> {
        let superblock = device.read(1024, 1024)?;
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
pub(super) fn find_ext(device: Reader<'_>) -> Result<Option<String>, WipeError> {
    for geometry in ExtGeometry::usual() {
        for (group, offset) in geometry.copies(device.size) {
            let superblock = device.read(offset, 0x60)?;
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
fn xfs_group_size(device: Reader<'_>) -> Result<usize, WipeError> {
    let superblock = device.read(0, 128)?;
    let block = u64::from(u32::from_be_bytes(field(&superblock, 4)));
    let blocks = u64::from(u32::from_be_bytes(field(&superblock, 84)));
    let size = usize::try_from(block * blocks).unwrap_or(usize::MAX);
    // XFS has no smaller groups. A forged superblock must not create millions of spots.
    let is_xfs = field(&superblock, 0) == *b"XFSB" && size >= 16 << 20;
    Ok(if is_xfs { size } else { usize::MAX })
}

/// The partitions of a GPT or an MBR. Those out of bounds are skipped: a tenant may have written the table. It
/// counts sectors of 512 or of 4096 bytes, by the disk that it was written on. So an MBR has two readings.
fn partitions(device: Reader<'_>) -> Result<Vec<Range<u64>>, WipeError> {
    const SECTORS: [u64; 2] = [512, 4096];
    let mut partitions: Vec<Range<u64>> = Vec::new();
    let mut add = |part: Range<u64>| {
        if part.start > 0 && part.start < part.end && part.end <= device.size {
            partitions.push(part);
        }
    };
    for sector in SECTORS {
        let header = device.read(sector, 92)?;
        if field(&header, 0) != *b"EFI PART" {
            continue;
        }
        let [entries, length] = [80, 84].map(|offset| u32::from_le_bytes(field(&header, offset)));
        let (entries, length) = (entries.min(MAX_GPT_ENTRIES) as usize, length as usize);
        if !(128..=4096).contains(&length) {
            continue;
        }
        let start = u64::from_le_bytes(field(&header, 72)).saturating_mul(sector);
        let table = device.read(start, entries * length)?;
        for entry in table.chunks_exact(length) {
            let u64_at = |offset| u64::from_le_bytes(field(entry, offset));
            let end = u64_at(40).saturating_add(1).saturating_mul(sector);
            add(u64_at(32).saturating_mul(sector)..end);
        }
    }
    let mbr = device.read(0, 512)?;
    if field(&mbr, 510) == *b"\x55\xaa" {
        for sector in SECTORS {
            for entry in mbr[446..510].chunks_exact(16) {
                let u32_at = |offset| u64::from(u32::from_le_bytes(field(entry, offset)));
                add(sector * u32_at(8)..sector * (u32_at(8) + u32_at(12)));
            }
        }
    }
    Ok(partitions)
}

/// A field of a fixed structure. All offsets are constants within it.
pub(super) fn field<const N: usize>(structure: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&structure[offset..offset + N]);
    bytes
}
