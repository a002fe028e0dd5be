//! `control-plane`: an API server with volume controllers, for a person at a terminal.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use clap::Parser;
use control_plane::{ControlPlane, HostPaths, NodeOptions, Options};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// A small Kubernetes control plane in one process: API server, volume binder, scheduler.
///
/// It listens on plain HTTP without authentication, so keep it on loopback. It keeps everything in
/// memory and ends on SIGINT or SIGTERM; the kubeconfig is removed then. Set RUST_LOG=debug to see
/// every request.
#[derive(Debug, Parser)]
#[command(name = "control-plane", version)]
struct Args {
    /// Where to write a kubeconfig that points here
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,

    /// Register a node of this name, Ready, with the usual labels
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Offer a volume that becomes available to waiting claims at once, not at the next resync
    #[arg(long)]
    eager_rebind: bool,

    /// Really recycle and delete volumes of type hostPath, below this directory alone: what is in
    /// theirs is lost. Without it every such volume is refused
    #[arg(long, value_name = "DIR")]
    host_paths: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let Args {
        kubeconfig,
        node,
        listen,
        eager_rebind,
        host_paths,
    } = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .init();
    // Before anything can be left behind.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = runtime
        .block_on(async {
            Ok::<_, std::io::Error>((
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            ))
        })
        .context("cannot listen to signals")?;
    let control_plane = ControlPlane::start(Options {
        listen,
        kubeconfig: Some(kubeconfig.clone()),
        node: node.map(NodeOptions::new),
        eager_rebind,
        host_paths: host_paths.map(HostPaths::below).transpose()?,
        ..Options::default()
    })?;
    println!("listening on {}", control_plane.url());
    println!("export KUBECONFIG={}", kubeconfig.display());
    runtime.block_on(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    Ok(())
}
