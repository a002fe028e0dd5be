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
    adopt, approve, bundle, check, check_config, clean, completion, consent, discover, explain,
    job, list, move_pv, node_cleanup, pause, rebind, release, retire, run, status,
};
use local_volume_provisioner::errors::chain;
use local_volume_provisioner::log;
use local_volume_provisioner::memory;
use local_volume_provisioner::wipe::supervisor;

/// How long idle threads are kept: until the next scan, since that costs less than spawning new ones.
const KEEP_THREADS: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    memory::share_arena();
    let environment = Environment::read(|name| std::env::var_os(name));
    let is_node = environment.node_name.is_some() || environment.in_pod;
    let args =
        Args::from_command_line(std::env::args_os(), is_node).unwrap_or_else(|error| error.exit());
    if !matches!(args.command, Command::Supervise { .. }) {
        let settings = args.log();
        log::init(settings.format, settings.level());
    }
    match dispatch(args.command, environment) {
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

fn dispatch(command: Command, environment: Environment) -> Result<ExitCode> {
    let mut out = io::stdout();
    match command {
        Command::Run(args) => block_on(run::run(args, environment)).map(|()| ExitCode::SUCCESS),
        Command::Check(request) => block_on(check::command(&request, &mut out)),
        Command::List(request) => block_on(list::command(&request, &mut out)),
        Command::Explain(request) => block_on(explain::command(&request, &mut out)),
        Command::Consent(request) => block_on(consent::command(&request, &mut out)),
        Command::Adopt(request) => block_on(adopt::command(&request, &mut out)),
        Command::Approve(request) => block_on(approve::command(&request, &mut out)),
        Command::Pause(request) => block_on(pause::command(&request, true, &mut out)),
        Command::Resume(request) => block_on(pause::command(&request, false, &mut out)),
        Command::Rebind(request) => block_on(rebind::command(&request, &mut out)),
        Command::Move(request) => block_on(move_pv::command(&request, &mut out)),
        Command::Replace(request) => block_on(retire::replace(&request, &mut out)),
        Command::Retire(request) => block_on(retire::retire(&request, &mut out)),
        Command::Status(request) => block_on(status::command(&request, &mut out)),
        Command::Bundle(request) => block_on(bundle::command(&request, &mut out)),
        Command::Discover { config, output } => {
            block_on(discover::command(output, &config, &environment, &mut out))
        }
        Command::CheckConfig(request) => check_config::run(&request, &mut out),
        Command::Clean(request) => block_on(clean::command(&request, &environment, &mut out)),
        Command::Release(request) => block_on(release::command(request, &mut out)),
        Command::NodeCleanup(request) => {
            block_on(node_cleanup::run(request, environment)).map(|()| ExitCode::SUCCESS)
        }
        Command::Completion { shell } => Ok(completion::command(shell, &mut out)),
        Command::Complete { words } => completion::complete(&words, &mut out),
        Command::Job(request) => block_on(job::run(request)),
        Command::Supervise { program } => Ok(supervisor::supervise(&program)),
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
