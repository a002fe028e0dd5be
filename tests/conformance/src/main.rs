//! Whether the embedded control plane ends where a real Kubernetes does.
//!
//! `scenarios/*.yaml` are stories about claims, volumes, pods and the API. Each runs against any API
//! server; what is left when nothing changes any more is recorded, and two records are compared. That
//! of a real Kubernetes is kept beside the scenarios, so that every run of the tests compares.

mod activity;
mod api;
mod clean;
mod compare;
mod embedded;
mod heartbeat;
mod names;
mod outcome;
mod play;
#[cfg(test)]
mod recorded;
mod report;
mod run;
mod scenario;
mod settle;
mod short;
mod shown;
mod step;
mod target;

use std::{path::PathBuf, process::ExitCode};

use crate::{
    outcome::Record,
    run::{Pace, Runner},
    scenario::Scenario,
};
use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use kube::config::Kubeconfig;

/// Whether the embedded control plane ends where a real Kubernetes does
#[derive(Debug, Parser)]
#[command(bin_name = "conformance")]
struct Args {
    /// Only scenarios whose names contain one of these
    #[arg(long, value_name = "NAME", global = true)]
    only: Vec<String>,

    /// A real API server; without it an embedded control plane is started
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the scenarios, and records how they end. What is on record of others stays
    Record,
    /// Runs the scenarios, and says how they end otherwise than on record
    Check,
    /// Prints docs/develop/conformance.md
    Report,
}

fn main() -> ExitCode {
    match act(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn act(args: &Args) -> anyhow::Result<bool> {
    let all = scenario::load(&embedded::directory().join("scenarios"))?;
    let path = embedded::record();
    let mut known = Record::read(&path)?;
    let wanted =
        |s: &Scenario| args.only.is_empty() || args.only.iter().any(|o| s.name.contains(o));
    let asked: Vec<Scenario> = all.iter().filter(|s| wanted(s)).cloned().collect();
    if asked.is_empty() {
        bail!("no scenario is called so");
    }
    let complaints = match args.command {
        Command::Report => {
            print!("{}", report::render(&all, &known));
            return Ok(true);
        }
        Command::Check => {
            let found = run(&asked, args)?;
            compare::complaints(&asked, &known, &found)
        }
        Command::Record => {
            let found = run(&asked, args)?;
            let complaints = compare::complaints(&asked, &found, &found);
            known.server.clone_from(&found.server);
            known.scenarios.extend(found.scenarios);
            known.scenarios.retain(|name, _| all.iter().any(|scenario| scenario.name == *name));
            known.write(&path)?;
            complaints
        }
    };
    for complaint in &complaints {
        println!("{complaint}");
    }
    eprintln!("{} scenarios, {} differ", asked.len(), complaints.len());
    Ok(complaints.is_empty())
}

fn run(scenarios: &[Scenario], args: &Args) -> anyhow::Result<Record> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let Some(path) = &args.kubeconfig else {
            return embedded::run(scenarios).await;
        };
        let kubeconfig = Kubeconfig::read_from(path)
            .with_context(|| format!("cannot use {}", path.display()))?;
        let runner = Runner::start(kubeconfig, Pace::REAL).await?;
        runner.run(scenarios).await
    })
}
