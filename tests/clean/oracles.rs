//! What the tools of others find on a device, before and after each way to wipe it.
//!
//! Every judge has to find something first: what is there, and what is left of it after the start of
//! the device was overwritten, which is what people do by hand.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};

use local_volume_provisioner::wipe::device::{
    DeviceError, DeviceReport, WipeOutcome, check_reset, discard, overwrite, quick_reset, zero,
};
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::signature;
use support::{LoopDevice, Sandbox, sandbox, skip};

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

/// Makes something on a device of a size. Returns the judges that know what it made.
type Make = fn(&LoopDevice, u64) -> Vec<Judge>;
/// Bytes at the start, and the judges that find something when these are overwritten.
type Survivors = (u64, &'static [&'static str]);

/// Something that can be on a device, and the program without which it cannot be made.
struct Kind(&'static str, Option<&'static str>, u64, Maker, Survivors);

enum Maker {
    Tool(Make),
    /// By hand. It is known only to the judges that know everything.
    Header(fn(&LoopDevice, u64)),
}

const fn tool(
    name: &'static str,
    program: &'static str,
    mib: u64,
    make: Make,
    left: Survivors,
) -> Kind {
    Kind(name, Some(program), mib * MIB, Maker::Tool(make), left)
}

const fn header(name: &'static str, write: fn(&LoopDevice, u64), left: Survivors) -> Kind {
    Kind(name, None, 64 * MIB, Maker::Header(write), left)
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

/// What people overwrite by hand, in the belief that it is enough.
const NAIVE: u64 = 10 * MIB;
const NONE: Survivors = (0, &[]);
const BOTH: Survivors = (NAIVE, &["wipefs", "blkid"]);

/// ext4 has copies at 128 and 384 MiB, btrfs one at 64 MiB.
const KINDS: [Kind; 13] = [
    tool(
        "ext4",
        "mkfs.ext4",
        520,
        usual_ext4,
        (NAIVE, &["dumpe2fs", "e2fsck"]),
    ),
    tool(
        "xfs",
        "mkfs.xfs",
        320,
        |device, _| xfs(device, ""),
        (NAIVE, &["xfs_repair"]),
    ),
    tool("btrfs", "mkfs.btrfs", 128, btrfs, (NAIVE, &["btrfs"])),
    tool(
        "LUKS2",
        "cryptsetup",
        64,
        luks2,
        (4096, &["cryptsetup", "wipefs"]),
    ),
    tool("GPT", "sfdisk", 64, gpt, (NAIVE, &["wipefs"])),
    tool("swap", "mkswap", 64, swap, NONE),
    header("md 0.90", headers::md_0_90, BOTH),
    header(
        "md 1.0",
        |device, size| headers::md_1(device, (size - 8192) / 4096 * 4096),
        BOTH,
    ),
    header("md 1.1", |device, _| headers::md_1(device, 0), NONE),
    header("md 1.2", |device, _| headers::md_1(device, 4096), NONE),
    header("LVM", headers::lvm, NONE),
    header("ZFS", headers::zfs, BOTH),
    header("bcache", headers::bcache, NONE),
];

type Wipe = fn(&File, u64, &Progress) -> Result<DeviceReport, DeviceError>;

/// All that does not need the device's help.
const WIPES: [(Wipe, WipeOutcome); 4] = [
    (quick_reset, WipeOutcome::SignaturesOnly),
    (zero, WipeOutcome::Written),
    (
        |device, size, progress| overwrite(device, size, 1, progress),
        WipeOutcome::Overwritten,
    ),
    (discard, WipeOutcome::Written),
];

fn wipe(by: (Wipe, WipeOutcome), device: &LoopDevice, size: u64) {
    let (wipe, means) = by;
    let file = open(device);
    let report = wipe(&file, size, &Progress::default()).unwrap();
    assert_eq!(report.outcome, means);
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
    let found = signature::find(device.file(), size).unwrap().unwrap();
    if ["ext4", "xfs", "btrfs", "swap"].contains(name) {
        assert_eq!(found.name, *name);
    }

    let (expendable, survivors) = survives;
    overwrite_the_start(&device, *expendable);
    judges.retain(|judge| survivors.contains(&judge.program));
    assert!(judges.len() >= survivors.len());
    assert_all_find(&judges, &device);
    if *name == "ext4" {
        let error = check_reset(device.file(), size, &Progress::default()).unwrap_err();
        assert_eq!(error.reason(), "SignatureLeft");
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
    let sandbox = sandbox!("mkfs.ext4", "mkfs.btrfs");
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
            ext4(device, "-O sparse_super2,^resize_inode", "40g")
        }),
        ("small groups", |device, _| ext4(device, "-g 8192", "40g")),
        ("groups of clusters", |device, _| {
            ext4(device, "-O bigalloc -C 65536", "40g")
        }),
        ("one group for descriptors", |device, _| {
            ext4(device, "-O meta_bg,^resize_inode", "40g")
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
        wipe((quick_reset, WipeOutcome::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}

/// The same for an XFS, whose tool looks for copies everywhere.
#[test]
fn no_copy_of_an_xfs_is_left_by_a_quick_reset() {
    let sandbox = sandbox!("mkfs.xfs");
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
        wipe((quick_reset, WipeOutcome::SignaturesOnly), &device, size);
        assert_none_finds(&judges, &device);
    }
}
