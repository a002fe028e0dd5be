//! Wiping devices.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use local_volume_provisioner::wipe::device::Disk;
use local_volume_provisioner::wipe::progress::Progress;
use nix::libc;
use support::LoopDevice;

use super::case::{Case, Subject};
use super::method::{
    Leaves::{Anything, NoSignature, Zeros},
    Method,
};
use super::verdict::Verdict;
use super::{Bench, GIB, MIB, TIB};

const ALIGN: usize = 4096;
const CHUNK: usize = 4 << 20;
/// Of the device for the slowest of all tools.
const SMALL: u64 = 512 * MIB;

const DD_DIRECT: &str = "dd bs=4M direct";

/// A device that is created again for each method. After a request that the file below cannot
/// fulfil, the kernel stops offering it, and the next method would be measured without it.
struct Device<'a> {
    dir: &'a Path,
    size: u64,
    holds: Holds,
    /// Past the page cache also below the device: else a disk's file is in memory, too.
    direct: bool,
    made: Option<LoopDevice>,
}

/// What is on a device.
enum Holds {
    /// Data, from the first to the last byte.
    Data,
    /// A new ext4.
    Filesystem,
}

impl<'a> Device<'a> {
    fn new(dir: &'a Path, size: u64, holds: Holds) -> Self {
        Self { dir, size, holds, direct: false, made: None }
    }

    fn file(&self) -> Result<&File> {
        let made = self.made.as_ref().context("it was not filled yet")?;
        Ok(made.file())
    }
}

impl Subject for Device<'_> {
    fn fill(&mut self) -> Result<PathBuf> {
        self.made = None;
        let device = LoopDevice::new(self.dir, self.size)?;
        if self.direct {
            past_the_cache(&device)?;
        }
        match self.holds {
            Holds::Data => fill_with(0xA5, device.path(), self.size)?,
            Holds::Filesystem => device.format("ext4")?,
        }
        let path = device.path().to_owned();
        self.made = Some(device);
        Ok(path)
    }

    /// Some tools leave everything in the page cache, and none of the data is gone by that.
    fn settle(&self) -> Result<()> {
        Ok(self.file()?.sync_all()?)
    }

    fn check(&self, method: &Method) -> Result<()> {
        let mut device = self.file()?;
        let size = device.seek(SeekFrom::End(0))?;
        match method.leaves {
            Zeros => Disk::new(device, size, &Progress::default()).check_zeroed(),
            NoSignature => Disk::new(device, size, &Progress::default()).check_reset(),
            _ => Ok(()),
        }
        .with_context(|| format!("after {}", method.name))
    }
}

/// Past the page cache: what is in it would spare some methods their reads.
fn fill_with(byte: u8, device: &Path, size: u64) -> Result<()> {
    let device = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(device)?;
    let memory = vec![byte; CHUNK + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    for offset in (0..size).step_by(CHUNK) {
        device.write_all_at(&memory[start..][..CHUNK], offset)?;
    }
    Ok(device.sync_all()?)
}

fn past_the_cache(device: &LoopDevice) -> Result<()> {
    let losetup = ["losetup", "--direct-io=on", "{}"];
    Method::tool("losetup", &losetup, Anything).run(device.path())?;
    Ok(())
}

/// Every method on every kind of device, and what the targets say.
pub fn measure(bench: &Bench) -> Result<Vec<Verdict>> {
    let cases = [written, as_the_go_image, quick_reset, in_memory, on_disk];
    let mut verdicts = Vec::new();
    for case in cases {
        verdicts.extend(case(bench)?);
    }
    Ok(verdicts)
}

/// A device that can only be written to.
fn written(bench: &Bench) -> Result<Vec<Verdict>> {
    let size = bench.device_size();
    let methods = vec![
        dd_direct(size),
        Method::tool("blkdiscard -z", &["blkdiscard", "-f", "-z", "{}"], Zeros),
        Method::ours("ours: zero", &["zero", "{}"], Zeros),
        Method::tool("shred -zn 1", &["shred", "-z", "-n", "1", "{}"], Zeros),
        Method::ours("ours: overwrite 1", &["overwrite", "1", "{}"], Zeros),
        Method::tool("shred -vzf -n 3", &["shred", "-vzf", "-n", "3", "{}"], Zeros),
        Method::ours("ours: overwrite 3", &["overwrite", "3", "{}"], Zeros),
    ];
    let title = format!("device that can only be written, {}", text(size));
    let case = on_ramfs(bench, title, size, Holds::Data, methods)?;
    let gib = f64::from(u32::try_from(size / MIB)?) / 1024.0;
    let zero = Verdict::times(10, &case, "ours: zero", DD_DIRECT, 0.85);
    let verdicts = [
        zero.map(|verdict| verdict.and_worst(1.0)),
        Verdict::busy(12, &case, "ours: zero", gib, 0.2),
        Verdict::times(13, &case, "ours: overwrite 1", "shred -zn 1", 0.25),
        Verdict::times(13, &case, "ours: overwrite 3", "shred -vzf -n 3", 0.25),
        memory(&case),
    ];
    Ok(verdicts.into_iter().flatten().collect())
}

/// The same, zeroed by what the Go provisioner's image runs.
fn as_the_go_image(bench: &Bench) -> Result<Vec<Verdict>> {
    // That script writes until there is no space left, and calls the error a success.
    let methods = vec![
        dd("dd bs=8096", &["bs=8096"], SMALL),
        Method::ours("ours: zero", &["zero", "{}"], Zeros),
    ];
    let title = format!("device that can only be written, {}", text(SMALL));
    let case = on_ramfs(bench, title, SMALL, Holds::Data, methods)?;
    let verdict = Verdict::times(11, &case, "ours: zero", "dd bs=8096", 0.05);
    Ok(verdict.into_iter().collect())
}

/// A huge one, too: it is sparse, and takes no more memory than a filesystem writes at first.
fn quick_reset(bench: &Bench) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    if !Method::tool("quick reset", &["mkfs.ext4"], Anything).is_there() {
        return Ok(verdicts);
    }
    for size in [bench.device_size(), TIB] {
        // What the Go provisioner's image runs. It leaves copies of the superblock.
        let go = ["sh", "-c", "mkfs.ext4 -q -F {} && wipefs -q -a {}"];
        let methods = vec![
            Method::tool("mkfs.ext4, wipefs", &go, Anything),
            Method::ours("ours: quick reset", &["quick-reset", "{}"], NoSignature),
        ];
        let title = format!("ext4 device that can only be written, {}", text(size));
        let case = on_ramfs(bench, title, size, Holds::Filesystem, methods)?;
        verdicts.extend(Verdict::seconds(16, &case, "ours: quick reset", 0.1));
    }
    Ok(verdicts)
}

