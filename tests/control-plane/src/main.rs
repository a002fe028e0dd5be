//! `control-plane`: an API server with volume controllers, for a person at a terminal.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use control_plane::{
    BadRoot, ControlPlane, HostPaths, NodeOptions, Options, ProcessOptions, Store,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const AFTER: &str = "\
No data is touched (but see --host-paths): a path need not exist. RUST_LOG=debug logs every request.
A first minute is in docs/develop/control-plane.md. The same as a library, with faults at will and a record of
all requests, is the crate control-plane.";

/// A small Kubernetes control plane in one process: an API server, the volume controller, a
/// scheduler, Jobs and garbage collection, to try and to test storage controllers against.
///
/// It speaks plain HTTP without authentication, so keep it on loopback. Everything is in memory, and
/// gone when it ends, on SIGINT or SIGTERM; it removes its kubeconfig then.
#[derive(Debug, Parser)]
#[command(name = "control-plane", version, after_help = AFTER)]
struct Args {
    /// Where to write a kubeconfig that points here; another file at this path is not replaced
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

    /// Changes kept per type; a watch from before them has to list again (410)
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
            processes: args
                .processes
                .map(|logs| ProcessOptions { programs: programs.collect(), logs }),
            host_paths: args.host_paths,
            controllers: !args.no_controllers,
            history: args.history,
            bookmarks: args.bookmarks,
            ..Self::default()
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            eprintln!("control-plane: {error}{}", cause.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGINT or SIGTERM.
async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(io::stderr)
        .init();
    // Before the kubeconfig is written, so that it is always removed.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let kubeconfig = args.kubeconfig.display().to_string();
    let control_plane = ControlPlane::start(args.into())?;
    let url = control_plane.url();
    // A closed standard output does not end it.
    let _ = writeln!(io::stdout(), "listening on {url}\nexport KUBECONFIG={kubeconfig}");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
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
