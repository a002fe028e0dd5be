//! Deleting what is in a filesystem.

use std::fmt;
use std::fs::{self, File};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use local_volume_provisioner::wipe::tree;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::syncfs;
use support::LoopDevice;

use super::case::{Case, Subject};
use super::method::{Leaves, Method};
use super::verdict::Verdict;
use super::{Bench, GIB};

/// Files in each directory of a wide tree.
const PER_DIRECTORY: usize = 100;
/// Directories below each other in a deep one.
const LEVELS: usize = 2000;
/// The length of their names, in bytes.
const LONG_NAME: usize = 200;
/// What is in a file.
const CONTENTS: [u8; 1024] = [0xA5; 1024];
/// Sparse: a tree needs a good part of it, and mkfs chooses what it chooses for a disk.
const SIZE: u64 = 8 * GIB;

/// A filesystem, and how it is made: nothing is left to be done in the background.
struct Filesystem {
    name: &'static str,
    mkfs: &'static [&'static str],
    in_memory: bool,
}

const FILESYSTEMS: [Filesystem; 3] = [
    Filesystem {
        name: "ext4",
        mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "{}"],
        in_memory: false,
    },
    Filesystem { name: "xfs", mkfs: &["mkfs.xfs", "-q", "-f", "{}"], in_memory: false },
    Filesystem { name: "btrfs", mkfs: &["mkfs.btrfs", "-q", "-f", "{}"], in_memory: true },
];

/// What a tree looks like.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// So many files in one directory.
    Flat(usize),
    /// As many, in directories of [`PER_DIRECTORY`].
    Wide(usize),
    /// A number of directories below each other, each with a name of [`LONG_NAME`] bytes, and nothing else.
    Deep(usize),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(files) => write!(f, "{files} files"),
            Self::Wide(files) => write!(f, "{} x {PER_DIRECTORY} files", files / PER_DIRECTORY),
            Self::Deep(levels) => write!(f, "{levels} levels"),
        }
    }
}

impl Shape {
    /// Makes such a tree in an empty directory.
    fn make(self, dir: &Path) -> Result<()> {
        match self {
            Self::Flat(files) => make_files(dir, files),
            Self::Wide(files) => (0..files / PER_DIRECTORY).try_for_each(|number| {
                let dir = dir.join(format!("directory-{number}"));
                fs::create_dir(&dir)?;
                make_files(&dir, PER_DIRECTORY)
            }),
            Self::Deep(levels) => make_levels(dir, levels),
        }
    }

    /// Makes such a tree below the root of a filesystem, on its disk.
    pub fn fill(self, root: &Path) -> Result<()> {
        let tree = root.join("tree");
        fs::create_dir(&tree)?;
        self.make(&tree)?;
        Ok(syncfs(File::open(root)?)?)
    }

    /// What ours may take beside `rm`, which has one worker where ours may have two.
    fn target(self, filesystem: &str) -> Option<(u8, f64)> {
        let alone = thread::available_parallelism().map_or(1, NonZero::get) < 2;
        match (filesystem, self) {
            ("ext4", Self::Flat(_)) if alone => Some((1, 1.0)),
            ("ext4", Self::Flat(_)) => Some((2, 0.7)),
            ("ext4", Self::Wide(_)) => Some((3, if alone { 0.97 } else { 0.55 })),
            ("ext4", Self::Deep(_)) => Some((7, 1.0)),
            ("xfs", _) => Some((4, 1.03)),
            ("btrfs", Self::Flat(_) | Self::Wide(_)) => Some((5, 0.85)),
            _ => None,
        }
    }
}

fn make_files(dir: &Path, files: usize) -> Result<()> {
    for number in 0..files {
        fs::write(dir.join(format!("file-{number}")), CONTENTS)?;
    }
    Ok(())
}

/// Descriptor by descriptor: the path is longer than any that the kernel takes.
fn make_levels(dir: &Path, levels: usize) -> Result<()> {
    let name = "d".repeat(LONG_NAME);
    let mut dir = open(dir, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    for _ in 0..levels {
        mkdirat(&dir, name.as_str(), Mode::S_IRWXU)?;
        dir = openat(&dir, name.as_str(), OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    }
    Ok(())
}

/// A mounted filesystem with a tree in it.
struct Volume {
    root: PathBuf,
    shape: Shape,
}

impl Subject for Volume {
    fn fill(&mut self) -> Result<PathBuf> {
        self.shape.fill(&self.root)?;
        Ok(self.root.clone())
    }

    /// None of the tools waits for the disk, and what the kernel defers it does for all of them.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self, method: &Method) -> Result<()> {
        let root = File::open(&self.root)?;
        tree::check_empty(root.as_fd()).with_context(|| format!("after {}", method.name))?;
        // What was deferred is not to meet the next method.
        Ok(syncfs(root)?)
    }
}

/// Every shape on every filesystem, and what the targets say.
pub fn measure(bench: &Bench) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for filesystem in &FILESYSTEMS {
        verdicts.extend(measure_on(bench, filesystem)?);
    }
    Ok(verdicts)
}

fn measure_on(bench: &Bench, filesystem: &Filesystem) -> Result<Vec<Verdict>> {
    let name = filesystem.name;
    let shapes = [Shape::Flat(bench.files()), Shape::Wide(bench.files()), Shape::Deep(LEVELS)];
    let (backing, place) = if filesystem.in_memory {
        (bench.memory.as_path(), "in memory")
    } else {
        (Path::new(Bench::DISK), "on disk")
    };
    let title = |shape: &Shape| format!("{name} {place}, {shape}");
    let wanted = |shape: &Shape| bench.wants(&title(shape));
    if !shapes.iter().any(wanted) {
        return Ok(Vec::new());
    }
    let device = LoopDevice::new(backing, SIZE)?;
    let mkfs = Method::tool(filesystem.mkfs[0], filesystem.mkfs, Leaves::Anything);
    if !mkfs.is_there() {
        return Ok(Vec::new());
    }
    mkfs.run(device.path())?;
    let root = bench.sandbox.mount(device.path(), name, "volume")?;
    let mut verdicts = Vec::new();
    for shape in shapes.into_iter().filter(wanted) {
        let methods = vec![
            Method::tool("rm -rf", &["rm", "-rf", "{}/tree"], Leaves::Nothing),
            Method::tool("find -delete", &["find", "{}/tree", "-delete"], Leaves::Nothing),
            Method::ours("ours", &["empty", "{}"], Leaves::Nothing),
        ];
        let volume = Volume { root: root.clone(), shape };
        let case = Case::measure(title(&shape), Bench::ROUNDS, volume, methods)?;
        if let Some((number, limit)) = shape.target(name) {
            verdicts.extend(Verdict::times(number, &case, "ours", "rm -rf", limit));
        }
        verdicts.extend(Verdict::memory(8, &case, "ours", 16.0));
    }
    bench.sandbox.umount(&root)?;
    Ok(verdicts)
}
