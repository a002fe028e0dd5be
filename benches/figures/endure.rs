//! Long runs whose targets must be met: `scripts/test --endure` runs this.
//!
//! With `TEST_KUBECONFIG`, the outages of that cluster's control plane; else all the others.

mod nodes;
mod outages;
mod volumes;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use support::Program;
use support::stage::on_real_cluster;

use super::Effort;
use super::process::{descriptors, memory, threads};
use super::table::{self, Figure, Target};

/// How far the resident memory of a process that leaks nothing may grow, in MiB: the allocator keeps pages. Of 25,000 volumes
/// that is 42 bytes each; a leaked UID alone is a block of 48.
const RSS_GROWTH: f64 = 1.0;

/// The same from a few uses on, in MiB: the heap grows until most tasks have run side by side once.
const WARM_UP: f64 = 2.5;
/// Threads without work end after 20 s. Until then each holds a stack and blocks of the heap.
const THREADS_END: Duration = Duration::from_secs(35);
const THREE_PASSES: Duration = Duration::from_secs(30);

type Run = fn(&Effort) -> Result<Vec<Figure>>;

/// Prints a table for each run, and fails if a target is missed.
pub fn run(effort: &Effort) -> Result<()> {
    let runs: &[(&str, Run)] = if on_real_cluster() {
        &[("outages", outages::figures)]
    } else {
        &[
            ("recycled", volumes::recycled_one_by_one),
            ("nodes", nodes::figures),
            ("volumes", volumes::recycled_at_once),
        ]
    };
    let is_wanted =
        |name: &str| effort.names.is_empty() || effort.names.iter().any(|it| it == name);
    let runs: Vec<_> = runs.iter().filter(|(name, _)| is_wanted(name)).collect();
    ensure!(!runs.is_empty(), "none of {:?} runs on this API server", effort.names);
    let mut missed = 0;
    for (_, run) in runs {
        let figures = run(effort)?;
        println!("{}", table::render(&figures));
        missed += figures.iter().filter(|figure| figure.met() == Some(false)).count();
    }
    ensure!(missed == 0, "{missed} targets are missed");
    Ok(())
}

/// What a process holds at rest.
struct Held {
    threads: usize,
    descriptors: usize,
    resident: f64,
}

impl Held {
    /// Waits until the threads of the work before it have ended, and then looks for the time of three passes. A pass starts
    /// threads, and opens and closes descriptors: the most threads and the fewest descriptors count.
    fn by(program: &Program) -> Result<Self> {
        thread::sleep(THREADS_END);
        let resident = memory(program)?.resident;
        let mut held = Self { threads: 0, descriptors: usize::MAX, resident };
        let begun = Instant::now();
        while begun.elapsed() < THREE_PASSES {
            held.threads = held.threads.max(threads(program)?);
            held.descriptors = held.descriptors.min(descriptors(program)?);
            thread::sleep(Duration::from_millis(10));
        }
        Ok(held)
    }

    /// What it holds later, and how much more that is. Its memory may grow by `growth` MiB.
    fn changes(&self, later: &Self, growth: f64) -> [Figure; 6] {
        let more = |before, after: usize| after.saturating_sub(before);
        let (threads, descriptors) =
            (more(self.threads, later.threads), more(self.descriptors, later.descriptors));
        [
            count("threads", later.threads, Target::None),
            count("threads more than before", threads, Target::Median(0.0)),
            count("descriptors", later.descriptors, Target::None),
            count("descriptors more than before", descriptors, Target::Median(0.0)),
            resident("RSS", later.resident, Target::None),
            self.growth("growth of RSS", later, growth),
        ]
    }

    fn growth(&self, what: &'static str, later: &Self, limit: f64) -> Figure {
        resident(what, later.resident - self.resident, Target::Median(limit))
    }
}

fn resident(what: &'static str, value: f64, target: Target) -> Figure {
    Figure { what, measured: vec![value], unit: "MiB", target }
}

/// A value that was measured once.
#[allow(clippy::cast_precision_loss, reason = "a count")]
fn count(what: &'static str, value: usize, target: Target) -> Figure {
    Figure { what, measured: vec![value as f64], unit: "", target }
}
