//! `conformance`: runs the scenarios, compares two runs, writes the report.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use conformance::{
    check,
    compare::{self, Complaint},
    embedded,
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
        /// Of the real one
        real: PathBuf,
        /// Of the embedded one
        embedded: PathBuf,
    },
    /// Runs the scenarios, and says how they end otherwise than a record of the real one
    Check {
        /// A real API server, so that no difference is expected; without it an embedded control
        /// plane is started
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// The record of the real one
        real: PathBuf,
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
            let mut record = runtime()?.block_on(run(&scenarios, kubeconfig.as_deref()))?;
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
        Command::Compare { real, embedded } => {
            let real = read(&real, &args.only, &scenarios)?;
            let embedded = read(&embedded, &args.only, &scenarios)?;
            let complaints = compare::complaints(&scenarios, &real, &embedded);
            Ok(tell(&scenarios, &complaints))
        }
        Command::Check { kubeconfig, real } => {
            if kubeconfig.is_some() {
                // Both are real.
                for scenario in &mut scenarios {
                    scenario.differs = None;
                }
            }
            let real = read(&real, &args.only, &scenarios)?;
            let complaints =
                runtime()?.block_on(check::against(&real, &scenarios, async |asked| {
                    run(asked, kubeconfig.as_deref()).await
                }))?;
            Ok(tell(&scenarios, &complaints))
        }
        Command::Report { real } => {
            print!("{}", report::render(&scenarios, &Record::read(&real)?));
            Ok(true)
        }
    }
}

/// A record, of the scenarios that are asked for.
fn read(path: &Path, only: &[String], scenarios: &[Scenario]) -> anyhow::Result<Record> {
    let record = Record::read(path)?;
    Ok(if only.is_empty() {
        record
    } else {
        record.of(scenarios)
    })
}

fn tell(scenarios: &[Scenario], complaints: &[Complaint]) -> bool {
    for complaint in complaints {
        println!("{complaint}");
    }
    eprintln!("{} scenarios, {} differ", scenarios.len(), complaints.len());
    complaints.is_empty()
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
}

async fn run(scenarios: &[Scenario], kubeconfig: Option<&Path>) -> anyhow::Result<Record> {
    let Some(path) = kubeconfig else {
        return embedded::run(scenarios).await;
    };
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot use {}", path.display()))?;
    Runner::start(kubeconfig, Pace::REAL)
        .await?
        .run(scenarios)
        .await
}
