//! The device cleaners on loop devices, with the tools that find and repair filesystems as judges.

use std::fmt::Debug;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use local_volume_provisioner::clean::device::{
    DeviceError, Means, check_reset, check_zeroed, discard, quick_reset, verify_zeroed, zero,
    zero_times,
};
use local_volume_provisioner::clean::progress::Progress;
use local_volume_provisioner::clean::signature::{self, Signature};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use support::{LoopDevice, Sandbox, skip};

use crate::volume::{has, run};

const SECRET: &[u8] = b"the tenant's secret";

/// Opens a device as the provisioner does.
pub fn open(device: &LoopDevice) -> File {
    device.open_alone().unwrap()
}

pub fn size_of(device: &LoopDevice) -> u64 {
    File::open(device.path())
        .unwrap()
        .seek(SeekFrom::End(0))
        .unwrap()
}

/// A device that can neither punch nor discard: the file below it cannot.
pub fn without_offload(sandbox: &Sandbox, size: u64) -> LoopDevice {
    LoopDevice::new(&sandbox.ramfs("ramfs").unwrap(), size).unwrap()
}

fn reset(device: &LoopDevice) -> Means {
    let (file, size) = (open(device), size_of(device));
    let report = quick_reset(&file, size, &Progress::default()).unwrap();
    check_reset(&file, size, &Progress::default()).unwrap();
    report.means
}

#[test]
fn a_quick_reset_tells_how_far_it_is() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let size = 256 << 20;
    // Punched as a whole, or not at all; and in both cases the places of superblocks are written.
    for (device, dropped) in [
        (LoopDevice::new(sandbox.path(), size).unwrap(), size),
        (without_offload(&sandbox, size), 0),
    ] {
        let (file, progress) = (open(&device), Progress::default());
        let before = device.written().unwrap();
        quick_reset(&file, size, &progress).unwrap();
        let written = device.written().unwrap() - before;
        assert!(written > dropped, "{written}");
        let figures = (progress.bytes_done(), progress.bytes_total());
        assert_eq!(figures, (written, written));
    }
}

/// What other tools see on a device: nothing.
pub fn assert_looks_new(device: &LoopDevice) {
    let path = device.path().to_str().unwrap();
    assert_eq!(run("wipefs", &["--no-act", path]), "");
    let output = Command::new("blkid")
        .args(["--probe", path])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.as_str()), (Some(2), ""));
}

/// What a program that repairs or reads a filesystem says.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// No copy is left that the filesystem's own tool could start from.
fn assert_not_repaired(fs_type: &str, device: &LoopDevice) {
    let path = device.path().to_str().unwrap();
    match fs_type {
        "ext4" => {
            for (block, size) in [("32768", "4096"), ("98304", "4096"), ("8193", "1024")] {
                let said = output_of("e2fsck", &["-n", "-b", block, "-B", size, path]);
                assert!(said.contains("Bad magic number"), "{said}");
            }
        }
        "xfs" => {
            let said = output_of("xfs_repair", &["-n", path]);
            assert!(said.contains("bad primary superblock"), "{said}");
            assert!(!said.contains("candidate"), "{said}");
        }
        "btrfs" => {
            for copy in ["0", "1"] {
                let said = output_of(
                    "btrfs",
                    &["inspect-internal", "dump-super", "-s", copy, path],
                );
                assert!(said.contains("bad magic"), "{said}");
            }
        }
        _ => unreachable!(),
    }
}

/// The same where the device cannot drop anything, so that all that counts is the places we know.
#[test]
fn without_any_help_of_the_device_the_copies_are_overwritten_one_by_one() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let device = without_offload(&sandbox, 1 << 30);
    let size = size_of(&device);
    for fs_type in ["ext4", "xfs", "btrfs"] {
        if !has(&format!("mkfs.{fs_type}")) {
            skip(&format!("no mkfs.{fs_type} on this machine"));
            continue;
        }
        device.format(fs_type).unwrap();
        // In a place that belongs to nobody's metadata.
        device.file().write_all_at(SECRET, 777 << 20).unwrap();
        assert_eq!(reset(&device), Means::SignaturesOnly);
        assert_looks_new(&device);
        assert_not_repaired(fs_type, &device);
        let mut left = [0; SECRET.len()];
        device.file().read_exact_at(&mut left, 777 << 20).unwrap();
        assert_eq!(left, SECRET, "then `SignaturesOnly` is not true");
        // The reset of one must not be what hides the next.
        zero(&open(&device), size, &Progress::default()).unwrap();
    }
}

