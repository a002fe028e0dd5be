//! `control-plane`: an API server with volume controllers, for a person at a terminal.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use control_plane::{
    BadRoot, ControlPlane, HostPaths, NodeOptions, Options, ProcessOptions, StartError, Store,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

const AFTER: &str = "\
No data is touched (but see --host-paths): a path need not exist. RUST_LOG=debug logs every request.
A first minute is in docs/control-plane.md. The same as a library, with faults at will and a record of
all requests, is the crate control-plane.";

/// A small Kubernetes control plane in one process: an API server, the volume controller, a
/// scheduler, Jobs and garbage collection, to try and to test storage controllers against.
///
/// It speaks plain HTTP without authentication, so keep it on loopback. Everything is in memory, and
/// gone when it ends, on SIGINT or SIGTERM; it removes its kubeconfig then.
#[derive(Debug, Parser)]
#[command(name = "control-plane", version, after_help = AFTER)]
struct Args {
    /// Where to write a kubeconfig that points here; a file that is somebody else's stays, and is an
    /// error
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Register a node of this name, Ready, with the usual labels
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    node: Option<String>,

    /// One more label of that node; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "node", help_heading = "Node")]
    node_label: Vec<(String, String)>,

    /// How often the controllers look at everything again
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "15", help_heading = "Controllers")]
    resync: Duration,

    /// Offer a volume that becomes available to waiting claims at once, not at the next resync
    /// (which is when the real controller does)
    #[arg(long, help_heading = "Controllers")]
    eager_rebind: bool,

    /// The first wait after a failed container or pod of a Job; it doubles with each failure
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", help_heading = "Controllers")]
    back_off: Duration,

    /// Really recycle and delete volumes of type hostPath, below this directory alone: what is in
    /// theirs is lost. Recycling is a pod's work, and so needs --node. Without it every such volume
    /// is refused
    #[arg(long, value_name = "DIR", value_parser = below, help_heading = "Controllers")]
    host_paths: Option<HostPaths>,

    /// No controllers at all: an API server alone
    #[arg(long, help_heading = "Controllers", conflicts_with_all = ["node", "resync", "eager_rebind", "back_off", "host_paths", "processes"])]
    no_controllers: bool,

    /// Run the pods of Jobs as processes of this machine (there is no isolation), and keep what they
    /// write in this directory, where kubectl logs finds it as long as there is the pod; otherwise
    /// pods only seem to run
    #[arg(long, value_name = "DIR", help_heading = "Pods")]
    processes: Option<PathBuf>,

    /// A program of a container image by its path there, and where it is on this machine; may be
    /// given several times
    #[arg(long, value_name = "PATH=FILE", value_parser = pair, requires = "processes", help_heading = "Pods")]
    program: Vec<(String, String)>,

    /// Changes kept per type; a watch from before them is told to list again (410)
    #[arg(long, value_name = "COUNT", default_value_t = Store::DEFAULT_HISTORY, help_heading = "Watches")]
    history: usize,

    /// How often a quiet watch gets a bookmark
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60", help_heading = "Watches")]
    bookmarks: Duration,
}

impl From<Args> for Options {
    fn from(args: Args) -> Self {
        let labels = args.node_label.into_iter().collect();
        let programs = args.program.into_iter();
        let programs = programs.map(|(image, here)| (image.into(), here.into()));
        Self {
            listen: args.listen,
            kubeconfig: Some(args.kubeconfig),
            node: args.node.map(|name| NodeOptions { name, labels }),
            resync: args.resync,
            eager_rebind: args.eager_rebind,
            back_off: args.back_off,
            processes: args.processes.map(|logs| ProcessOptions {
                programs: programs.collect(),
                logs,
            }),
            host_paths: args.host_paths,
            controllers: !args.no_controllers,
            history: args.history,
            bookmarks: args.bookmarks,
            ..Self::default()
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(io::stderr)
        .init();
    let kubeconfig = args.kubeconfig.display().to_string();
    // Before anything can be left behind.
    let signals = Signals::new();
    let control_plane = match ControlPlane::start(args.into()) {
        Ok(control_plane) => control_plane,
        Err(error) => {
            eprintln!("control-plane: {}", explain(&error));
            return ExitCode::FAILURE;
        }
    };
    let url = control_plane.url();
    // Whoever does not read this any more is served all the same.
    let _ = writeln!(
        io::stdout(),
        "listening on {url}\nexport KUBECONFIG={kubeconfig}"
    );
    match signals.map(Signals::wait) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control-plane: cannot wait for SIGINT and SIGTERM: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What ends the program.
struct Signals {
    runtime: tokio::runtime::Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        drop(entered);
        Ok(Self {
            runtime,
            interrupt,
            terminate,
        })
    }

    fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
        });
    }
}

/// What happened, and what to do about it.
fn explain(error: &StartError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let remedy = match error {
        StartError::Listen { .. } => {
            "\nIf another control plane listens there, use that one or end it; \
             otherwise give --listen another address, or port 0 for any free one."
        }
        StartError::Kubeconfig { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            "\nIt stays as it is. Give --kubeconfig a file that does not exist yet; \
             if this one is of no use any more, remove it."
        }
        StartError::Kubeconfig { .. } => {
            "\nGive --kubeconfig a file in a directory that exists and that you may write to."
        }
        StartError::Node { .. } => {
            "\nGive --node and --node-label what Kubernetes takes for the name and labels of a node."
        }
        StartError::Thread(_) => "",
    };
    format!("{error}{}{remedy}", cause.unwrap_or_default())
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it has to be two words with = between them".to_owned()),
    }
}

fn below(directory: &str) -> Result<HostPaths, BadRoot> {
    HostPaths::below(directory)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    match seconds {
        Some(Ok(duration)) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("it has to be a number of seconds, at least 0.001".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_fit_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let arguments = ["control-plane", "--kubeconfig", "k"];
        let defaults = Options::from(Args::parse_from(arguments));
        let library = Options {
            kubeconfig: Some("k".into()),
            ..Options::default()
        };
        assert_eq!(format!("{defaults:?}"), format!("{library:?}"));
    }
}
