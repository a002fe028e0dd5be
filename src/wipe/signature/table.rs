//! The magic numbers at a fixed distance from one end of a device.

/// A magic number with its place.
pub struct Magic {
    pub name: &'static str,
    pub at: At,
    pub bytes: &'static [u8],
}

/// A place on a device, in bytes.
#[derive(Clone, Copy)]
pub enum At {
    Start(u64),
    /// Before the end.
    End(u64),
    /// Before the end; the result is rounded down to a multiple of the second number.
    AlignedEnd(u64, u64),
}

impl At {
    /// The offset on a device of `size` bytes, if the device is large enough.
    pub fn offset(self, size: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End(distance) => size.checked_sub(distance),
            Self::AlignedEnd(distance, align) => {
                (size.checked_sub(distance)? / align).checked_mul(align)
            }
        }
    }
}

/// The maximum length of a magic number.
pub const LONGEST: usize = 32;

const fn start(name: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    Magic {
        name,
        at: At::Start(offset),
        bytes,
    }
}

const fn end(name: &'static str, distance: u64, bytes: &'static [u8]) -> Magic {
    Magic {
        name,
        at: At::End(distance),
        bytes,
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const BTRFS: &[u8] = b"_BHRfS_M";
const LUKS2_COPY: &[u8] = b"SKUL\xba\xbe";
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG_ENDIAN: &[u8] = b"\xa9\x2b\x4e\xfc";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

/// In order of preference: the first match is named in messages.
pub const MAGICS: &[Magic] = &[
    // Filesystems
    start("ext4", 0x438, b"\x53\xef"),
    start("xfs", 0, b"XFSB"),
    start("btrfs", 64 * KIB + 0x40, BTRFS),
    start("btrfs", 64 * MIB + 0x40, BTRFS),
    start("btrfs", 256 * GIB + 0x40, BTRFS),
    // Swap: at the end of the first page, for each page size
    start("swap", 4 * KIB - 10, b"SWAPSPACE2"),
    start("swap", 8 * KIB - 10, b"SWAPSPACE2"),
    start("swap", 16 * KIB - 10, b"SWAPSPACE2"),
    start("swap", 64 * KIB - 10, b"SWAPSPACE2"),
    start("swap", 4 * KIB - 10, b"SWAP-SPACE"),
    start("swsuspend", 4 * KIB - 10, b"S1SUSPEND"),
    start("swsuspend", 4 * KIB - 10, b"ULSUSPEND"),
    // Volume managers and RAID
    start("LVM2_member", 0x018, b"LVM2 001"),
    start("LVM2_member", 0x218, b"LVM2 001"),
    start("LVM2_member", 0x418, b"LVM2 001"),
    start("LVM2_member", 0x618, b"LVM2 001"),
    start("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    start("crypto_LUKS", 16 * KIB, LUKS2_COPY),
    start("crypto_LUKS", 32 * KIB, LUKS2_COPY),
    start("crypto_LUKS", 64 * KIB, LUKS2_COPY),
    start("crypto_LUKS", 128 * KIB, LUKS2_COPY),
    start("crypto_LUKS", 256 * KIB, LUKS2_COPY),
    start("crypto_LUKS", 512 * KIB, LUKS2_COPY),
    start("crypto_LUKS", MIB, LUKS2_COPY),
    start("crypto_LUKS", 2 * MIB, LUKS2_COPY),
    start("crypto_LUKS", 4 * MIB, LUKS2_COPY),
    start("linux_raid_member", 0, MD),
    start("linux_raid_member", 4 * KIB, MD),
    Magic {
        name: "linux_raid_member",
        at: At::AlignedEnd(8 * KIB, 4 * KIB),
        bytes: MD,
    },
    Magic {
        name: "linux_raid_member",
        at: At::AlignedEnd(64 * KIB, 64 * KIB),
        bytes: MD,
    },
    Magic {
        name: "linux_raid_member",
        at: At::AlignedEnd(64 * KIB, 64 * KIB),
        bytes: MD_BIG_ENDIAN,
    },
    end("ddf_raid_member", 512, b"\xde\x11\xde\x11"),
    end("ddf_raid_member", 4 * KIB, b"\xde\x11\xde\x11"),
    end("isw_raid_member", KIB, b"Intel Raid ISM Cfg Sig. "),
    end("isw_raid_member", 8 * KIB, b"Intel Raid ISM Cfg Sig. "),
    start("bcache", 4 * KIB + 0x18, BCACHE),
    start("bcachefs", 4 * KIB + 0x18, BCACHEFS),
    start("stratis", 512 + 4, STRATIS),
    start("stratis", 9 * 512 + 4, STRATIS),
    start("vdo", 0, b"dmvdo001"),
    start("ceph_bluestore", 0, b"bluestore block device"),
    start("oracleasm", 32, b"ORCLDISK"),
    start("DM_integrity", 0, b"integrit"),
    start("DM_verity_hash", 0, b"verity\0\0"),
    start("DM_snapshot_cow", 0, b"SnAp"),
    start("VMFS_volume_member", MIB, b"\x0d\xd0\x01\xc0"),
    start("VMFS", 2 * MIB, b"\x5e\xf1\xab\x2f"),
    // Partition tables, with sectors of 512 and of 4096 bytes
    start("gpt", 512, b"EFI PART"),
    start("gpt", 4 * KIB, b"EFI PART"),
    end("gpt", 512, b"EFI PART"),
    end("gpt", 4 * KIB, b"EFI PART"),
    // Other filesystems
    start("vfat", 0x36, b"FAT12   "),
    start("vfat", 0x36, b"FAT16   "),
    start("vfat", 0x52, b"FAT32   "),
    start("ntfs", 3, b"NTFS    "),
    start("exfat", 3, b"EXFAT   "),
    start("BitLocker", 3, b"-FVE-FS-"),
    start("f2fs", KIB, b"\x10\x20\xf5\xf2"),
    start("f2fs", 5 * KIB, b"\x10\x20\xf5\xf2"),
    start("nilfs2", KIB + 6, b"\x34\x34"),
    start("jfs", 32 * KIB, b"JFS1"),
    start("reiserfs", 64 * KIB + 0x34, b"ReIsEr"),
    start("reiserfs", 8 * KIB + 0x34, b"ReIsEr"),
    start("reiser4", 64 * KIB, b"ReIsEr4"),
    start("gfs2", 64 * KIB, b"\x01\x16\x19\x70"),
    start("ocfs2", KIB, b"OCFSV2"),
    start("ocfs2", 2 * KIB, b"OCFSV2"),
    start("ocfs2", 4 * KIB, b"OCFSV2"),
    start("ocfs2", 8 * KIB, b"OCFSV2"),
    start("iso9660", 32 * KIB + 1, b"CD001"),
    start("udf", 32 * KIB + 1, b"BEA01"),
    start("hfsplus", KIB, b"H+"),
    start("hfsplus", KIB, b"HX"),
    end("hfsplus", KIB, b"H+"),
    end("hfsplus", KIB, b"HX"),
    start("apfs", 32, b"NXSB"),
    start("ufs", 8 * KIB + 0x55c, b"\x54\x19\x01\x00"),
    start("ufs", 64 * KIB + 0x55c, b"\x19\x01\x54\x19"),
    start("squashfs", 0, b"hsqs"),
    start("cramfs", 0, b"\x45\x3d\xcd\x28"),
    start("romfs", 0, b"-rom1fs-"),
    start("erofs", KIB, b"\xe2\xe1\xf5\xe0"),
    start("minix", KIB + 0x10, b"\x7f\x13"),
    start("minix", KIB + 0x10, b"\x8f\x13"),
    start("minix", KIB + 0x10, b"\x68\x24"),
    start("minix", KIB + 0x10, b"\x78\x24"),
    start("minix", KIB + 0x18, b"\x5a\x4d"),
    // Last: FAT and NTFS boot sectors end like this too
    start("dos", 510, b"\x55\xaa"),
];
