use std::collections::BTreeMap;
use std::io;

use proptest::prelude::*;

use super::table::MAGICS;
use super::*;

/// A sparse device: zeros except for a few bytes.
#[derive(Default)]
struct Image(BTreeMap<u64, u8>);

impl Image {
    fn with(mut self, offset: u64, bytes: &[u8]) -> Self {
        self.0.extend((offset..).zip(bytes.iter().copied()));
        self
    }

    fn clear(&mut self, spots: &[std::ops::Range<u64>]) {
        self.0
            .retain(|offset, _| !spots.iter().any(|spot| spot.contains(offset)));
    }
}

impl ReadAt for Image {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        let end = offset + buffer.len() as u64;
        for (at, byte) in self.0.range(offset..end) {
            buffer[usize::try_from(at - offset).unwrap()] = *byte;
        }
        Ok(())
    }
}

const TIB: u64 = 1 << 40;
/// Some are multiples of 512 but not of 4096.
const SIZES: [u64; 5] = [0, 4096, 100 << 20, (1 << 30) + 512, TIB + 7 * 512];

#[test]
fn zeros_have_no_signature() {
    for size in SIZES {
        assert_eq!(find(&Image::default(), size).unwrap(), None, "{size}");
    }
}

#[test]
fn every_magic_number_is_found_and_cleared() {
    for size in SIZES {
        for magic in MAGICS {
            assert!(magic.bytes.len() <= table::LONGEST);
            let Some(offset) = magic.at.offset(size) else {
                continue;
            };
            if offset + magic.bytes.len() as u64 > size {
                continue;
            }
            let mut image = Image::default().with(offset, magic.bytes);
            let found = find(&image, size).unwrap().unwrap();
            assert_eq!(
                found,
                Signature {
                    name: magic.name,
                    offset
                }
            );
            image.clear(&spots(&image, size).unwrap());
            assert_eq!(
                find(&image, size).unwrap(),
                None,
                "{} of {size}",
                magic.name
            );
        }
    }
}

#[test]
fn each_zfs_label_is_found_and_cleared() {
    let size = (1 << 30) + 512;
    for label in [
        0,
        256 << 10,
        (1 << 30) - (512 << 10),
        (1 << 30) - (256 << 10),
    ] {
        for magic in [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()] {
            let offset = label + (128 << 10) + 5 * 1024;
            let mut image = Image::default().with(offset, &magic);
            let found = find(&image, size).unwrap();
            assert_eq!(
                found,
                Some(Signature {
                    name: "zfs_member",
                    offset
                })
            );
            image.clear(&spots(&image, size).unwrap());
            assert_eq!(find(&image, size).unwrap(), None);
        }
    }
}

