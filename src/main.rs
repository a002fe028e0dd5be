//! The program: parses the command line and runs the command. It exits with 0 for success, 2 for a usage or
//! configuration error, 1 for any other failure, and 130 when a signal interrupted `clean` or `job`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use local_volume_provisioner::args::{Args, Command, Environment};
use local_volume_provisioner::cmd::cleaner::Interrupted;
use local_volume_provisioner::cmd::run::UsageError;
use local_volume_provisioner::cmd::{
    check_config, clean, discover, job, node_cleanup, release, run, status,
};
use local_volume_provisioner::errors::chain;
use local_volume_provisioner::log;
use local_volume_provisioner::memory;
use local_volume_provisioner::wipe::supervisor;

/// How long idle threads are kept: until the next scan, since that costs less than spawning new ones.
const KEEP_THREADS: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    memory::share_arena();
    let args = Args::from_command_line(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if !matches!(args.command, Some(Command::Supervise { .. })) {
        log::init(args.log_format, args.log_level());
    }
    match dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(error.as_ref()));
            match error {
                error if error.is::<UsageError>() => ExitCode::from(2),
                error if error.is::<Interrupted>() => ExitCode::from(130),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn dispatch(mut args: Args) -> Result<ExitCode> {
    let environment = Environment::read(|name| std::env::var_os(name));
    let mut out = io::stdout();
    match args.command.take() {
        None => block_on(run::run(args, environment)).map(|()| ExitCode::SUCCESS),
        Some(Command::Status(request)) => block_on(status::command(&request, &args, &mut out)),
        Some(Command::Discover { output }) => {
            block_on(discover::command(output, &args, &environment, &mut out))
        }
        Some(Command::CheckConfig) => check_config::run(&args.config, &mut out),
        Some(Command::Clean(request)) => {
            block_on(clean::command(&request, &args, &environment, &mut out))
        }
        Some(Command::Release(request)) => block_on(release::command(request, &mut out)),
        Some(Command::NodeCleanup(request)) => {
            block_on(node_cleanup::run(request, &args, environment)).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Job(request)) => block_on(job::run(request)),
        Some(Command::Supervise { program }) => Ok(supervisor::supervise(&program)),
    }
}

/// Runs a command to its end. One thread is enough: its tasks wait for the network, and blocking work has its own
/// threads.
fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_keep_alive(KEEP_THREADS)
        .enable_all()
        .build()?;
    let result = runtime.block_on(command);
    // A thread that hangs on a dead disk must not keep the process from ending.
    runtime.shutdown_background();
    result
}
