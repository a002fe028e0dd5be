//! Headers whose own tools are seldom installed, made by hand: as much of them as `blkid` asks for
//! before it believes in them.

use std::os::unix::fs::FileExt;

use support::LoopDevice;

const SECTOR: u64 = 512;

fn put(device: &LoopDevice, offset: u64, bytes: &[u8]) {
    device.file().write_all_at(bytes, offset).unwrap();
    device.file().sync_all().unwrap();
}

/// Fields of a structure, each with its place in it.
fn structure<const SIZE: usize>(fields: &[(usize, &[u8])]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// A member of an md array with the superblock that ends the device, of version 0.90.
pub fn md_0_90(device: &LoopDevice, size: u64) {
    const RESERVED: u64 = 64 << 10;
    let [minor, disks] = [90, 2_u32].map(u32::to_le_bytes);
    let fields: [(_, &[u8]); 4] = [(0, &MD_MAGIC), (8, &minor), (20, b"uuid"), (40, &disks)];
    put(device, size / RESERVED * RESERVED - RESERVED, &structure::<4096>(&fields));
}

/// The same with a superblock of version 1, which says itself where it is.
pub fn md_1(device: &LoopDevice, offset: u64) {
    let [version, disks] = [1, 2_u32].map(u32::to_le_bytes);
    let place = (offset / SECTOR).to_le_bytes();
    let fields: [(_, &[u8]); 6] = [
        (0, &MD_MAGIC),
        (4, &version),
        (16, b"uuid of the array"),
        (92, &disks),
        (144, &place),
        (168, b"uuid of the disk"),
    ];
    put(device, offset, &structure::<4096>(&fields));
}

/// A physical volume of LVM, whose label is in the second sector.
pub fn lvm(device: &LoopDevice, _size: u64) {
    let mut label: [u8; 512] = structure(&[
        (0, b"LABELONE"),
        (8, &1_u64.to_le_bytes()),
        (20, &32_u32.to_le_bytes()),
        (24, b"LVM2 001"),
        (32, b"0123456789abcdefghijklmnopqrstuv"),
    ]);
    let crc = label[20..].iter().fold(0xf597_a6cf_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    });
    label[16..20].copy_from_slice(&crc.to_le_bytes());
    put(device, SECTOR, &label);
}

/// A disk of a ZFS pool: four labels, two at each end, with uberblocks in them.
pub fn zfs(device: &LoopDevice, size: u64) {
    const LABEL: u64 = 256 << 10;
    let end = size / LABEL * LABEL;
    for label in [0, LABEL, end - 2 * LABEL, end - LABEL] {
        for slot in 0..4 {
            let uberblock = 0x00ba_b10c_u64.to_le_bytes();
            put(device, label + LABEL / 2 + slot * 1024, &uberblock);
        }
    }
}

/// A disk behind a bcache.
pub fn bcache(device: &LoopDevice, _size: u64) {
    const MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let sector = (4096 / SECTOR).to_le_bytes();
    let mut header: [u8; 208] = structure(&[(8, &sector), (24, MAGIC), (40, b"uuid of the disk")]);
    let crc = header[8..].iter().fold(u64::MAX, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte) << 56, |crc, _| {
            (crc << 1) ^ (0x42f0_e1eb_a9ea_3693 * (crc >> 63))
        })
    });
    header[..8].copy_from_slice(&(!crc).to_le_bytes());
    put(device, 4096, &header);
}
