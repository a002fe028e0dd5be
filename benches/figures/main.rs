//! The figures that this program is meant to reach, measured: `scripts/bench` runs this.
//!
//! Each figure is taken of the release binary as a process of its own, on real mounts, against the
//! embedded control plane over HTTP; with `TEST_KUBECONFIG`, those that a cluster has a part in are
//! taken on that cluster. A missed target is reported and is not an error: the machine may be busy
//! or slow.

mod binary;
mod busy;
#[path = "../common/digits.rs"]
mod digits;
mod endure;
mod foreign;
mod idle;
mod process;
mod recycling;
mod start;
mod table;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use support::stage::on_real_cluster;
use table::Figure;

/// What to measure, and how thoroughly.
#[derive(Clone, Debug, Parser)]
struct Effort {
    /// The release binary.
    #[arg(long)]
    binary: PathBuf,
    /// Another release binary, which is measured in the same run.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Fewer rounds, and a third of the idle minute, scaled up.
    #[arg(long)]
    quick: bool,
    /// Instead of the figures, the long runs, whose targets must be met.
    #[arg(long)]
    endure: bool,
    /// Of the long runs, only these.
    #[arg(requires = "endure")]
    names: Vec<String>,
    /// `cargo bench` says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Effort {
    /// How many rounds: `thorough` ones, or fewer.
    fn rounds(&self, thorough: usize) -> usize {
        if self.quick { thorough.div_ceil(4) } else { thorough }
    }

    /// How much of an idle minute is watched: a whole number of the passes that the timer makes.
    fn idle(&self) -> Duration {
        Duration::from_secs(if self.quick { 20 } else { 60 })
    }
}

fn main() -> Result<()> {
    // Test runners start every target, too, to ask for its tests: there are none.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let mut effort = Effort::parse();
    if effort.endure {
        return endure::run(&effort);
    }
    if let Some(other) = effort.against.take() {
        let other = Effort { binary: other, ..effort.clone() };
        println!("{}:", other.binary.display());
        println!("{}", table::render(&figures(&other)?));
        println!("{}:", effort.binary.display());
    }
    print!("{}", table::render(&figures(&effort)?));
    Ok(())
}

fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    let mut figures = recycling::figures(effort)?;
    figures.extend(start::figures(effort)?);
    if !on_real_cluster() {
        figures.extend(idle::figures(effort)?);
        figures.extend(busy::figures(effort)?);
        figures.extend(foreign::figures(effort)?);
        figures.extend(binary::figures(effort)?);
    }
    Ok(figures)
}
