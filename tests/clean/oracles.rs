//! What the tools of others find on a device, before and after each way to wipe it.
//!
//! Every judge has to find something first: what is there, and what is left of it after the start of
//! the device was overwritten, which is what people do by hand.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};

use local_volume_provisioner::clean::device::{
    DeviceError, DeviceReport, Means, check_reset, discard, overwrite, quick_reset, zero,
};
use local_volume_provisioner::clean::progress::Progress;
use local_volume_provisioner::clean::signature;
use support::{LoopDevice, Sandbox, skip};

use crate::device::{open, without_offload};
use crate::headers;
use crate::volume::{has, run};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Somebody who may still make something of a device.
struct Judge {
    program: &'static str,
    arguments: Vec<String>,
    finds: fn(&Output) -> bool,
}

impl Judge {
    fn new(program: &'static str, arguments: &str, finds: fn(&Output) -> bool) -> Self {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Self {
            program,
            arguments,
            finds,
        }
    }

    /// Whether it finds something, and what it says.
    fn look(&self, device: &LoopDevice) -> (bool, String) {
        let output = Command::new(self.program)
            .args(&self.arguments)
            .arg(device.path())
            .output()
            .unwrap();
        let words = [self.program].into_iter();
        let words = words.chain(self.arguments.iter().map(String::as_str));
        let line = words.collect::<Vec<_>>().join(" ");
        ((self.finds)(&output), format!("{line}: {}", said(&output)))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn succeeds(output: &Output) -> bool {
    output.status.success()
}

/// Those who know every kind of thing.
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

/// Makes something on a device of a size; who knows what it made.
type Make = fn(&LoopDevice, u64) -> Vec<Judge>;

/// Something that can be on a device.
struct Kind {
    name: &'static str,
    /// The program without which it cannot be made.
    needs: Option<&'static str>,
    size: u64,
    make: Make,
    /// Who still finds it after so many bytes at the start were overwritten.
    survives: (u64, &'static [&'static str]),
}

impl Kind {
    /// One that is written by hand.
    const fn header(
        name: &'static str,
        make: Make,
        survives: (u64, &'static [&'static str]),
    ) -> Self {
        Self {
            name,
            needs: None,
            size: 64 * MIB,
            make,
            survives,
        }
    }
}

/// Runs a program that makes something on a device, with options before and after its path; what it
/// says.
fn make_by(program: &str, options: &str, device: &LoopDevice, after: &str) -> String {
    let path = device.path().to_str().unwrap();
    let words = options.split_whitespace().chain([path]);
    let words: Vec<&str> = words.chain(after.split_whitespace()).collect();
    run(program, &words)
}

/// One copy of its superblock is enough to bring an ext4 back. Where they are `mkfs` tells.
fn ext4(device: &LoopDevice, options: &str, size: &str) -> Vec<Judge> {
    let quickly = "-F -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 -J size=4";
    let options = format!("{quickly} {options}");
    let told = make_by("mkfs.ext4", &options, device, size);
    let backups = told.split_once("stored on blocks:").unwrap().1;
    let backups = backups.split_once("\n\n").unwrap().0;
    let block = told.split_once("k blocks").unwrap().0;
    let block: u32 = block.rsplit(' ').next().unwrap().parse().unwrap();
    let numbers = backups.split([',', '\n']).map(str::trim);
    let judges: Vec<_> = numbers
        .filter(|number| !number.is_empty())
        .map(|number| {
            let place = format!("-h -o superblock={number} -o blocksize={}", block << 10);
            Judge::new("dumpe2fs", &place, |output| {
                // What is below it may be gone.
                said(output).contains("Filesystem UUID")
            })
        })
        .collect();
    assert!(!judges.is_empty(), "{told}");
    judges
}

fn usual_ext4(device: &LoopDevice, _size: u64) -> Vec<Judge> {
    let mut judges = ext4(device, "", "");
    let starts = |output: &Output| !said(output).contains("Bad magic number");
    for block in ["32768", "98304"] {
        let place = format!("-n -b {block} -B 4096");
        judges.push(Judge::new("e2fsck", &place, starts));
    }
    judges
}

fn xfs(device: &LoopDevice, options: &str) -> Vec<Judge> {
    make_by("mkfs.xfs", &format!("-q -f -K {options}"), device, "");
    vec![Judge::new("xfs_repair", "-n", |output| {
        !said(output).contains("could not find valid secondary superblock")
    })]
}

