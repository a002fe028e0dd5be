//! The magic numbers at fixed distances from one end of a device.

/// A magic number with its places.
pub struct Magic {
    pub name: &'static str,
    pub bytes: &'static [u8],
    /// In bytes from the start of the device.
    start: &'static [u64],
    /// In bytes before the end of the device; the result is rounded down to a multiple of the second number.
    end: &'static [(u64, u64)],
}

impl Magic {
    /// Its offsets on a device of `size` bytes.
    pub fn offsets(&self, size: u64) -> impl Iterator<Item = u64> {
        let offset = move |&(distance, align): &(u64, u64)| {
            let offset = size.checked_sub(distance)?;
            Some(offset / align * align)
        };
        let at_end = self.end.iter().filter_map(offset);
        self.start.iter().copied().chain(at_end)
    }
}

/// The maximum length of a magic number.
pub const LONGEST: usize = 32;

const fn start(name: &'static str, bytes: &'static [u8], start: &'static [u64]) -> Magic {
    Magic {
        name,
        bytes,
        start,
        end: &[],
    }
}

const fn end(name: &'static str, bytes: &'static [u8], end: &'static [(u64, u64)]) -> Magic {
    Magic {
        name,
        bytes,
        start: &[],
        end,
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
/// `mdadm` writes its version 0.90 in the byte order of the machine.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG_ENDIAN: &[u8] = b"\xa9\x2b\x4e\xfc";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

/// The end of the first page, for each page size.
const SWAP: &[u64] = &[4 * KIB - 10, 8 * KIB - 10, 16 * KIB - 10, 64 * KIB - 10];
/// The possible sizes of the first header.
const LUKS2_COPIES: &[u64] = &[
    16 * KIB,
    32 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
    512 * KIB,
    MIB,
    2 * MIB,
    4 * MIB,
];

/// In order of preference: the first match is named in messages.
pub const MAGICS: &[Magic] = &[
    // Filesystems
    start("ext4", b"\x53\xef", &[0x438]),
    start("xfs", b"XFSB", &[0]),
    start(
        "btrfs",
        b"_BHRfS_M",
        &[64 * KIB + 0x40, 64 * MIB + 0x40, 256 * GIB + 0x40],
    ),
    start("swap", b"SWAPSPACE2", SWAP),
    start("swap", b"SWAP-SPACE", SWAP),
    start("swsuspend", b"S1SUSPEND", SWAP),
    start("swsuspend", b"ULSUSPEND", SWAP),
    // Volume managers and RAID
    start("LVM2_member", b"LVM2 001", &[0x018, 0x218, 0x418, 0x618]),
    start("crypto_LUKS", b"LUKS\xba\xbe", &[0]),
    start("crypto_LUKS", b"SKUL\xba\xbe", LUKS2_COPIES),
    start("linux_raid_member", MD, &[0, 4 * KIB]),
    end(
        "linux_raid_member",
        MD,
        &[(8 * KIB, 4 * KIB), (64 * KIB, 64 * KIB)],
    ),
    end("linux_raid_member", MD_BIG_ENDIAN, &[(64 * KIB, 64 * KIB)]),
    end(
        "ddf_raid_member",
        b"\xde\x11\xde\x11",
        &[(512, 1), (4 * KIB, 1)],
    ),
    end(
        "isw_raid_member",
        b"Intel Raid ISM Cfg Sig. ",
        &[(KIB, 1), (8 * KIB, 1)],
    ),
    start("bcache", BCACHE, &[4 * KIB + 0x18]),
    start("bcachefs", BCACHEFS, &[4 * KIB + 0x18]),
    start("stratis", STRATIS, &[512 + 4, 9 * 512 + 4]),
    start("vdo", b"dmvdo001", &[0]),
    start("ceph_bluestore", b"bluestore block device", &[0]),
    start("oracleasm", b"ORCLDISK", &[32]),
    start("DM_integrity", b"integrit", &[0]),
    start("DM_verity_hash", b"verity\0\0", &[0]),
    start("DM_snapshot_cow", b"SnAp", &[0]),
    start("VMFS_volume_member", b"\x0d\xd0\x01\xc0", &[MIB]),
    start("VMFS", b"\x5e\xf1\xab\x2f", &[2 * MIB]),
    // Partition tables, with sectors of 512 and of 4096 bytes
    start("gpt", b"EFI PART", &[512, 4 * KIB]),
    end("gpt", b"EFI PART", &[(512, 1), (4 * KIB, 1)]),
    // Other filesystems
    start("vfat", b"FAT12   ", &[0x36]),
    start("vfat", b"FAT16   ", &[0x36]),
    start("vfat", b"FAT32   ", &[0x52]),
    start("ntfs", b"NTFS    ", &[3]),
    start("exfat", b"EXFAT   ", &[3]),
    start("BitLocker", b"-FVE-FS-", &[3]),
    start("f2fs", b"\x10\x20\xf5\xf2", &[KIB, 5 * KIB]),
    start("nilfs2", b"\x34\x34", &[KIB + 6]),
    start("jfs", b"JFS1", &[32 * KIB]),
    start("reiserfs", b"ReIsEr", &[64 * KIB + 0x34, 8 * KIB + 0x34]),
    start("reiser4", b"ReIsEr4", &[64 * KIB]),
    start("gfs2", b"\x01\x16\x19\x70", &[64 * KIB]),
    start("ocfs2", b"OCFSV2", &[KIB, 2 * KIB, 4 * KIB, 8 * KIB]),
    start("iso9660", b"CD001", &[32 * KIB + 1]),
    start("udf", b"BEA01", &[32 * KIB + 1]),
    start("hfsplus", b"H+", &[KIB]),
    start("hfsplus", b"HX", &[KIB]),
    end("hfsplus", b"H+", &[(KIB, 1)]),
    end("hfsplus", b"HX", &[(KIB, 1)]),
    start("apfs", b"NXSB", &[32]),
    start("ufs", b"\x54\x19\x01\x00", &[8 * KIB + 0x55c]),
    start("ufs", b"\x19\x01\x54\x19", &[64 * KIB + 0x55c]),
    start("squashfs", b"hsqs", &[0]),
    start("cramfs", b"\x45\x3d\xcd\x28", &[0]),
    start("romfs", b"-rom1fs-", &[0]),
    start("erofs", b"\xe2\xe1\xf5\xe0", &[KIB]),
    start("minix", b"\x7f\x13", &[KIB + 0x10]),
    start("minix", b"\x8f\x13", &[KIB + 0x10]),
    start("minix", b"\x68\x24", &[KIB + 0x10]),
    start("minix", b"\x78\x24", &[KIB + 0x10]),
    start("minix", b"\x5a\x4d", &[KIB + 0x18]),
    // Last: FAT and NTFS boot sectors end like this too
    start("dos", b"\x55\xaa", &[510]),
];
