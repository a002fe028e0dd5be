//! The device cleaners on loop devices, with the tools that find and repair filesystems as judges.

use std::fmt::Debug;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use local_volume_provisioner::wipe::device::{Disk, WipeOutcome};
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use support::{LoopDevice, Sandbox, sandbox, skip};

use crate::volume::run;

const SECRET: &[u8] = b"the tenant's secret";

/// Opens a device as the provisioner does.
pub fn open(device: &LoopDevice) -> File {
    device.open_alone().unwrap()
}

pub fn size_of(device: &LoopDevice) -> u64 {
    File::open(device.path()).unwrap().seek(SeekFrom::End(0)).unwrap()
}

/// A device that can neither punch nor discard: the file below it cannot.
pub fn without_offload(sandbox: &Sandbox, size: u64) -> LoopDevice {
    LoopDevice::new(&sandbox.ramfs("ramfs").unwrap(), size).unwrap()
}

fn reset(device: &LoopDevice) -> WipeOutcome {
    let (file, size) = (open(device), size_of(device));
    let outcome = Disk::new(&file, size, &Progress::default()).quick_reset().unwrap();
    Disk::new(&file, size, &Progress::default()).check_reset().unwrap();
    outcome
}

#[test]
fn a_quick_reset_reports_progress_and_whether_it_dropped_the_contents() {
    let sandbox = sandbox!();
    let size = 256 << 20;
    // Punched as a whole, or not at all; and in both cases the places of superblocks are written.
    for (device, dropped, means) in [
        (LoopDevice::new(sandbox.path(), size).unwrap(), size, WipeOutcome::Punched),
        (without_offload(&sandbox, size), 0, WipeOutcome::SignaturesOnly),
    ] {
        // In a place that belongs to no filesystem's metadata.
        device.file().write_all_at(SECRET, 177 << 20).unwrap();
        device.file().sync_all().unwrap();
        let (file, progress) = (open(&device), Progress::default());
        let before = device.written().unwrap();
        assert_eq!(Disk::new(&file, size, &progress).quick_reset().unwrap(), means);
        let written = device.written().unwrap() - before;
        assert!(written > dropped, "{written}");
        let figures = (progress.bytes_done(), progress.bytes_total());
        assert_eq!(figures, (written, written));
        let mut left = [0; SECRET.len()];
        device.file().read_exact_at(&mut left, 177 << 20).unwrap();
        assert_eq!(left == SECRET, means == WipeOutcome::SignaturesOnly);
    }
}

/// What other tools see on a device: nothing.
fn assert_looks_new(device: &LoopDevice) {
    let path = device.path().to_str().unwrap();
    assert_eq!(run("wipefs", &["--no-act", path]), "");
    let output = Command::new("blkid").args(["--probe", path]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.as_str()), (Some(2), ""));
}

/// Writes the secret all over a device.
pub fn write_secrets(device: &LoopDevice, size: u64) {
    let size = usize::try_from(size).unwrap();
    let mut secrets = SECRET.repeat(size / SECRET.len() + 1);
    secrets.truncate(size);
    device.file().write_all_at(&secrets, 0).unwrap();
    device.file().sync_all().unwrap();
}

pub fn assert_all_zero(device: &LoopDevice) {
    assert!(device.is_zero().unwrap());
}

/// Sizes that are multiples of nothing, too.
pub const SIZES: [u64; 4] = [64 << 20, (64 << 20) + 7 * 512, (1 << 20) - 512, 4096];

#[test]
fn zeroing_leaves_no_byte_on_a_device_whether_it_can_punch_or_not() {
    let sandbox = sandbox!();
    for size in SIZES {
        let device = LoopDevice::new(sandbox.path(), size).unwrap();
        assert_zeroes(&device, size, WipeOutcome::Punched);
        let device = without_offload(&sandbox, size);
        assert_zeroes(&device, size, WipeOutcome::Written);
    }
}

#[test]
fn each_pass_of_zeros_counts() {
    let sandbox = sandbox!();
    let size = 8 << 20;
    for device in [LoopDevice::new(sandbox.path(), size).unwrap(), without_offload(&sandbox, size)]
    {
        write_secrets(&device, size);
        let (file, progress) = (open(&device), Progress::default());
        let before = device.written().unwrap();
        Disk::new(&file, size, &progress).zero(3).unwrap();
        let markers = (device.written().unwrap() - before) - 3 * size;
        assert!(markers < 4 << 20, "{markers} bytes more");
        let expected = (3 * size, 3 * size);
        assert_eq!((progress.bytes_done(), progress.bytes_total()), expected);
        assert_all_zero(&device);
    }
}

