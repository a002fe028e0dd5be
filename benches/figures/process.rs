//! What a process costs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use support::Program;

/// Resident memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it, in MiB, the pages of the binary and of libraries that were touched included.
    pub resident: f64,
    /// What the process wrote itself, in MiB: heap, stacks, relocated data.
    pub anonymous: f64,
}

/// The memory of a process right now. Counted page by page: `VmRSS` may be off by hundreds of KiB,
/// because every CPU keeps a count of its own.
pub fn memory(program: &Program) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", program.pid()))?;
    let mib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0).with_context(|| format!("no {key} in smaps_rollup"))
    };
    Ok(Memory { resident: mib("Rss:")?, anonymous: mib("Anonymous:")? })
}

/// How many threads a process has right now.
pub fn threads(program: &Program) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/task", program.pid()))?.count())
}

/// How many descriptors a process has open right now.
pub fn descriptors(program: &Program) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", program.pid()))?.count())
}

/// The time that all threads of a process, the ended ones too, have spent on a CPU. To the
/// nanosecond, where `/proc/PID/stat` counts in hundredths of a second.
pub fn cpu_time(program: &Program) -> Result<Duration> {
    let pid = Pid::from_raw(i32::try_from(program.pid())?);
    Ok(clock_gettime(clock_getcpuclockid(pid)?)?.into())
}