fn btrfs(device: &LoopDevice, _size: u64) -> Vec<Judge> {
    make_by("mkfs.btrfs", "-q -f -K", device, "");
    vec![
        Judge::new("btrfs", "inspect-internal dump-super -s 1", |output| {
            !said(output).contains("bad magic")
        }),
        // It repairs at once what it can.
        Judge::new("btrfs", "rescue super-recover -y", |output| {
            !said(output).contains("No valid Btrfs found")
        }),
    ]
}

fn swap(device: &LoopDevice, _size: u64) -> Vec<Judge> {
    make_by("mkswap", "", device, "");
    vec![Judge::new("swaplabel", "", succeeds)]
}

fn luks2(device: &LoopDevice, _size: u64) -> Vec<Judge> {
    // Any file will do as the key.
    let quickly = "luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
                   --batch-mode --key-file /etc/passwd";
    make_by("cryptsetup", quickly, device, "");
    // It brings the first header back from the second.
    vec![Judge::new("cryptsetup", "isLuks", succeeds)]
}

fn gpt(device: &LoopDevice, _size: u64) -> Vec<Judge> {
    let mut sfdisk = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(device.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let table = b"label: gpt\n,8M\n,\n";
    sfdisk.stdin.take().unwrap().write_all(table).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    vec![Judge::new("sfdisk", "--dump", succeeds)]
}

/// Nobody knows it but those who know everything.
fn known_to_all(write: impl Fn(&LoopDevice, u64), device: &LoopDevice, size: u64) -> Vec<Judge> {
    write(device, size);
    Vec::new()
}

/// What people overwrite by hand, in the belief that it is enough.
const NAIVE: u64 = 10 * MIB;

const KINDS: &[Kind] = &[
    Kind {
        name: "ext4",
        needs: Some("mkfs.ext4"),
        size: 640 * MIB,
        make: usual_ext4,
        survives: (NAIVE, &["dumpe2fs", "e2fsck"]),
    },
    Kind {
        name: "xfs",
        needs: Some("mkfs.xfs"),
        size: 320 * MIB,
        make: |device, _| xfs(device, ""),
        survives: (NAIVE, &["xfs_repair"]),
    },
    Kind {
        name: "btrfs",
        needs: Some("mkfs.btrfs"),
        size: 160 * MIB,
        make: btrfs,
        survives: (NAIVE, &["btrfs"]),
    },
    Kind {
        name: "LUKS2",
        needs: Some("cryptsetup"),
        size: 64 * MIB,
        make: luks2,
        survives: (4096, &["cryptsetup", "wipefs"]),
    },
    Kind {
        name: "GPT",
        needs: Some("sfdisk"),
        size: 64 * MIB,
        make: gpt,
        survives: (NAIVE, &["wipefs"]),
    },
    Kind {
        name: "swap",
        needs: Some("mkswap"),
        size: 64 * MIB,
        make: swap,
        survives: (0, &[]),
    },
    Kind::header(
        "md 0.90",
        |device, size| known_to_all(headers::md_0_90, device, size),
        (NAIVE, &["wipefs", "blkid"]),
    ),
    Kind::header(
        "md 1.0",
        |device, size| known_to_all(headers::md_1_0, device, size),
        (NAIVE, &["wipefs", "blkid"]),
    ),
    Kind::header(
        "md 1.1",
        |device, size| known_to_all(headers::md_1_1, device, size),
        (0, &[]),
    ),
    Kind::header(
        "md 1.2",
        |device, size| known_to_all(headers::md_1_2, device, size),
        (0, &[]),
    ),
    Kind::header(
        "LVM",
        |device, size| known_to_all(headers::lvm, device, size),
        (0, &[]),
    ),
    Kind::header(
        "ZFS",
        |device, size| known_to_all(headers::zfs, device, size),
        (NAIVE, &["wipefs", "blkid"]),
    ),
    Kind::header(
        "bcache",
        |device, size| known_to_all(headers::bcache, device, size),
        (0, &[]),
    ),
];

type Wipe = fn(&File, u64, &Progress) -> Result<DeviceReport, DeviceError>;

/// All that does not need the device's help.
const WIPES: [(Wipe, Means); 4] = [
    (quick_reset, Means::SignaturesOnly),
    (zero, Means::Written),
    (
        |device, size, progress| overwrite(device, size, 1, progress),
        Means::Overwritten,
    ),
    (discard, Means::Written),
];

fn wipe(by: (Wipe, Means), device: &LoopDevice, size: u64) {
    let (wipe, means) = by;
    let file = open(device);
    let report = wipe(&file, size, &Progress::default()).unwrap();
    assert_eq!(report.means, means);
    check_reset(&file, size, &Progress::default()).unwrap();
}

fn assert_all_find(judges: &[Judge], device: &LoopDevice) {
    for judge in judges {
        let (found, said) = judge.look(device);
        assert!(found, "it should find something, and says: {said}");
    }
}

fn assert_none_finds(judges: &[Judge], device: &LoopDevice) {
    for judge in judges {
        let (found, said) = judge.look(device);
        assert!(!found, "it should find nothing, and says: {said}");
    }
}

fn overwrite_the_start(device: &LoopDevice, length: u64) {
    let zeros = vec![0; usize::try_from(length).unwrap()];
    device.file().write_all_at(&zeros, 0).unwrap();
    device.file().sync_all().unwrap();
}

/// One kind, before and after each way to wipe it.
fn judge(sandbox: &Sandbox, kind: &Kind) {
    let size = kind.size;
    let device = without_offload(sandbox, size);
    let make = || {
        let mut judges = (kind.make)(&device, size);
        judges.extend(recognisers());
        judges
    };
    let mut judges = make();
    assert_all_find(&judges, &device);
    let found = signature::find(device.file(), size).unwrap().unwrap();
    if ["ext4", "xfs", "btrfs", "swap"].contains(&kind.name) {
        assert_eq!(found.name, kind.name);
    }

    let (expendable, survivors) = kind.survives;
    overwrite_the_start(&device, expendable);
    judges.retain(|judge| survivors.contains(&judge.program));
    assert!(judges.len() >= survivors.len());
    assert_all_find(&judges, &device);

    for by in WIPES {
        let judges = make();
        wipe(by, &device, size);
        assert_none_finds(&judges, &device);
    }
}

#[test]
fn no_tool_finds_or_repairs_anything_after_any_wipe() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    for kind in KINDS {
        eprintln!("{}:", kind.name);
        match kind.needs {
            Some(program) if !has(program) => {
                skip(&format!(
                    "no {program} on this machine; the others are tested"
                ));
            }
            _ => judge(&sandbox, kind),
        }
    }
}

