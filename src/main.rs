//! The program: reads its command line, does what it says, and exits with 0 for success, 2 for what
//! only an administrator can mend, 1 for the rest (and 130 when `clean` was interrupted).

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use local_volume_provisioner::args::{Args, Clean, Command, Environment, LogFormat, Release};
use local_volume_provisioner::clean::{method, supervisor};
use local_volume_provisioner::cluster::{Cluster, chain};
use local_volume_provisioner::cmd::release::{Outcome, ReleaseError, Request, Scope};
use local_volume_provisioner::cmd::run::{Misuse, load};
use local_volume_provisioner::cmd::{check_config, clean, discover, release, run};
use local_volume_provisioner::metrics::Metrics;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    // The image has us under the cleaners' names as well. A second provisioner is not what they ask for.
    let name = std::env::args_os().next().unwrap_or_default();
    if let Some(answer) = method::not_a_program(&name) {
        let _ = writeln!(io::stderr(), "error: {answer}");
        return ExitCode::from(2);
    }
    let args = match Args::from_command_line(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    if let Some(Command::Supervise { program }) = &args.command {
        return supervisor::supervise(program);
    }
    init_log(&args);
    match dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            let misuse = error.downcast_ref::<Misuse>().is_some();
            let _ = writeln!(io::stderr(), "error: {}", chain(error.as_ref()));
            ExitCode::from(if misuse { 2 } else { 1 })
        }
    }
}

fn dispatch(mut args: Args) -> Result<ExitCode> {
    let environment = Environment::read(|name| std::env::var_os(name))
        .map_err(|error| Misuse(error.to_string()))?;
    let mut out = io::stdout();
    match args.command.take() {
        None => {
            // Everything waits for the network or runs on threads of its own: one thread is enough, and
            // a node pays for no more.
            // The threads that scan stay for the next pass, which costs less than new ones.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .thread_keep_alive(args.discovery_period.saturating_mul(2))
                .enable_all()
                .build()?;
            let result = runtime.block_on(run::run(args, environment));
            // A thread that hangs on a dead disk must not keep the process from ending.
            runtime.shutdown_background();
            result.map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Discover(discover)) => {
            let node = match (&discover.node_name, &environment.node_name) {
                (Some(node), _) | (None, Some(node)) => node.clone(),
                (None, None) => {
                    return Err(
                        Misuse("say which node with --node-name or MY_NODE_NAME".into()).into(),
                    );
                }
            };
            let loaded = load(&args)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let result = runtime.block_on(discover::run(&loaded, &node, discover.output, &mut out));
            runtime.shutdown_background();
            result?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::CheckConfig) => Ok(check_config::run(&args.config, &mut out)?),
        Some(Command::Clean(clean)) => by_hand(&clean, &args, &environment),
        Some(Command::Release(args)) => let_go(args, environment),
        Some(Command::Supervise { program }) => Ok(supervisor::supervise(&program)),
    }
}

fn by_hand(request: &Clean, args: &Args, environment: &Environment) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let needs = clean::Needs::of_this_machine(args, environment)?;
        clean::run(request, &needs, &mut io::stdout()).await
    });
    // A cleaner that hangs on a dead disk must not keep the program from ending.
    runtime.shutdown_background();
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            ExitCode::from(error.exit_code())
        }
    })
}

fn let_go(args: Release, environment: Environment) -> Result<ExitCode> {
    let known = (!environment.namespace_defaulted).then_some(environment.namespace);
    let namespace = args.namespace.or(known);
    let request = Request {
        scope: match (args.node, args.daemonset, namespace) {
            (Some(node), _, _) => Scope::Node(node),
            (None, None, namespace) => Scope::All { namespace },
            (None, Some(daemon_set), Some(namespace)) => Scope::Installation {
                namespace,
                daemon_set,
            },
            (None, Some(_), None) => {
                return Err(Misuse("say where the DaemonSet is with --namespace".into()).into());
            }
        },
        abandon_uncleaned: args.abandon_uncleaned,
        dry_run: args.dry_run,
        timeout: args.timeout,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome: Result<_> = runtime.block_on(async {
        let cluster = Cluster::new(run::client().await?, Arc::new(Metrics::new()?));
        match release::run(&cluster, &request, &mut io::stdout()).await {
            Err(ReleaseError::Misuse(misuse)) => Err(misuse.into()),
            result => Ok(result?),
        }
    });
    Ok(match outcome? {
        Outcome::AllReleased => ExitCode::SUCCESS,
        Outcome::SomeStay => ExitCode::FAILURE,
    })
}

/// At `-v=4` the libraries would tell of every step of every request; they do from 6 on. Of a watch
/// that breaks they tell each time; we do once.
fn init_log(args: &Args) {
    let level = LevelFilter::from_level(args.log_level().into());
    let libraries = |most: LevelFilter| match level {
        LevelFilter::TRACE => level,
        level => level.min(most),
    };
    let targets = Targets::new()
        .with_target("local_volume_provisioner", level)
        .with_target("kube_runtime::watcher", libraries(LevelFilter::ERROR))
        .with_default(libraries(LevelFilter::INFO));
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr);
    match args.log_format {
        LogFormat::Text => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            log.with_ansi(colours).finish().with(targets).init();
        }
        LogFormat::Json => log.json().finish().with(targets).init(),
    }
}
