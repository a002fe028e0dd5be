//! The places of the backup superblocks from which repair tools restore a filesystem.

use std::io;
use std::ops::Range;

use super::{ReadAt, Signature, read_within};

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
/// The offsets of the backup superblocks of btrfs.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// The byte ranges of a device that must be zero so that nothing on it can be recognised or repaired: both
/// ends, the usual places of backups and those that the existing superblocks name, also in partitions. The
/// ranges are sorted and disjoint, and consist of whole blocks except at the end of the device.
///
/// # Errors
/// When the device cannot be read.
pub fn spots(device: &dyn ReadAt, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut spots = Vec::new();
    let mut copies = MAX_COPIES;
    add_spots(device, &(0..size), END, &mut copies, &mut spots)?;
    for partition in partitions(device, size)? {
        add_spots(device, &partition, PARTITION_END, &mut copies, &mut spots)?;
    }
    Ok(merge(spots, size))
}

/// A range of a device, addressed from its start.
struct Part<'a> {
    device: &'a dyn ReadAt,
    start: u64,
}

impl ReadAt for Part<'_> {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(self.start + offset, buffer)
    }
}

/// Adds the spots of one device or partition. `copies` is the number of backups that superblocks may still
/// name.
fn add_spots(
    device: &dyn ReadAt,
    part: &Range<u64>,
    end: u64,
    copies: &mut usize,
    spots: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let size = part.end - part.start;
    let device = Part {
        device,
        start: part.start,
    };
    let mut add = |offset: u64, length: u64| {
        let start = offset.min(size);
        let end = offset.saturating_add(length).min(size);
        spots.push(part.start + start..part.start + end);
    };
    add(0, end);
    add(size.saturating_sub(end), end);
    for offset in BTRFS_COPIES {
        add(offset, BLOCK);
    }
    for geometry in ExtGeometry::usual() {
        geometry
            .copies(size)
            .for_each(|(_, offset)| add(offset, BLOCK));
    }
    let named = ExtGeometry::read(&device, size)?
        .into_iter()
        .flat_map(|geometry| geometry.copies(size))
        .map(|(_, offset)| (offset, BLOCK));
    // Superblock, free space, inodes and free list: a sector of at most 4 KiB each.
    let groups = xfs_group_size(&device, size)?
        .into_iter()
        .flat_map(|group_size| (0..size).step_by(usize::try_from(group_size).unwrap_or(usize::MAX)))
        .map(|offset| (offset, 4 * BLOCK));
    for (offset, length) in named.chain(groups).take(*copies) {
        add(offset, length);
        *copies -= 1;
    }
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
    first_block: u64,
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
            first_block: u64::from(block == 1024),
            sparse: true,
            named: [0; 2],
        })
    }

    /// The geometry of the existing filesystem.
    fn read(device: &dyn ReadAt, size: u64) -> io::Result<Option<Self>> {
        let mut superblock = [0; 1024];
        read_within(device, size, 1024, &mut superblock)?;
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
            first_block: u32_at(0x14).min(1),
            sparse: u32_at(0x64) & 0x1 != 0,
            named: if u32_at(0x5c) & 0x200 == 0 {
                [0; 2]
            } else {
                [u32_at(0x24c), u32_at(0x250)]
            },
        }))
    }

    /// The groups that have backups, with the offsets of these.
    fn copies(self, size: u64) -> impl Iterator<Item = (u64, u64)> {
        let stride = self.blocks_per_group * self.block;
        let groups = size / stride + 1;
        let powers = [3_u64, 5, 7].into_iter().flat_map(move |base| {
            std::iter::successors(Some(base), move |power| power.checked_mul(base))
                .take_while(move |group| *group < groups)
        });
        let sparse = std::iter::once(1).chain(powers).chain(self.named);
        let all = 0..if self.sparse { 0 } else { groups };
        sparse
            .chain(all)
            .filter(move |group| *group != 0 && *group < groups)
            .map(move |group| {
                (
                    group,
                    group
                        .saturating_mul(stride)
                        .saturating_add(self.first_block * self.block),
                )
            })
    }
}

/// A backup of an ext superblock at one of the usual places. Its group number and block size must match,
/// because the magic number has only two bytes.
pub fn find_ext(device: &dyn ReadAt, size: u64) -> io::Result<Option<Signature>> {
    for geometry in ExtGeometry::usual() {
        for (group, offset) in geometry.copies(size) {
            let mut superblock = [0; 0x60];
            read_within(device, size, offset, &mut superblock)?;
            let same_group = u64::from(u16::from_le_bytes(field(&superblock, 0x5a))) == group;
            let shift = u32::from_le_bytes(field(&superblock, 0x18));
            let same_block = shift <= 6 && 1024 << shift == geometry.block;
            if field(&superblock, 0x38) == *b"\x53\xef" && same_group && same_block {
                return Ok(Some(Signature {
                    name: "ext4",
                    offset: offset + 0x38,
                }));
            }
        }
    }
    Ok(None)
}

/// The allocation group size of the existing XFS. Each group begins with a superblock.
fn xfs_group_size(device: &dyn ReadAt, size: u64) -> io::Result<Option<u64>> {
    let mut superblock = [0; 128];
    read_within(device, size, 0, &mut superblock)?;
    if field(&superblock, 0) != *b"XFSB" {
        return Ok(None);
    }
    let block = u64::from(u32::from_be_bytes(field(&superblock, 4)));
    let blocks = u64::from(u32::from_be_bytes(field(&superblock, 84)));
    // XFS has no smaller groups. A forged superblock must not create millions of spots.
    Ok(Some(block * blocks).filter(|group_size| *group_size >= 16 << 20))
}

/// The partitions of a GPT or an MBR. Those out of bounds or overlapping are skipped: a tenant may have
/// written the table.
fn partitions(device: &dyn ReadAt, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut partitions: Vec<Range<u64>> = Vec::new();
    let mut add = |part: Range<u64>| {
        let inside = part.start > 0 && part.start < part.end && part.end <= size;
        if inside
            && partitions
                .iter()
                .all(|p| part.end <= p.start || p.end <= part.start)
        {
            partitions.push(part);
        }
    };
    for sector in [512, 4096] {
        let mut header = [0; 92];
        read_within(device, size, sector, &mut header)?;
        if field(&header, 0) != *b"EFI PART" {
            continue;
        }
        let mut table = vec![0; 128 * 128];
        let start = u64::from_le_bytes(field(&header, 72)).saturating_mul(sector);
        read_within(device, size, start, &mut table)?;
        for entry in table.chunks_exact(128) {
            let u64_at = |offset| u64::from_le_bytes(field(entry, offset));
            let end = u64_at(40).saturating_add(1).saturating_mul(sector);
            add(u64_at(32).saturating_mul(sector)..end);
        }
    }
    // After the GPT: a protective MBR has one partition that covers the whole disk.
    let mut mbr = [0; 512];
    read_within(device, size, 0, &mut mbr)?;
    if field(&mbr, 510) == *b"\x55\xaa" {
        for entry in mbr[446..510].chunks_exact(16) {
            let u32_at = |offset| u64::from(u32::from_le_bytes(field(entry, offset)));
            add(512 * u32_at(8)..512 * (u32_at(8) + u32_at(12)));
        }
    }
    Ok(partitions)
}

/// A field of a fixed structure. All offsets are constants within it.
fn field<const N: usize>(structure: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&structure[offset..offset + N]);
    bytes
}