/// A device that drops what it is told to.
fn in_memory(bench: &Bench) -> Result<Vec<Verdict>> {
    let size = bench.device_size();
    let device = Device::new(&bench.memory, size, Holds::Data);
    with_offload(format!("device in memory, {}", text(size)), device)
}

/// The same, over a file on a disk.
fn on_disk(bench: &Bench) -> Result<Vec<Verdict>> {
    let (dir, size) = (Path::new(Bench::DISK), bench.device_size());
    if let Err(error) = LoopDevice::new(dir, MIB).and_then(|device| past_the_cache(&device)) {
        eprintln!("left out: a device on disk, for want of direct I/O: {error:#}");
        return Ok(Vec::new());
    }
    let device = Device { direct: true, ..Device::new(dir, size, Holds::Data) };
    with_offload(format!("device on disk, {}", text(size)), device)
}

fn with_offload(title: String, device: Device<'_>) -> Result<Vec<Verdict>> {
    let length = device.size.to_string();
    let methods = vec![
        dd_direct(device.size),
        Method::tool("blkdiscard -z", &["blkdiscard", "-f", "-z", "{}"], Zeros),
        // What ours asks for, all at once.
        Method::tool(
            "fallocate --punch-hole",
            &["fallocate", "--punch-hole", "--length", &length, "{}"],
            Zeros,
        ),
        Method::ours("ours: zero", &["zero", "{}"], Zeros),
        Method::tool("blkdiscard", &["blkdiscard", "-f", "{}"], Anything),
        Method::ours("ours: discard", &["discard", "{}"], Zeros),
        Method::ours("ours: quick reset", &["quick-reset", "{}"], NoSignature),
    ];
    let case = Case::measure(title, Bench::ROUNDS, device, methods)?;
    let verdicts = [
        Verdict::times(14, &case, "ours: zero", "blkdiscard -z", 1.1),
        Verdict::times(14, &case, "ours: zero", "fallocate --punch-hole", 1.1),
        memory(&case),
    ];
    Ok(verdicts.into_iter().flatten().collect())
}

/// Of whichever of ours took the most.
fn memory(case: &Case) -> Option<Verdict> {
    Verdict::most_memory(8, case, 16.0)
}

/// The fastest way that people know.
fn dd_direct(size: u64) -> Method {
    dd(DD_DIRECT, &["bs=4M", "oflag=direct"], size)
}

fn dd(name: &'static str, how: &[&str], size: u64) -> Method {
    let count = format!("count={size}");
    let zeros = ["dd", "if=/dev/zero", "of={}", "iflag=count_bytes", &count];
    Method::tool(name, &[&zeros, how].concat(), Zeros)
}

/// Measures on devices over files that cannot have holes again once they were written to.
fn on_ramfs(
    bench: &Bench,
    title: String,
    size: u64,
    holds: Holds,
    methods: Vec<Method>,
) -> Result<Case> {
    let dir = bench.sandbox.ramfs("ramfs")?;
    let device = Device::new(&dir, size, holds);
    let case = Case::measure(title, Bench::ROUNDS, device, methods)?;
    bench.sandbox.umount(&dir)?;
    Ok(case)
}

/// A size, for titles.
pub fn text(size: u64) -> String {
    match size {
        TIB.. => format!("{} TiB", size / TIB),
        GIB.. => format!("{} GiB", size / GIB),
        _ => format!("{} MiB", size / MIB),
    }
}
