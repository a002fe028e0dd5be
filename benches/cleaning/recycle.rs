//! Recycling a filesystem that the provisioner has made, whatever a tenant left in it.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use local_volume_provisioner::types::FsType;
use local_volume_provisioner::wipe::tree;
use nix::unistd::syncfs;
use support::LoopDevice;

use super::case::{Case, Subject};
use super::devices::text;
use super::method::{Leaves, Method};
use super::trees::Shape;
use super::verdict::Verdict;
use super::{Bench, GIB, TIB};

/// Of each filesystem that is made: only one of them exists at a time.
const UUID: &str = "5f1c3f6e-6d0b-4c55-8a57-2f6d1e0b9c3a";
/// Sparse, with inodes for a million files on ext4, which has one for each 16 KiB.
const SIZE: u64 = 32 * GIB;
/// The Go program that deletes what the Go provisioner deletes, in the same way.
const GO_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/cleaning/delete_contents.go");

const RM: &str = "rm -rf";
const REFORMAT: &str = "ours: reformat";

/// What a tenant left, and in which size of filesystem.
struct Work {
    shape: Shape,
    size: u64,
    rounds: usize,
}

/// A filesystem that is made again for each method: what the one before changed does not affect the next.
struct Volume<'a> {
    bench: &'a Bench,
    fs_type: FsType,
    shape: Shape,
    size: u64,
    made: Option<Mounted<'a>>,
}

/// A mounted filesystem, which is unmounted when it is dropped.
struct Mounted<'a> {
    bench: &'a Bench,
    root: PathBuf,
    _device: LoopDevice,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A reformat that failed has unmounted it.
        if let Err(error) = self.bench.sandbox.umount(&self.root) {
            eprintln!("{error:#}");
        }
    }
}

impl Volume<'_> {
    fn root(&self) -> Result<&Path> {
        let made = self.made.as_ref().context("it was not filled yet")?;
        Ok(&made.root)
    }
}

impl Subject for Volume<'_> {
    fn fill(&mut self) -> Result<PathBuf> {
        self.made = None;
        let (bench, fs_type) = (self.bench, self.fs_type);
        let device = LoopDevice::new(Path::new(Bench::DISK), self.size)?;
        let words = fs_type.mkfs_words(UUID, device.path());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Method::tool(fs_type.mkfs(), &words, Leaves::Anything).run(device.path())?;
        let root = bench.sandbox.mount(device.path(), fs_type.as_str(), "volume")?;
        self.made = Some(Mounted { bench, root: root.clone(), _device: device });
        self.shape.fill(&root)?;
        Ok(root)
    }

    /// As for trees. A reformat is on the disk when it ends.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self, method: &Method) -> Result<()> {
        let root = File::open(self.root()?)?;
        tree::check_empty(root.as_fd()).with_context(|| format!("after {}", method.name))?;
        Ok(syncfs(root)?)
    }
}

/// Whatever a tenant left, on each filesystem that the provisioner makes, and what the targets say.
pub fn measure(bench: &Bench) -> Result<Vec<Verdict>> {
    let (files, levels, limit) =
        if bench.quick { (50_000, 10_000, 30) } else { (1_000_000, 300_000, 300) };
    // Filling takes most of the time.
    let large = |shape| Work { shape, size: SIZE, rounds: 1 };
    let huge = Work {
        shape: Shape::Flat(100),
        size: TIB,
        rounds: if bench.quick { 1 } else { Bench::ROUNDS },
    };
    let works = [large(Shape::Wide(files)), large(Shape::Deep(levels)), huge];
    let methods = methods(bench, Duration::from_secs(limit))?;
    let mut verdicts = Vec::new();
    for fs_type in [FsType::Ext4, FsType::Xfs] {
        if !Method::tool(REFORMAT, &[fs_type.mkfs()], Leaves::Anything).is_there() {
            continue;
        }
        for Work { shape, size, rounds } in &works {
            let title = format!("{} of {} recycled, {shape}", fs_type.as_str(), text(*size));
            if !bench.wants(&title) {
                continue;
            }
            let volume = Volume { bench, fs_type, shape: *shape, size: *size, made: None };
            let case = Case::measure(title, *rounds, volume, methods.clone())?;
            verdicts.extend(Verdict::seconds(17, &case, REFORMAT, 2.0));
            if matches!(shape, Shape::Wide(_)) {
                verdicts.extend(Verdict::times(18, &case, REFORMAT, RM, 0.2));
            }
        }
    }
    Ok(verdicts)
}

fn methods(bench: &Bench, limit: Duration) -> Result<Vec<Method>> {
    let mut methods = vec![
        Method::tool(RM, &["rm", "-rf", "{}/tree"], Leaves::Nothing),
        Method::ours("ours: delete contents", &["empty", "{}"], Leaves::Nothing),
        Method::ours(REFORMAT, &["reformat", "{}"], Leaves::Nothing),
    ];
    // The Go provisioner's own code, with a compiler of this machine.
    let program = bench.sandbox.path().join("delete-contents");
    let output = program.to_string_lossy();
    let build = ["go", "build", "-o", &output, GO_SOURCE];
    let build = Method::tool("os.RemoveAll (Go)", &build, Leaves::Anything);
    if build.is_there() {
        build.run(&program)?;
        let line = [&*output, "{}"];
        methods.insert(1, Method::tool(build.name, &line, Leaves::Nothing));
    }
    Ok(methods.into_iter().map(|it| it.within(limit)).collect())
}
