use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FallocateFlags, fallocate};
use proptest::prelude::*;

use super::table::MAGICS;
use super::*;
use crate::wipe::progress::Progress;

/// A sparse device: zeros except for a few bytes.
struct Image {
    file: File,
    size: u64,
}

impl Image {
    fn new(size: u64) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        Self { file, size }
    }

    fn with(self, offset: u64, bytes: &[u8]) -> Self {
        self.file.write_all_at(bytes, offset).unwrap();
        self
    }

    fn spots(&self) -> Vec<Range<u64>> {
        spots(Disk::new(&self.file, self.size, &Progress::default())).unwrap()
    }

    fn find(&self) -> Option<String> {
        find(Disk::new(&self.file, self.size, &Progress::default())).unwrap()
    }

    fn clear(&self) {
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        for spot in self.spots() {
            let [start, length] =
                [spot.start, spot.end - spot.start].map(|bytes| i64::try_from(bytes).unwrap());
            fallocate(&self.file, mode, start, length).unwrap();
        }
    }
}

const TIB: u64 = 1 << 40;
/// Some are multiples of 512 but not of 4096.
const SIZES: [u64; 5] = [0, 4096, 100 << 20, (1 << 30) + 512, TIB + 7 * 512];

#[test]
fn zeros_have_no_signature() {
    for size in SIZES {
        assert_eq!(Image::new(size).find(), None, "{size}");
    }
}

#[test]
fn every_magic_number_is_found_and_cleared() {
    for size in SIZES {
        for (name, magic, places) in MAGICS {
            for offset in places.iter().filter_map(|place| table::offset(*place, size)) {
                if offset + magic.len() as u64 > size {
                    continue;
                }
                let image = Image::new(size).with(offset, magic);
                assert_eq!(image.find(), Some(signature(name, offset)));
                image.clear();
                assert_eq!(image.find(), None, "{name} of {size}");
            }
        }
    }
}

#[test]
fn each_zfs_label_is_found_and_cleared() {
    let size = (1 << 30) + 512;
    for label in [0, 256 << 10, (1 << 30) - (512 << 10), (1 << 30) - (256 << 10)] {
        for magic in [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()] {
            let offset = label + (128 << 10) + 5 * 1024;
            let image = Image::new(size).with(offset, &magic);
            assert_eq!(image.find(), Some(signature("zfs_member", offset)));
            image.clear();
            assert_eq!(image.find(), None);
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
        let image = Image::new(TIB).with(offset, &superblock);
        assert_eq!(image.find(), Some(signature("ext4", offset + 0x38)));
        image.clear();
        assert_eq!(image.find(), None);
        // The magic number alone is not a superblock.
        let image = Image::new(TIB).with(offset + 0x38, b"\x53\xef");
        assert_eq!(image.find(), None);
    }
}

fn covers(spots: &[Range<u64>], offset: u64) -> bool {
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
        let spots = Image::new(TIB).with(1024, &superblock).spots();
        for n in groups {
            assert!(covers(&spots, group(n, blocks.into())), "group {n} of {blocks} blocks");
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
    let image = Image::new(4 << 30).with(0, &xfs_superblock(4096, 65_536));
    let spots = image.spots();
    for group in 0..16 {
        assert!(covers(&spots, group * (256 << 20)) && covers(&spots, group * (256 << 20) + 16383));
    }
    // Forged, tiny groups are ignored.
    let image = Image::new(TIB).with(0, &xfs_superblock(512, 1));
    assert!(image.spots().len() < 100);
}

#[test]
fn number_of_spots_is_bounded_for_a_forged_superblock() {
    // The smallest accepted groups, each with a backup.
    let superblock = ext_superblock(0, 0, (0, 0), 256);
    let count = Image::new(TIB).with(1024, &superblock).spots().len();
    // The limit for named backups, some of which are at the start of the device.
    assert!((1 << 16..1 << 18).contains(&count), "{count}");
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
        let image = Image::new(size);
        image.file.write_all_at(&start, 0).unwrap();
        for (offset, magic) in headers {
            image.file.write_all_at(magic, offset).unwrap();
        }
        image.file.set_len(size).unwrap();
        let spots = image.spots();
        for spot in &spots {
            prop_assert!(spot.start < spot.end && spot.end <= size);
            prop_assert!(spot.start % 4096 == 0 && (spot.end % 4096 == 0 || spot.end == size));
        }
        prop_assert!(spots.windows(2).all(|pair| pair[0].end < pair[1].start));
        image.find();
    }
}
