//! `conformance`: runs the scenarios, compares two runs, writes the report.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use conformance::{
    compare, embedded,
    outcome::Record,
    report,
    run::{Pace, Runner},
    scenario::{self, Scenario},
};
use kube::config::Kubeconfig;

/// Whether the embedded control plane ends where a real Kubernetes does
#[derive(Debug, Parser)]
#[command(bin_name = "conformance")]
struct Args {
    /// Where the scenarios are
    #[arg(long, value_name = "DIR", default_value_os_t = embedded::directory().join("scenarios"), global = true)]
    scenarios: PathBuf,

    /// Only scenarios whose names contain one of these
    #[arg(long, value_name = "NAME", global = true)]
    only: Vec<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the scenarios, and records how they end
    Run {
        /// The API server; without it an embedded control plane is started
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Where to write the record; without it to standard output. With --only, what it holds of
        /// other scenarios stays
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Says how two records differ: of a real one, of the embedded one
    Compare {
        /// No difference is expected, also where a scenario says so: both are real
        #[arg(long)]
        same: bool,
        /// Of the real one
        real: PathBuf,
        /// Of the embedded one
        embedded: PathBuf,
    },
    /// Prints docs/conformance.md
    Report {
        /// The record of the real one
        real: PathBuf,
    },
}

fn main() -> ExitCode {
    match act(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn act(args: Args) -> anyhow::Result<bool> {
    let mut scenarios = scenario::load(&args.scenarios)?;
    scenarios.retain(|s| args.only.is_empty() || args.only.iter().any(|o| s.name.contains(o)));
    if scenarios.is_empty() {
        bail!("no scenario is called so");
    }
    match args.command {
        Command::Run { kubeconfig, out } => {
            let mut record = run(&scenarios, kubeconfig.as_deref())?;
            let failed = record.scenarios.iter().filter_map(|(name, outcome)| {
                Some(format!("{name}: {}", outcome.failed.as_ref()?))
            });
            let failed: Vec<String> = failed.collect();
            if let Some(out) = out {
                if !args.only.is_empty() && out.exists() {
                    let known = Record::read(&out)?.scenarios.into_iter();
                    let others = known.filter(|(n, _)| scenarios.iter().all(|s| s.name != *n));
                    record.scenarios.extend(others.collect::<Vec<_>>());
                }
                record.write(&out)?;
            } else {
                println!("{}", serde_json::to_string_pretty(&record)?);
            }
            for line in &failed {
                eprintln!("{line}");
            }
            eprintln!(
                "{} scenarios, {} not as they say",
                scenarios.len(),
                failed.len()
            );
            Ok(failed.is_empty())
        }
        Command::Compare {
            same,
            real,
            embedded,
        } => {
            if same {
                for scenario in &mut scenarios {
                    scenario.differs = None;
                }
            }
            let (mut real, mut embedded) = (Record::read(&real)?, Record::read(&embedded)?);
            for record in [&mut real, &mut embedded] {
                let asked = |name: &String| {
                    args.only.is_empty() || scenarios.iter().any(|s| s.name == *name)
                };
                record.scenarios.retain(|name, _| asked(name));
            }
            let complaints = compare::complaints(&scenarios, &real, &embedded);
            for complaint in &complaints {
                println!("{complaint}");
            }
            eprintln!("{} scenarios, {} differ", scenarios.len(), complaints.len());
            Ok(complaints.is_empty())
        }
        Command::Report { real } => {
            print!("{}", report::render(&scenarios, &Record::read(&real)?));
            Ok(true)
        }
    }
}

fn run(scenarios: &[Scenario], kubeconfig: Option<&Path>) -> anyhow::Result<Record> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match kubeconfig {
            None => embedded::run(scenarios).await,
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot use {}", path.display()))?;
                let runner = Runner::start(kubeconfig, Pace::REAL).await?;
                runner.run(scenarios).await
            }
        }
    })
}
