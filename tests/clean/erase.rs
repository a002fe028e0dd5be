//! Overwriting and discarding, on loop devices.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use local_volume_provisioner::wipe::device::{Disk, WipeOutcome};
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use support::{LoopDevice, Sandbox};

use crate::device::{
    SIZES, assert_all_zero, assert_direct_is_off, cancel_when, open, without_offload, write_secrets,
};

const SECTOR: usize = 512;

#[test]
fn an_overwrite_leaves_zeros() {
    let sandbox = or_skip!(Sandbox::enter());
    for size in SIZES.into_iter().chain([512]) {
        for device in
            [LoopDevice::new(sandbox.path(), size).unwrap(), without_offload(&sandbox, size)]
        {
            write_secrets(&device, size);
            let (file, progress) = (open(&device), Progress::default());
            let before = device.written().unwrap();
            let outcome = Disk::new(&file, size, &progress).overwrite(2).unwrap();
            assert_eq!(device.written().unwrap() - before, 3 * size);
            assert_eq!(outcome, WipeOutcome::Overwritten);
            Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
            let figures = (progress.bytes_done(), progress.bytes_total());
            assert_eq!(figures, (3 * size, 3 * size));
            assert_direct_is_off(&file);
            assert_all_zero(&device);
        }
    }
}

#[test]
fn random_bytes_come_before_the_zeros() {
    let sandbox = or_skip!(Sandbox::enter());
    let size: u64 = (4 << 20) + 7 * 512;
    let device = LoopDevice::new(sandbox.path(), size).unwrap();
    let before = b"\xaa".repeat(usize::try_from(size).unwrap());
    device.file().write_all_at(&before, 0).unwrap();
    device.file().sync_all().unwrap();
    let (file, progress) = (open(&device), Progress::default());
    // Stopped in some later pass, so that every byte is of one of them.
    let passes = 10_000;
    cancel_when(size, &progress, || Disk::new(&file, size, &progress).overwrite(passes));
    assert!(progress.bytes_done() < size * u64::from(passes));
    let after = fs::read(device.path()).unwrap();
    let sectors: HashSet<&[u8]> = after.chunks(SECTOR).collect();
    assert_eq!(sectors.len(), before.len() / SECTOR, "two are alike");
    // One byte in 256 is what it was; the bounds are more than ten standard deviations away.
    let mut counts = [0_usize; 256];
    for byte in &after {
        counts[usize::from(*byte)] += 1;
    }
    let expected = before.len() / 256;
    for (value, count) in counts.into_iter().enumerate() {
        let off = count.abs_diff(expected);
        assert!(off < expected / 10, "{value}: {count} times");
    }
}

/// The file below a device that was punched has no blocks.
#[test]
fn an_overwrite_writes_where_a_device_could_punch() {
    let sandbox = or_skip!(Sandbox::enter());
    let size: u64 = 8 << 20;
    let backing = tempfile::tempfile_in(sandbox.path()).unwrap();
    backing.set_len(size).unwrap();
    let device = LoopDevice::over(&backing).unwrap();
    let used = || backing.metadata().unwrap().blocks() * 512;
    Disk::new(&open(&device), size, &Progress::default()).discard().unwrap();
    assert_eq!(used(), 0, "else this proves nothing");
    Disk::new(&open(&device), size, &Progress::default()).overwrite(1).unwrap();
    assert!(used() >= size, "{}", used());
}

#[test]
fn a_cancelled_overwrite_stops_at_once() {
    let sandbox = or_skip!(Sandbox::enter());
    let size = 256 << 20;
    let device = without_offload(&sandbox, size);
    let (file, progress) = (open(&device), Progress::default());
    cancel_when(1, &progress, || Disk::new(&file, size, &progress).overwrite(10_000));
    assert_direct_is_off(&file);
    let error = Disk::new(&file, size, &progress).discard().unwrap_err();
    assert_eq!(error, WipeError::Cancelled);
}

#[test]
fn a_discard_is_believed_where_zeros_are_read() {
    let sandbox = or_skip!(Sandbox::enter());
    for size in SIZES {
        let device = LoopDevice::new(sandbox.path(), size).unwrap();
        write_secrets(&device, size);
        let (file, progress) = (open(&device), Progress::default());
        let outcome = Disk::new(&file, size, &progress).discard().unwrap();
        assert_eq!(outcome, WipeOutcome::DiscardedToZeros);
        Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
        assert_eq!((progress.bytes_done(), progress.bytes_total()), (size, size));
        assert_direct_is_off(&file);
        assert_all_zero(&device);
    }
}

#[test]
fn a_device_that_cannot_discard_is_zeroed() {
    let sandbox = or_skip!(Sandbox::enter());
    for size in SIZES {
        let device = without_offload(&sandbox, size);
        write_secrets(&device, size);
        let file = open(&device);
        let outcome = Disk::new(&file, size, &Progress::default()).discard().unwrap();
        assert_eq!(outcome, WipeOutcome::Written);
        Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
        assert_all_zero(&device);
    }
}