/// The judges can be trusted: the usual tool leaves enough for a repair, and we see it too.
#[test]
fn a_copy_that_wipefs_leaves_is_found_and_overwritten() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    if !has("mkfs.ext4") || !has("wipefs") {
        return skip("no mkfs.ext4 or wipefs on this machine");
    }
    let device = without_offload(&sandbox, 1 << 30);
    let (path, size) = (device.path().to_str().unwrap(), size_of(&device));
    device.format("ext4").unwrap();
    run("wipefs", &["--all", path]);
    let said = output_of("e2fsck", &["-n", "-b", "32768", "-B", "4096", path]);
    assert!(said.contains("Pass 5"), "{said}");
    let copy = Signature {
        name: "ext4",
        offset: (128 << 20) + 0x38,
    };
    assert_eq!(signature::find(device.file(), size).unwrap(), Some(copy));
    assert_eq!(
        check_reset(device.file(), size, &Progress::default())
            .unwrap_err()
            .reason(),
        "SignatureLeft"
    );
    assert_eq!(reset(&device), Means::SignaturesOnly);
    assert_not_repaired("ext4", &device);
}

/// Headers that are written by hand, since their tools are seldom installed.
#[test]
fn raid_volume_manager_and_partition_headers_are_reset() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let device = without_offload(&sandbox, (300 << 20) + 512);
    let size = size_of(&device);
    let gib_like = size / 65536 * 65536;
    for (offset, magic, name) in [
        (0x218, &b"LVM2 001"[..], "LVM2_member"),
        (0, b"LUKS\xba\xbe", "crypto_LUKS"),
        (4086, b"SWAPSPACE2", "swap"),
        (4096, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
        (gib_like - 65536, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
        (
            (size - 8192) / 4096 * 4096,
            b"\xfc\x4e\x2b\xa9",
            "linux_raid_member",
        ),
        (size - 512, b"EFI PART", "gpt"),
        (510, b"\x55\xaa", "dos"),
    ] {
        device.file().write_all_at(magic, offset).unwrap();
        device.file().sync_all().unwrap();
        let found = signature::find(device.file(), size).unwrap();
        assert_eq!(found, Some(Signature { name, offset }));
        assert_eq!(reset(&device), Means::SignaturesOnly);
        assert_all_zero(&device);
    }
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
fn zeroing_leaves_no_byte_on_a_device_that_can_punch() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    for size in SIZES {
        let device = LoopDevice::new(sandbox.path(), size).unwrap();
        assert_zeroes(&device, size, Means::Punched);
    }
}

#[test]
fn zeroing_leaves_no_byte_on_a_device_that_cannot() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    for size in SIZES {
        let device = without_offload(&sandbox, size);
        assert_zeroes(&device, size, Means::Written);
    }
}

#[test]
fn each_pass_of_zeros_counts() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let size = 8 << 20;
    for device in [
        LoopDevice::new(sandbox.path(), size).unwrap(),
        without_offload(&sandbox, size),
    ] {
        write_secrets(&device, size);
        let (file, progress) = (open(&device), Progress::default());
        let before = device.written().unwrap();
        zero_times(&file, size, 3, &progress).unwrap();
        let markers = (device.written().unwrap() - before) - 3 * size;
        assert!(markers < 1 << 20, "{markers} bytes more");
        let expected = (3 * size, 3 * size);
        assert_eq!((progress.bytes_done(), progress.bytes_total()), expected);
        assert_all_zero(&device);
    }
}

fn assert_zeroes(device: &LoopDevice, size: u64, means: Means) {
    assert_eq!(size_of(device), size);
    write_secrets(device, size);
    let (file, progress) = (open(device), Progress::default());
    let error = check_zeroed(&file, size, &Progress::default()).unwrap_err();
    assert!(
        matches!(error, DeviceError::NotZero { offset: 0 }),
        "{error}"
    );
    assert_eq!(zero(&file, size, &progress).unwrap().means, means);
    check_zeroed(&file, size, &Progress::default()).unwrap();
    assert_eq!(
        (progress.bytes_done(), progress.bytes_total()),
        (size, size)
    );
    assert_direct_is_off(&file);
    verify_zeroed(&file, size, &Progress::default()).unwrap();
    assert_direct_is_off(&file);
    assert_all_zero(device);
}

