//! What it costs to run a method.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use procfs::{CurrentSI, KernelStats};

use super::method::Method;

/// What one run took.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Seconds from its start until the data is gone for good; infinite if it did not get there.
    pub wall: f64,
    /// CPU seconds of the process with all its threads, in the kernel and outside.
    pub cpu: f64,
    /// Busy seconds of all CPUs. They include the kernel's threads, which carry out requests of the
    /// process, and every other process of this machine.
    pub busy: f64,
    /// Of our own: the most memory in use, in MiB, beyond what an idle process has.
    pub memory: Option<f64>,
    /// Of our own: by which means it was done.
    pub means: Option<String>,
    /// Why it did not get there.
    pub problem: Option<String>,
}

impl Cost {
    /// Has a method clean `target`, and runs `settle`, which belongs to its time.
    pub fn of(method: &Method, target: &Path, settle: impl FnOnce() -> Result<()>) -> Result<Self> {
        let (cpu, busy, begun) = (children()?, machine()?, Instant::now());
        let ended = method.try_run(target)?;
        settle()?;
        let wall = begun.elapsed().as_secs_f64();
        let mut cost = Self {
            wall,
            cpu: children()? - cpu,
            busy: machine()? - busy,
            memory: None,
            means: None,
            problem: None,
        };
        let output = match ended {
            Ok(output) => output,
            Err(problem) => {
                cost.wall = f64::INFINITY;
                cost.problem = Some(problem);
                return Ok(cost);
            }
        };
        if method.ours {
            let text = String::from_utf8(output.stdout)?;
            let report = text.trim().split_once(' ');
            let (memory, means) = report.with_context(|| format!("no report: {text:?}"))?;
            cost.memory = Some(memory.parse::<f64>()? / 1024.0);
            cost.means = Some(means.to_owned());
        }
        Ok(cost)
    }
}

/// CPU seconds of all children so far that have ended.
#[allow(clippy::cast_precision_loss, reason = "microseconds")]
fn children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = usage.user_time() + usage.system_time();
    Ok(time.num_microseconds() as f64 / 1e6)
}

/// Seconds that the machine's CPUs were busy so far.
#[allow(clippy::cast_precision_loss, reason = "ticks")]
fn machine() -> Result<f64> {
    let total = KernelStats::current()?.total;
    let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    let ticks = total.user + total.nice + total.system + interrupts;
    Ok(ticks as f64 / procfs::ticks_per_second() as f64)
}