fn ext_superblock(group: u16, shift: u32, features: (u32, u32), blocks_per_group: u32) -> Vec<u8> {
    let mut superblock = vec![0; 1024];
    for (offset, value) in [
        (0x14, u32::from(shift == 0)),
        (0x18, shift),
        (0x20, blocks_per_group),
        (0x5c, features.0),
        (0x64, features.1),
        (0x24c, 2),
        (0x250, 9),
    ] {
        superblock[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    superblock[0x38..0x3a].copy_from_slice(b"\x53\xef");
    superblock[0x5a..0x5c].copy_from_slice(&group.to_le_bytes());
    superblock
}

#[test]
fn backup_of_an_ext_superblock_is_found_without_the_first() {
    // Group 49 of 4 KiB blocks begins at 49 * 128 MiB; with 1 KiB blocks there is a boot block.
    for (shift, group, offset) in [
        (2, 1, 128 << 20),
        (2, 49, 49 * (128 << 20)),
        (1, 3, 3 * (32 << 20)),
        (0, 5, 5 * (8 << 20) + 1024),
    ] {
        let superblock = ext_superblock(group, shift, (0, 1), 8192 << shift);
        let mut image = Image::default().with(offset, &superblock);
        let found = find(&image, TIB).unwrap();
        assert_eq!(
            found,
            Some(Signature {
                name: "ext4",
                offset: offset + 0x38
            })
        );
        image.clear(&spots(&image, TIB).unwrap());
        assert_eq!(find(&image, TIB).unwrap(), None);
        // The magic number alone is not a superblock.
        let image = Image::default().with(offset + 0x38, b"\x53\xef");
        assert_eq!(find(&image, TIB).unwrap(), None);
    }
}

fn covers(spots: &[std::ops::Range<u64>], offset: u64) -> bool {
    spots.iter().any(|spot| spot.contains(&offset))
}

#[test]
fn backups_named_by_an_ext_superblock_are_spots() {
    let group = |n: u64, blocks: u64| n * blocks * 4096;
    // sparse_super2: two named groups. Without sparse_super: all groups. bigalloc: large groups.
    let cases = [
        (0x200, 1, 32768, vec![2, 9]),
        (0, 0, 32768, vec![1, 2, 3, 4, 6, 77]),
        (0, 1, 524_288, vec![1, 3, 5]),
    ];
    for (compatible, read_only, blocks, groups) in cases {
        let superblock = ext_superblock(0, 2, (compatible, read_only), blocks);
        let image = Image::default().with(1024, &superblock);
        let spots = spots(&image, TIB).unwrap();
        for n in groups {
            assert!(
                covers(&spots, group(n, blocks.into())),
                "group {n} of {blocks} blocks"
            );
        }
    }
}

fn xfs_superblock(block: u32, blocks: u32) -> Vec<u8> {
    let mut superblock = b"XFSB".to_vec();
    superblock.resize(512, 0);
    superblock[4..8].copy_from_slice(&block.to_be_bytes());
    superblock[84..88].copy_from_slice(&blocks.to_be_bytes());
    superblock
}

#[test]
fn each_xfs_allocation_group_is_a_spot() {
    let image = Image::default().with(0, &xfs_superblock(4096, 65_536));
    let spots = spots(&image, 4 << 30).unwrap();
    for group in 0..16 {
        assert!(covers(&spots, group * (256 << 20)) && covers(&spots, group * (256 << 20) + 16383));
    }
    // Forged, tiny groups are ignored.
    let image = Image::default().with(0, &xfs_superblock(512, 1));
    assert!(super::spots(&image, TIB).unwrap().len() < 100);
}

#[test]
fn number_of_spots_is_bounded_for_forged_superblocks_and_partitions() {
    let part: u64 = 64 << 30;
    let mut gpt = b"EFI PART".to_vec();
    gpt.resize(512 + 128 * 128, 0);
    gpt[72..80].copy_from_slice(&2_u64.to_le_bytes());
    let mut image = Image::default();
    for n in 1..128 {
        // The smallest accepted groups, each with a backup.
        let first = n * part;
        let entry = 512 + 128 * usize::try_from(n).unwrap();
        let sectors = [first / 512, (first + part) / 512 - 1];
        gpt[entry + 32..entry + 40].copy_from_slice(&sectors[0].to_le_bytes());
        gpt[entry + 40..entry + 48].copy_from_slice(&sectors[1].to_le_bytes());
        image = image.with(first + 1024, &ext_superblock(0, 0, (0, 0), 256));
    }
    let image = image.with(512, &gpt);
    let spots = spots(&image, 128 * part).unwrap();
    // The limit for named backups plus the fixed places.
    assert!((1 << 17..1 << 18).contains(&spots.len()), "{}", spots.len());
}

#[test]
fn backups_in_partitions_are_spots() {
    let mut mbr = vec![0; 512];
    mbr[446 + 8..446 + 12].copy_from_slice(&(1_u32 << 21).to_le_bytes());
    mbr[446 + 12..446 + 16].copy_from_slice(&(1_u32 << 21).to_le_bytes());
    mbr[510..].copy_from_slice(b"\x55\xaa");
    let mut gpt = b"EFI PART".to_vec();
    gpt.resize(512 + 128, 0);
    gpt[72..80].copy_from_slice(&2_u64.to_le_bytes());
    gpt[512 + 32..512 + 40].copy_from_slice(&(3_u64 << 21).to_le_bytes());
    gpt[512 + 40..512 + 48].copy_from_slice(&((4_u64 << 21) - 1).to_le_bytes());
    let gib = 1 << 30;
    let image = Image::default()
        .with(0, &mbr)
        .with(512, &gpt)
        .with(3 * gib, &xfs_superblock(4096, 65_536));
    let spots = spots(&image, 10 * gib).unwrap();
    // The MBR partition at 1 GiB and the GPT partition at 3 GiB with an XFS.
    for offset in [
        gib,
        2 * gib - 1,
        gib + (128 << 20),
        3 * gib,
        3 * gib + (256 << 20),
        4 * gib - 1,
    ] {
        assert!(covers(&spots, offset), "{offset}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any contents of a device: no panic, and spots that can be written.
    #[test]
    fn spots_are_sorted_aligned_and_within_the_device(
        sectors in 0_u64..(1 << 26),
        start in prop::collection::vec(any::<u8>(), 0..2048),
        headers in prop::collection::vec(
            (prop::sample::select(vec![0, 510, 512, 1024 + 0x38]),
             prop::sample::select(vec![&b"XFSB"[..], b"EFI PART", b"\x53\xef", b"\x55\xaa"])), 0..4),
    ) {
        let size = sectors * 512;
        let mut image = Image::default().with(0, &start);
        for (offset, magic) in headers {
            image = image.with(offset, magic);
        }
        let spots = spots(&image, size).unwrap();
        for spot in &spots {
            prop_assert!(spot.start < spot.end && spot.end <= size);
            prop_assert!(spot.start % 4096 == 0 && (spot.end % 4096 == 0 || spot.end == size));
        }
        prop_assert!(spots.windows(2).all(|pair| pair[0].end < pair[1].start));
        let _ = find(&image, size).unwrap();
    }
}