/// The descriptor is the caller's again, as it was.
pub fn assert_direct_is_off(file: &File) {
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_DIRECT));
}

#[test]
fn a_byte_that_is_left_at_either_end_is_found() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let size = (64 << 20) + 7 * 512;
    let device = LoopDevice::new(sandbox.path(), size).unwrap();
    let file = open(&device);
    for at in [4097, size - 1, 32 << 20] {
        file.write_all_at(b"x", at).unwrap();
        // Written to the disk, else a look past the cache cannot see it.
        file.sync_all().unwrap();
        match check_zeroed(&file, size, &Progress::default()).unwrap_err() {
            DeviceError::NotZero { offset } => assert_eq!(offset, at),
            other => panic!("{other}"),
        }
        file.write_all_at(b"\0", at).unwrap();
        file.sync_all().unwrap();
        check_zeroed(&file, size, &Progress::default()).unwrap();
    }
}

#[test]
fn sectors_of_4_kib() {
    large_sectors(4096);
}

#[test]
fn sectors_of_64_kib() {
    large_sectors(64 << 10);
}

fn large_sectors(sector: u64) {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    if !has("losetup") {
        return skip("no losetup on this machine");
    }
    let size = (64 << 20) + sector;
    for (device, means) in [
        (
            LoopDevice::new(sandbox.path(), size).unwrap(),
            Means::Punched,
        ),
        (without_offload(&sandbox, size), Means::Written),
    ] {
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
        discard(&open(&device), size, &Progress::default()).unwrap();
        assert_all_zero(&device);
        device.file().write_all_at(b"EFI PART", 4096).unwrap();
        reset(&device);
        assert_looks_new(&device);
    }
}

/// No step of a wipe is larger.
const STEP: u64 = 64 << 20;

/// Stops a wipe when it has come so far: it does no more than the step that it is at. It has to be one
/// that takes minutes, since this thread may get no time for a while.
pub fn cancel_when<T: Debug>(
    bytes_done: u64,
    progress: &Progress,
    wipe: impl FnOnce() -> Result<T, DeviceError>,
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
    assert!(matches!(error, DeviceError::Cancelled(_)), "{error}");
    let (bytes_then, then) = stopper.join().unwrap();
    assert!(then.elapsed() < Duration::from_secs(10));
    assert!(progress.bytes_done() - bytes_then <= STEP);
}

#[test]
fn a_cancelled_wipe_stops_at_once() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let size = 1 << 30;
    let device = without_offload(&sandbox, size);
    let (file, progress) = (open(&device), Progress::default());
    cancel_when(1, &progress, || zero_times(&file, size, 1000, &progress));
    assert_eq!(
        quick_reset(&file, size, &progress).unwrap_err().reason(),
        "Cancelled"
    );
}

#[test]
fn a_filesystem_in_a_partition_is_reset_with_the_disk() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    if !has("mkfs.ext4") {
        return skip("no mkfs.ext4 on this machine");
    }
    let device = without_offload(&sandbox, 512 << 20);
    let start: u64 = 100 << 20;
    let mut entry = [0; 16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&u32::try_from(start / 512).unwrap().to_le_bytes());
    entry[12..].copy_from_slice(&(600_000_u32).to_le_bytes());
    device.file().write_all_at(&entry, 446).unwrap();
    device.file().write_all_at(b"\x55\xaa", 510).unwrap();
    let path = device.path().to_str().unwrap();
    let offset = format!("offset={start}");
    run("mkfs.ext4", &["-q", "-F", "-E", &offset, path, "300000k"]);
    let magic = || {
        let mut magic = [0; 2];
        let file = File::open(Path::new(path)).unwrap();
        // The first superblock and the copy in group 1.
        [
            start + 0x438,
            start + (8 << 20) + 0x438,
            start + (128 << 20) + 0x38,
        ]
        .map(|offset| {
            file.read_exact_at(&mut magic, offset).unwrap();
            magic == *b"\x53\xef"
        })
    };
    assert!(magic()[0] && magic()[1..].contains(&true), "{:?}", magic());
    reset(&device);
    assert_eq!(magic(), [false; 3]);
}