fn assert_zeroes(device: &LoopDevice, size: u64, means: WipeOutcome) {
    assert_eq!(size_of(device), size);
    write_secrets(device, size);
    let (file, progress) = (open(device), Progress::default());
    let error = Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap_err();
    assert_eq!(error, WipeError::NotZero(0));
    assert_eq!(Disk::new(&file, size, &progress).zero(1).unwrap(), means);
    Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
    assert_eq!((progress.bytes_done(), progress.bytes_total()), (size, size));
    assert_direct_is_off(&file);
    assert_all_zero(device);
}

#[test]
fn what_is_left_at_either_end_or_at_a_sampled_place_is_found() {
    let sandbox = sandbox!();
    let size = (64 << 20) + 7 * 512;
    let device = LoopDevice::new(sandbox.path(), size).unwrap();
    let file = open(&device);
    let put = |at: u64, with: &[u8; 1]| {
        file.write_all_at(with, at).unwrap();
        file.sync_all().unwrap();
    };
    for at in [4097, size - 1, 32 << 20] {
        put(at, b"x");
        let error = Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap_err();
        assert_eq!(error, WipeError::NotZero(at));
        assert_direct_is_off(&file);
        put(at, b"\0");
    }
    Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
}

/// The descriptor is the caller's again, as it was.
pub fn assert_direct_is_off(file: &File) {
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_DIRECT));
}

#[test]
fn sectors_of_4_and_64_kib() {
    let sandbox = sandbox!("losetup");
    for (sector, punches) in [(4096, true), (4096, false), (64 << 10, true), (64 << 10, false)] {
        let size = (64 << 20) + sector;
        let (device, means) = if punches {
            let device = LoopDevice::new(sandbox.path(), size).unwrap();
            (device, WipeOutcome::Punched)
        } else {
            (without_offload(&sandbox, size), WipeOutcome::Written)
        };
        let set = Command::new("losetup")
            .args(["--sector-size", &sector.to_string()])
            .arg(device.path())
            .status()
            .unwrap();
        if !set.success() && sector > 4096 {
            return skip("this kernel has no sectors larger than a page");
        }
        // Else the kernel takes it over when the device is opened, and this one is open already.
        let path = device.path().to_str().unwrap();
        run("blockdev", &["--setbsz", &sector.to_string(), path]);
        let name = device.path().file_name().unwrap().to_str().unwrap();
        let queue = format!("/sys/block/{name}/queue/logical_block_size");
        let found = std::fs::read_to_string(queue).unwrap();
        assert_eq!(found.trim(), sector.to_string());
        assert_eq!(size_of(&device), size);
        assert_zeroes(&device, size, means);
        write_secrets(&device, size);
        Disk::new(&open(&device), size, &Progress::default()).discard().unwrap();
        assert_all_zero(&device);
        device.file().write_all_at(b"EFI PART", 4096).unwrap();
        reset(&device);
        assert_looks_new(&device);
    }
}

/// No chunk that is written is larger, and no first step of a discard.
const STEP: u64 = 64 << 20;

/// Stops a wipe when it has come so far: it only finishes its current step. It has to be one
/// that takes minutes, since this thread may get no time for a while.
pub fn cancel_when<T: Debug>(
    bytes_done: u64,
    progress: &Progress,
    wipe: impl FnOnce() -> Result<T, WipeError>,
) {
    let watcher = progress.clone();
    let stopper = thread::spawn(move || {
        while watcher.bytes_done() < bytes_done {
            thread::sleep(Duration::from_millis(1));
        }
        watcher.cancel();
        (watcher.bytes_done(), Instant::now())
    });
    let error = wipe().unwrap_err();
    assert_eq!(error, WipeError::Cancelled);
    let (bytes_then, then) = stopper.join().unwrap();
    assert!(then.elapsed() < Duration::from_secs(10));
    assert!(progress.bytes_done() - bytes_then <= STEP);
}

#[test]
fn a_cancelled_wipe_stops_at_once() {
    let sandbox = sandbox!();
    let size = 1 << 30;
    let device = without_offload(&sandbox, size);
    let (file, progress) = (open(&device), Progress::default());
    cancel_when(1, &progress, || Disk::new(&file, size, &progress).zero(1000));
    let error = Disk::new(&file, size, &progress).quick_reset().unwrap_err();
    assert_eq!(error, WipeError::Cancelled);
}
