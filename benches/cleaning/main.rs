//! Our cleaners beside the tools that people know: `scripts/bench cleaning` runs this.
//!
//! Every method is a process of its own, ours too, which calls the library's functions. All methods
//! of a case take turns on the same filesystem or device, filled again each time, so that a busy or
//! slow moment of the machine affects all of them. A missed target is reported and is not an error.
//!
//! Loop devices and mounts are the process's own and end with it, also after `kill -9`.

mod case;
mod cost;
mod devices;
#[path = "../common/digits.rs"]
mod digits;
mod method;
mod ours;
mod recycle;
mod reformat;
mod table;
mod trees;
mod verdict;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use local_volume_provisioner::wipe::supervisor;
use nix::sys::statvfs::statvfs;
use procfs::{Current, Meminfo};
use support::Sandbox;

use ours::Ours;
use verdict::Verdict;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// How thoroughly to measure.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Trees a tenth as large, devices an eighth.
    #[arg(long)]
    quick: bool,
    /// Nothing else.
    #[arg(long)]
    only: Option<Part>,
    /// Of the trees and of recycling, only those whose titles contain this: "ext4", "levels".
    #[arg(long, value_name = "WORD")]
    tree: Option<String>,
    /// `cargo bench` says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
    /// What a process that is being measured does.
    #[command(subcommand)]
    ours: Option<Ours>,
}

/// What measures a part, and compares it with the targets.
type Measure = fn(&Bench) -> Result<Vec<Verdict>>;

/// What there is to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Trees,
    Devices,
    Recycling,
}

/// Where is measured, and how much.
#[derive(Debug)]
struct Bench {
    sandbox: Sandbox,
    /// A tmpfs for backing files.
    memory: PathBuf,
    quick: bool,
    tree: Option<String>,
}

impl Bench {
    /// A directory on a disk, for backing files without a name: where cargo builds.
    const DISK: &str = env!("CARGO_TARGET_TMPDIR");
    /// How often each method has its turn.
    const ROUNDS: usize = 3;

    fn enter(quick: bool, tree: Option<String>) -> Result<Self> {
        let sandbox = Sandbox::enter_as_anyone()?;
        ensure!(
            !sandbox.in_user_namespace(),
            "it makes loop devices and mounts them, which takes root"
        );
        let memory = sandbox.tmpfs("memory", "size=100%")?;
        let bench = Self { sandbox, memory, quick, tree };
        bench.check_room()?;
        Ok(bench)
    }

    /// The large device's size in bytes.
    fn device_size(&self) -> u64 {
        if self.quick { 512 * MIB } else { 4 * GIB }
    }

    /// How many files a tree has.
    fn files(&self) -> usize {
        if self.quick { 20_000 } else { 200_000 }
    }

    /// Whether the case of a tree with this title is asked for.
    fn wants(&self, title: &str) -> bool {
        self.tree.as_ref().is_none_or(|text| title.contains(text))
    }

    /// A backing file without room would show as a disk with I/O errors, and a ramfs takes memory
    /// until the machine has none.
    fn check_room(&self) -> Result<()> {
        let needed = self.device_size() + 2 * GIB;
        let memory = Meminfo::current()?.mem_available.unwrap_or(0);
        ensure!(
            memory >= needed,
            "{} MiB of memory are free, and the devices in memory take up to {} MiB",
            memory / MIB,
            needed / MIB
        );
        std::fs::create_dir_all(Self::DISK)
            .with_context(|| format!("making the directory {}", Self::DISK))?;
        let disk = statvfs(Path::new(Self::DISK))?;
        let free = disk.blocks_available() * disk.fragment_size();
        ensure!(
            free >= needed,
            "{} MiB are free in {}, and backing files take up to {} MiB; set CARGO_TARGET_DIR to a larger disk",
            free / MIB,
            Self::DISK,
            needed / MIB
        );
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    // The supervisor of mkfs is this program, as it is the provisioner in the provisioner.
    if let [first, _, program @ ..] = &*words
        && first == supervisor::SUBCOMMAND
    {
        return Ok(supervisor::supervise(program));
    }
    // Test runners start every target, too, to ask for its tests: there are none.
    if !words.iter().any(|word| word == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    if let Some(ours) = arguments.ours {
        return ours.run().map(|()| ExitCode::SUCCESS);
    }
    let bench = Bench::enter(arguments.quick, arguments.tree)?;
    let mut verdicts = Vec::new();
    let parts: [(Part, Measure); 3] = [
        (Part::Trees, trees::measure),
        (Part::Devices, devices::measure),
        (Part::Recycling, recycle::measure),
    ];
    for (part, measure) in parts {
        if arguments.only.is_none_or(|only| only == part) {
            verdicts.extend(measure(&bench)?);
        }
    }
    print!("{}", verdict::render(&verdicts));
    if bench.quick {
        println!("the targets are meant for the full sizes, without --quick");
    }
    Ok(ExitCode::SUCCESS)
}
