//! What can be on a device, and the tools that recognise or repair it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use support::LoopDevice;

use crate::headers;
use crate::volume::run;

pub const MIB: u64 = 1 << 20;

/// A tool that may still recognise or repair what was on a device.
pub struct Judge {
    pub program: &'static str,
    arguments: Vec<String>,
    finds: fn(&Output) -> bool,
}

impl Judge {
    pub fn new(program: &'static str, arguments: &str, finds: fn(&Output) -> bool) -> Self {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Self { program, arguments, finds }
    }

    /// Whether it finds something, and its output.
    pub fn look(&self, device: &LoopDevice) -> (bool, String) {
        let output =
            Command::new(self.program).args(&self.arguments).arg(device.path()).output().unwrap();
        let words = [self.program].into_iter();
        let words = words.chain(self.arguments.iter().map(String::as_str));
        let line = words.collect::<Vec<_>>().join(" ");
        ((self.finds)(&output), format!("{line}: {}", said(&output)))
    }
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn succeeds(output: &Output) -> bool {
    output.status.success()
}

/// Makes something on a device of a size. Returns the judges that know what it made.
pub type Make = fn(&LoopDevice, u64) -> Vec<Judge>;
/// Bytes at the start, and the judges that find something when these are overwritten.
pub type Survivors = (u64, &'static [&'static str]);

/// Something that can be on a device, and the program without which it cannot be made.
pub struct Kind(pub &'static str, pub Option<&'static str>, pub u64, pub Maker, pub Survivors);

pub enum Maker {
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

/// One copy of its superblock is enough to restore an ext4. `mkfs` prints where they are.
pub fn ext4(device: &LoopDevice, options: &str, size: &str) -> Vec<Judge> {
    let quickly = "-F -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 -J size=4";
    let options = format!("{quickly} {options}");
    let printed = make_by("mkfs.ext4", &options, device, size);
    let backups = printed.split_once("stored on blocks:").unwrap().1;
    let backups = backups.split_once("\n\n").unwrap().0;
    let block = printed.split_once("k blocks").unwrap().0;
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
    assert!(!judges.is_empty(), "{printed}");
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

pub fn xfs(device: &LoopDevice, options: &str) -> Vec<Judge> {
    make_by("mkfs.xfs", &format!("-q -f -K {options}"), device, "");
    vec![Judge::new("xfs_repair", "-n", |output| {
        !said(output).contains("could not find valid secondary superblock")
    })]
}

pub fn btrfs(device: &LoopDevice, _size: u64) -> Vec<Judge> {
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

/// What is often overwritten by hand, as if it were enough.
pub const NAIVE: u64 = 10 * MIB;
const NONE: Survivors = (0, &[]);
const BOTH: Survivors = (NAIVE, &["wipefs", "blkid"]);

/// ext4 has copies at 128 and 384 MiB, btrfs one at 64 MiB.
pub const KINDS: [Kind; 13] = [
    tool("ext4", "mkfs.ext4", 520, usual_ext4, (NAIVE, &["dumpe2fs", "e2fsck"])),
    tool("xfs", "mkfs.xfs", 320, |device, _| xfs(device, ""), (NAIVE, &["xfs_repair"])),
    tool("btrfs", "mkfs.btrfs", 128, btrfs, (NAIVE, &["btrfs"])),
    tool("LUKS2", "cryptsetup", 64, luks2, (4096, &["cryptsetup", "wipefs"])),
    tool("GPT", "sfdisk", 64, gpt, (NAIVE, &["wipefs"])),
    tool("swap", "mkswap", 64, swap, NONE),
    header("md 0.90", headers::md_0_90, BOTH),
    header("md 1.0", |device, size| headers::md_1(device, (size - 8192) / 4096 * 4096), BOTH),
    header("md 1.1", |device, _| headers::md_1(device, 0), NONE),
    header("md 1.2", |device, _| headers::md_1(device, 4096), NONE),
    header("LVM", headers::lvm, NONE),
    header("ZFS", headers::zfs, BOTH),
    header("bcache", headers::bcache, NONE),
];
