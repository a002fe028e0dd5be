//! What common tools find on a device, before and after each way to wipe it.
//!
//! Every judge has to find something first: what is there, and what is left of it after the start of
//! the device was overwritten, as is often done by hand.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Output;

use local_volume_provisioner::wipe::device::{Disk, WipeOutcome};
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::signature;
use support::{LoopDevice, Sandbox, sandbox, skip};

use crate::device::{open, without_offload};
use crate::kinds::{Judge, KINDS, Kind, MIB, Make, Maker, NAIVE, btrfs, ext4, said, xfs};
use crate::volume::has;

const GIB: u64 = 1 << 30;

/// The tools that know all signatures.
fn recognisers() -> Vec<Judge> {
    let says_anything = |output: &Output| !output.stdout.is_empty();
    vec![
        Judge::new("wipefs", "--no-act", says_anything),
        // 2 is "nothing at all", and not "several things".
        Judge::new("blkid", "--probe", |output| {
            output.status.code() != Some(2) || !output.stdout.is_empty()
        }),
    ]
}

type Wipe = fn(&File, u64, &Progress) -> Result<WipeOutcome, WipeError>;

const QUICK_RESET: Wipe = |device, size, progress| Disk::new(device, size, progress).quick_reset();

/// All that does not need the device's help.
const WIPES: [(Wipe, WipeOutcome); 4] = [
    (QUICK_RESET, WipeOutcome::SignaturesOnly),
    (|device, size, progress| Disk::new(device, size, progress).zero(1), WipeOutcome::Written),
    (
        |device, size, progress| Disk::new(device, size, progress).overwrite(1),
        WipeOutcome::Overwritten,
    ),
    (|device, size, progress| Disk::new(device, size, progress).discard(), WipeOutcome::Written),
];

fn wipe(by: (Wipe, WipeOutcome), device: &LoopDevice, size: u64) {
    let (wipe, means) = by;
    let file = open(device);
    let outcome = wipe(&file, size, &Progress::default()).unwrap();
    assert_eq!(outcome, means);
    Disk::new(&file, size, &Progress::default()).check_reset().unwrap();
}

fn assert_all_find(judges: &[Judge], device: &LoopDevice) {
    for judge in judges {
        let (found, said) = judge.look(device);
        assert!(found, "it finds nothing: {said}");
    }
}

fn assert_none_finds(judges: &[Judge], device: &LoopDevice) {
    for judge in judges {
        let (found, said) = judge.look(device);
        assert!(!found, "it finds something: {said}");
    }
}

fn overwrite_the_start(device: &LoopDevice, length: u64) {
    let zeros = vec![0; usize::try_from(length).unwrap()];
    device.file().write_all_at(&zeros, 0).unwrap();
    device.file().sync_all().unwrap();
}

/// One kind, before and after each way to wipe it.
fn judge(sandbox: &Sandbox, kind: &Kind) {
    let Kind(name, _, size, maker, survives) = kind;
    let (size, device) = (*size, without_offload(sandbox, *size));
    let make = || {
        let mut judges = match maker {
            Maker::Tool(make) => make(&device, size),
            Maker::Header(write) => {
                write(&device, size);
                Vec::new()
            }
        };
        judges.extend(recognisers());
        judges
    };
    let mut judges = make();
    assert_all_find(&judges, &device);
    let found =
        signature::find(Disk::new(device.file(), size, &Progress::default())).unwrap().unwrap();
    if ["ext4", "xfs", "btrfs", "swap"].contains(name) {
        assert!(found.starts_with(name), "{found}");
    }

    let (expendable, survivors) = survives;
    overwrite_the_start(&device, *expendable);
    judges.retain(|judge| survivors.contains(&judge.program));
    assert!(judges.len() >= survivors.len());
    assert_all_find(&judges, &device);
    if *name == "ext4" {
        let error = Disk::new(device.file(), size, &Progress::default()).check_reset().unwrap_err();
        assert!(error.to_string().contains("shows a signature"), "{error}");
    }

    // Zeros are the same whatever was there: `device::zeroing_leaves_no_byte_on_a_device_whether_it_can_punch_or_not`.
    let wipes = if size > 128 * MIB { 1 } else { 4 };
    for by in WIPES.into_iter().take(wipes) {
        let judges = make();
        wipe(by, &device, size);
        assert_none_finds(&judges, &device);
    }
}

#[test]
fn no_tool_finds_or_repairs_anything_after_any_wipe() {
    let sandbox = sandbox!();
    for kind in &KINDS {
        let Kind(name, program, ..) = kind;
        eprintln!("{name}:");
        match program {
            Some(program) if !has(program) => {
                skip(&format!("no {program} on this machine; the others are tested"));
            }
            _ => judge(&sandbox, kind),
        }
    }
}

/// Only a quick reset has to know where the copies are: here on a device that is larger than the last
/// place where a btrfs has one, and in filesystems that are not made as usual.
#[test]
fn no_copy_is_left_on_a_large_device_by_a_quick_reset() {
    let sandbox = sandbox!("mkfs.ext4", "mkfs.btrfs");
    // Nearly all of it is a hole.
    let size = 300 * GIB + 512 * 7;
    let made: [(&str, Make); 8] = [
        ("ext4", |device, _| ext4(device, "", "")),
        ("small blocks", |device, _| ext4(device, "-b 1024 -O ^resize_inode", "9g")),
        ("copies in all groups", |device, _| ext4(device, "-O ^sparse_super,^resize_inode", "40g")),
        ("two copies", |device, _| ext4(device, "-O sparse_super2,^resize_inode", "40g")),
        ("small groups", |device, _| ext4(device, "-g 8192", "40g")),
        ("groups of clusters", |device, _| ext4(device, "-O bigalloc -C 65536", "40g")),
        ("one group for descriptors", |device, _| ext4(device, "-O meta_bg,^resize_inode", "40g")),
        ("btrfs", |device, size| {
            let mut judges = btrfs(device, size);
            let last = "inspect-internal dump-super -s 2";
            judges.push(Judge::new("btrfs", last, |output| !said(output).contains("bad magic")));
            judges
        }),
    ];
    for (name, make) in made {
        eprintln!("{name}:");
        let device = without_offload(&sandbox, size);
        let judges = make(&device, size);
        overwrite_the_start(&device, 4 * MIB);
        assert_all_find(&judges, &device);
        let judges = make(&device, size);
        wipe((QUICK_RESET, WipeOutcome::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}

/// The same for an XFS, whose tool looks for copies everywhere.
#[test]
fn no_copy_of_an_xfs_is_left_by_a_quick_reset() {
    let sandbox = sandbox!("mkfs.xfs");
    let size = GIB;
    for options in ["", "-d agcount=12", "-d agsize=67m", "-b size=1024", "-s size=4096"] {
        eprintln!("{options}:");
        let device = without_offload(&sandbox, size);
        let judges = xfs(&device, options);
        overwrite_the_start(&device, NAIVE);
        assert_all_find(&judges, &device);
        xfs(&device, options);
        wipe((QUICK_RESET, WipeOutcome::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}
