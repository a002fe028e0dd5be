//! The magic numbers at fixed distances from one end of a device.

/// A type as named by `blkid`, its magic number, and the places of it in bytes: from the start of the device, or
/// before its end if negative.
pub type Magic = (&'static str, &'static [u8], &'static [i64]);

/// The offset of a place on a device of `size` bytes. What is at the end of a device is at a multiple of its unit, which
/// is the largest of these that divides the distance.
pub fn offset(place: i64, size: u64) -> Option<u64> {
    let distance = place.unsigned_abs();
    if place >= 0 {
        return Some(distance);
    }
    let mut units = [64 << 10, 4 << 10, 512].into_iter();
    let unit = units.find(|unit| distance.is_multiple_of(*unit))?;
    Some(size.checked_sub(distance)? / unit * unit)
}

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const ISW: &[u8] = b"Intel Raid ISM Cfg Sig. ";
/// `mdadm` writes its version 0.90 in the byte order of the machine.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG_ENDIAN: &[u8] = b"\xa9\x2b\x4e\xfc";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

/// The superblock and its copies.
const BTRFS: &[i64] = &[64 * KIB + 0x40, 64 * MIB + 0x40, 256 * GIB + 0x40];
/// The end of the first page, for each page size.
const SWAP: &[i64] = &[4 * KIB - 10, 8 * KIB - 10, 16 * KIB - 10, 64 * KIB - 10];
/// The possible sizes of the first header.
const LUKS2_COPIES: &[i64] =
    &[0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];

/// In order of preference: the first match is named in messages.
pub const MAGICS: &[Magic] = &[
    // Filesystems
    ("ext4", b"\x53\xef", &[0x438]),
    ("xfs", b"XFSB", &[0]),
    ("btrfs", b"_BHRfS_M", BTRFS),
    ("swap", b"SWAPSPACE2", SWAP),
    ("swap", b"SWAP-SPACE", SWAP),
    ("swsuspend", b"S1SUSPEND", SWAP),
    ("swsuspend", b"ULSUSPEND", SWAP),
    // Volume managers and RAID
    ("LVM2_member", b"LVM2 001", &[0x018, 0x218, 0x418, 0x618]),
    ("crypto_LUKS", b"LUKS\xba\xbe", &[0]),
    ("crypto_LUKS", b"SKUL\xba\xbe", LUKS2_COPIES),
    ("linux_raid_member", MD, &[0, 4 * KIB, -8 * KIB, -64 * KIB]),
    ("linux_raid_member", MD_BIG_ENDIAN, &[-64 * KIB]),
    ("ddf_raid_member", b"\xde\x11\xde\x11", &[-512, -4 * KIB]),
    ("isw_raid_member", ISW, &[-KIB, -8 * KIB]),
    ("bcache", BCACHE, &[4 * KIB + 0x18]),
    ("bcachefs", BCACHEFS, &[4 * KIB + 0x18]),
    ("stratis", STRATIS, &[512 + 4, 9 * 512 + 4]),
    ("vdo", b"dmvdo001", &[0]),
    ("ceph_bluestore", b"bluestore block device", &[0]),
    ("oracleasm", b"ORCLDISK", &[32]),
    ("DM_integrity", b"integrit", &[0]),
    ("DM_verity_hash", b"verity\0\0", &[0]),
    ("DM_snapshot_cow", b"SnAp", &[0]),
    ("VMFS_volume_member", b"\x0d\xd0\x01\xc0", &[MIB]),
    ("VMFS", b"\x5e\xf1\xab\x2f", &[2 * MIB]),
    // Partition tables, with sectors of 512 and of 4096 bytes
    ("gpt", b"EFI PART", &[512, 4 * KIB, -512, -4 * KIB]),
    // Other filesystems
    ("vfat", b"FAT12   ", &[0x36]),
    ("vfat", b"FAT16   ", &[0x36]),
    ("vfat", b"FAT32   ", &[0x52]),
    ("ntfs", b"NTFS    ", &[3]),
    ("exfat", b"EXFAT   ", &[3]),
    ("BitLocker", b"-FVE-FS-", &[3]),
    ("f2fs", b"\x10\x20\xf5\xf2", &[KIB, 5 * KIB]),
    ("nilfs2", b"\x34\x34", &[KIB + 6]),
    ("jfs", b"JFS1", &[32 * KIB]),
    ("reiserfs", b"ReIsEr", &[64 * KIB + 0x34, 8 * KIB + 0x34]),
    ("reiser4", b"ReIsEr4", &[64 * KIB]),
    ("gfs2", b"\x01\x16\x19\x70", &[64 * KIB]),
    ("ocfs2", b"OCFSV2", &[KIB, 2 * KIB, 4 * KIB, 8 * KIB]),
    ("iso9660", b"CD001", &[32 * KIB + 1]),
    ("udf", b"BEA01", &[32 * KIB + 1]),
    ("hfsplus", b"H+", &[KIB, -KIB]),
    ("hfsplus", b"HX", &[KIB, -KIB]),
    ("apfs", b"NXSB", &[32]),
    ("ufs", b"\x54\x19\x01\x00", &[8 * KIB + 0x55c]),
    ("ufs", b"\x19\x01\x54\x19", &[64 * KIB + 0x55c]),
    ("squashfs", b"hsqs", &[0]),
    ("cramfs", b"\x45\x3d\xcd\x28", &[0]),
    ("romfs", b"-rom1fs-", &[0]),
    ("erofs", b"\xe2\xe1\xf5\xe0", &[KIB]),
    ("minix", b"\x7f\x13", &[KIB + 0x10]),
    ("minix", b"\x8f\x13", &[KIB + 0x10]),
    ("minix", b"\x68\x24", &[KIB + 0x10]),
    ("minix", b"\x78\x24", &[KIB + 0x10]),
    ("minix", b"\x5a\x4d", &[KIB + 0x18]),
    // Last: FAT and NTFS boot sectors end like this too
    ("dos", b"\x55\xaa", &[510]),
];