/// Only a quick reset has to know where the copies are: here on a device that is larger than the last
/// place where a btrfs has one, and in filesystems that are not made as usual.
#[test]
fn no_copy_is_left_on_a_large_device_by_a_quick_reset() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    if !has("mkfs.ext4") || !has("mkfs.btrfs") {
        return skip("it takes mkfs.ext4 and mkfs.btrfs");
    }
    // Nearly all of it is a hole.
    let size = 300 * GIB + 512 * 7;
    let made: [(&str, Make); 8] = [
        ("ext4", |device, _| ext4(device, "", "")),
        ("small blocks", |device, _| {
            ext4(device, "-b 1024 -O ^resize_inode", "9g")
        }),
        ("copies in all groups", |device, _| {
            ext4(device, "-O ^sparse_super,^resize_inode", "40g")
        }),
        ("two copies", |device, _| {
            ext4(device, "-O sparse_super2,^resize_inode", "")
        }),
        ("small groups", |device, _| ext4(device, "-g 8192", "40g")),
        ("groups of clusters", |device, _| {
            ext4(device, "-O bigalloc -C 65536", "")
        }),
        ("one group for descriptors", |device, _| {
            ext4(device, "-O meta_bg,^resize_inode", "")
        }),
        ("btrfs", |device, size| {
            let mut judges = btrfs(device, size);
            let last = "inspect-internal dump-super -s 2";
            judges.push(Judge::new("btrfs", last, |output| {
                !said(output).contains("bad magic")
            }));
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
        wipe((quick_reset, Means::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}

/// The same for an XFS, whose tool looks for copies everywhere.
#[test]
fn no_copy_of_an_xfs_is_left_by_a_quick_reset() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    if !has("mkfs.xfs") {
        return skip("no mkfs.xfs on this machine");
    }
    let size = GIB;
    for options in [
        "",
        "-d agcount=12",
        "-d agsize=67m",
        "-b size=1024",
        "-s size=4096",
    ] {
        eprintln!("{options}:");
        let device = without_offload(&sandbox, size);
        let judges = xfs(&device, options);
        overwrite_the_start(&device, NAIVE);
        assert_all_find(&judges, &device);
        xfs(&device, options);
        wipe((quick_reset, Means::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}
