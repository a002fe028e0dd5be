//! Devices that are read back as a whole.

use std::os::unix::fs::FileExt;

use local_volume_provisioner::wipe::device::{DeviceError, check_zeroed, verify_zeroed};
use local_volume_provisioner::wipe::progress::Progress;
use support::{LoopDevice, sandbox};

use crate::device::{assert_direct_is_off, cancel_when, open};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB + 7 * 512;

#[test]
fn the_first_byte_that_is_not_zero_is_found_wherever_it_is() {
    let sandbox = sandbox!();
    let device = LoopDevice::new(sandbox.path(), SIZE).unwrap();
    let file = open(&device);
    let put = |bytes: &[u64], with: &[u8; 1]| {
        for at in bytes {
            file.write_all_at(with, *at).unwrap();
        }
        file.sync_all().unwrap();
    };
    for bytes in [
        &[0][..],
        &[SIZE - 1],
        &[33 * MIB - 1],
        // Where the look at a few places finds nothing.
        &[20 * MIB + 5000],
        // In chunks that are read at the same time.
        &[7 * MIB + 1, 8 * MIB],
        &[7 * MIB + 4096, 8 * MIB - 1, 9 * MIB, SIZE - 1],
    ] {
        put(bytes, b"x");
        let progress = Progress::default();
        match verify_zeroed(&file, SIZE, &progress).unwrap_err() {
            DeviceError::NotZero { offset } => assert_eq!(offset, bytes[0]),
            other => panic!("{other}"),
        }
        assert!(progress.bytes_done() < SIZE);
        assert_direct_is_off(&file);
        put(bytes, b"\0");
    }
    // A look at a few places finds what is left at either end and in the middle.
    for at in [4097, SIZE - 1, 32 * MIB] {
        put(&[at], b"x");
        match check_zeroed(&file, SIZE, &Progress::default()).unwrap_err() {
            DeviceError::NotZero { offset } => assert_eq!(offset, at),
            other => panic!("{other}"),
        }
        put(&[at], b"\0");
    }
    put(&[20 * MIB + 5000], b"x");
    check_zeroed(&file, SIZE, &Progress::default()).unwrap();
    put(&[20 * MIB + 5000], b"\0");
    let progress = Progress::default();
    verify_zeroed(&file, SIZE, &progress).unwrap();
    let figures = (progress.bytes_done(), progress.bytes_total());
    assert_eq!(figures, (SIZE, SIZE));
}

#[test]
fn a_cancelled_read_back_stops_at_once() {
    let sandbox = sandbox!();
    // Nothing of it is on the disk, and yet it takes minutes.
    let size = MIB * MIB;
    let device = LoopDevice::new(sandbox.path(), size).unwrap();
    let (file, progress) = (open(&device), Progress::default());
    cancel_when(1, &progress, || verify_zeroed(&file, size, &progress));
    assert!(progress.bytes_done() < size);
    assert_direct_is_off(&file);
}
