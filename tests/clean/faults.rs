//! Devices that fail, shrink or grow, on loop devices whose files do so.

use std::fs::File;
use std::os::unix::fs::FileExt;

use local_volume_provisioner::wipe::device::Disk;
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use nix::fcntl::{FallocateFlags, fallocate};
use support::{LoopDevice, Sandbox, sandbox};

use crate::device::{assert_all_zero, assert_direct_is_off, open, without_offload};
use crate::volume::run;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const SIZE: u64 = 8 * MIB;

type Wipe = fn(&File, u64, &Progress) -> Result<(), WipeError>;

/// Everything that takes a whole device.
const WIPES: [(&str, Wipe); 4] = [
    ("quick reset", |file, size, progress| Disk::new(file, size, progress).quick_reset().map(drop)),
    ("zero", |file, size, progress| Disk::new(file, size, progress).zero(1).map(drop)),
    ("overwrite", |file, size, progress| Disk::new(file, size, progress).overwrite(1).map(drop)),
    ("discard", |file, size, progress| Disk::new(file, size, progress).discard().map(drop)),
];

/// What went wrong, and where.
fn place_of(error: &WipeError) -> (String, u64) {
    let said = error.to_string();
    let request = said.strip_prefix("cannot ").unwrap_or_else(|| panic!("{said}"));
    let (what, place) = request.split_once(" the device at byte ").unwrap();
    let (offset, _) = place.split_once(": ").unwrap();
    (what.to_owned(), offset.parse().unwrap())
}

/// A device of which one page cannot be written: its file has none there, and no room for one.
fn cannot_write(sandbox: &Sandbox, bad: u64) -> LoopDevice {
    let room = format!("size={}", SIZE - PAGE);
    let dir = sandbox.tmpfs(&format!("no-room-{bad}"), &room).unwrap();
    let backing = tempfile::tempfile_in(dir).unwrap();
    backing.set_len(SIZE).unwrap();
    for (start, end) in [(0, bad), (bad + PAGE, SIZE)] {
        let [start, length] = [start, end - start].map(|bytes| i64::try_from(bytes).unwrap());
        if length > 0 {
            fallocate(&backing, FallocateFlags::empty(), start, length).unwrap();
        }
    }
    LoopDevice::over(&backing).unwrap()
}

#[test]
fn what_cannot_be_overwritten_is_an_error_that_names_the_place() {
    let sandbox = sandbox!();
    // Where requests begin: one that could be written in part counts as written for a loop device.
    for bad in [0, MIB, 5 * MIB, 7 * MIB] {
        let device = cannot_write(&sandbox, bad);
        let (file, progress) = (open(&device), Progress::default());
        let error = Disk::new(&file, SIZE, &progress).overwrite(1).unwrap_err();
        assert_eq!(place_of(&error), ("write".into(), bad));
        // The kernel's own.
        let said = error.to_string();
        let reasons = ["Input/output error", "No space left on device"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        assert!(progress.bytes_done() < SIZE);
        assert_direct_is_off(&file);
    }
}

/// The file below has no room for what is written.
#[test]
fn what_cannot_be_reset_is_an_error_that_names_the_place() {
    let sandbox = sandbox!();
    let small = sandbox.tmpfs("small", "size=4m").unwrap();
    let device = LoopDevice::new(&small, 64 * MIB).unwrap();
    let file = open(&device);
    let error = Disk::new(&file, 64 * MIB, &Progress::default()).quick_reset().unwrap_err();
    let (what, offset) = place_of(&error);
    assert_eq!(what, "write");
    assert!((3 * MIB..=6 * MIB).contains(&offset), "{offset}");
}

/// A device whose file ends too soon cannot be read from there on.
#[test]
fn what_cannot_be_read_is_an_error_that_names_the_place() {
    let sandbox = sandbox!();
    for bad in [0, MIB - PAGE, 5 * MIB, 5 * MIB + 3 * 512, SIZE - 512] {
        let backing = tempfile::tempfile_in(sandbox.path()).unwrap();
        backing.set_len(SIZE).unwrap();
        let device = LoopDevice::over(&backing).unwrap();
        let file = open(&device);
        backing.set_len(bad).unwrap();
        // They look at some places only, and name the start of what they could not read.
        let progress = Progress::default();
        for check in [Disk::check_zeroed, Disk::check_reset] {
            let error = check(Disk::new(&file, SIZE, &progress)).unwrap_err();
            let (what, offset) = place_of(&error);
            assert!(what == "read" && offset + MIB > bad, "{what} {offset}");
            assert_direct_is_off(&file);
        }
    }
}

#[test]
fn a_device_that_shrinks_or_grows_is_never_a_success() {
    let sandbox = sandbox!("losetup");
    for now in [0, SIZE - 512, 2 * MIB, SIZE + 512, 2 * SIZE] {
        for (name, wipe) in WIPES {
            let backing = tempfile::tempfile_in(sandbox.path()).unwrap();
            backing.set_len(SIZE).unwrap();
            let device = LoopDevice::over(&backing).unwrap();
            let file = open(&device);
            backing.set_len(now).unwrap();
            let path = device.path().to_str().unwrap();
            run("losetup", &["--set-capacity", path]);
            let error = wipe(&file, SIZE, &Progress::default()).unwrap_err();
            let resized = format!("changed from {SIZE} to {now} bytes");
            // An error names the start of the request, of at most 1 MiB, that failed.
            let is_known = error.to_string().contains(&resized) || place_of(&error).1 + MIB > now;
            assert!(is_known, "{name}, {now}: {error}");
        }
    }
}

#[test]
fn a_device_of_no_or_few_sectors_is_wiped_like_any_other() {
    let sandbox = sandbox!();
    for size in [0, 512, 1024, PAGE - 512, PAGE, PAGE + 512, 3 * PAGE] {
        for device in
            [LoopDevice::new(sandbox.path(), size).unwrap(), without_offload(&sandbox, size)]
        {
            let length = usize::try_from(size).unwrap();
            for (name, wipe) in WIPES {
                device.file().write_all_at(&vec![b'x'; length], 0).unwrap();
                device.file().sync_all().unwrap();
                let (file, progress) = (open(&device), Progress::default());
                wipe(&file, size, &progress).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(progress.bytes_done(), progress.bytes_total(), "{name}");
                Disk::new(&file, size, &Progress::default()).check_zeroed().unwrap();
                Disk::new(&file, size, &Progress::default()).check_reset().unwrap();
                assert_all_zero(&device);
            }
        }
    }
}
