//! The program: parses the command line and runs the command. It exits with 0 for success, 2 for a usage or
//! configuration error, 1 for any other failure, and 130 when `clean` was interrupted.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use local_volume_provisioner::args::{Args, Command, Environment};
use local_volume_provisioner::cmd::run::UsageError;
use local_volume_provisioner::cmd::{
    check_config, clean, discover, job, node_cleanup, release, run, status,
};
use local_volume_provisioner::errors::chain;
use local_volume_provisioner::log;
use local_volume_provisioner::wipe::{method, supervisor};

fn main() -> ExitCode {
    // The image also has this program under the names of the cleaner scripts, which cannot run on their own.
    let name = std::env::args_os().next().unwrap_or_default();
    if let Some(answer) = method::not_a_program(&name) {
        let _ = writeln!(io::stderr(), "error: {answer}");
        return ExitCode::from(2);
    }
    let args = Args::from_command_line(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if let Some(Command::Supervise { program }) = &args.command {
        return supervisor::supervise(program);
    }
    log::init(args.log_format, args.log_level());
    match dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            let is_usage_error = error.downcast_ref::<UsageError>().is_some();
            let _ = writeln!(io::stderr(), "error: {}", chain(error.as_ref()));
            ExitCode::from(if is_usage_error { 2 } else { 1 })
        }
    }
}

fn dispatch(mut args: Args) -> Result<ExitCode> {
    let environment = Environment::read(|name| std::env::var_os(name))
        .map_err(|error| UsageError(error.to_string()))?;
    let mut out = io::stdout();
    match args.command.take() {
        None => {
            // Idle scan threads are kept until the next pass, since that costs less than spawning new ones.
            let keep_threads = args.discovery_period.saturating_mul(2);
            serve(keep_threads, run::run(args, environment))
        }
        Some(Command::Status(request)) => {
            once(status::command(&request, &args, &environment, &mut out))
        }
        Some(Command::Discover(request)) => {
            once(discover::command(&request, &args, &environment, &mut out))
        }
        Some(Command::CheckConfig) => Ok(check_config::run(&args.config, &environment, &mut out)?),
        Some(Command::Clean(request)) => {
            once(clean::command(&request, &args, &environment, &mut out))
        }
        Some(Command::Release(request)) => once(release::command(request, environment, &mut out)),
        Some(Command::NodeCleanup(request)) => {
            serve(Duration::ZERO, node_cleanup::run(request, environment))
        }
        Some(Command::Job(request)) => once(job::run(&request)),
        Some(Command::Supervise { program }) => Ok(supervisor::supervise(&program)),
    }
}

/// Runs a service until it receives a stop signal. One thread is enough: its tasks wait for the network, and
/// blocking work has its own threads.
fn serve(keep_threads: Duration, service: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_keep_alive(keep_threads)
        .enable_all()
        .build()?;
    let result = runtime.block_on(service);
    // A thread that hangs on a dead disk must not keep the process from ending.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

/// Runs a command to completion.
fn once(command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(command);
    // As in `serve`.
    runtime.shutdown_background();
    result
}
