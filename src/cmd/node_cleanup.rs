//! `node-cleanup`: runs once per cluster and cleans up after nodes that are gone.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::run::{StopSignals, UsageError, client_of, infer, listen, own_pod};
use crate::args::{Environment, NodeCleanup};
use crate::cluster::Cluster;
use crate::errors::chain;
use crate::metrics::Metrics as SharedMetrics;
use crate::node_cleanup::controller::Controller;
use crate::node_cleanup::executor::Executor;
use crate::node_cleanup::metrics::Metrics;
use crate::node_cleanup::report::Report;
use crate::node_cleanup::server;
use crate::node_cleanup::watches::View;
use crate::report::Reporter;

/// The name of the reporting instance, and of the pod if its name is unknown.
const NAME: &str = "node-cleanup";
/// The time limit for writing the last events.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`UsageError`] for an error in the command line or the kubeconfig.
pub async fn run(args: NodeCleanup, environment: Environment) -> Result<()> {
    let classes = class_names(&args.storageclass_names)?;
    let shared = SharedMetrics::new().context("registering the metrics")?;
    let cluster = Cluster::new(client_of(config(&args).await?)?, Arc::new(shared));
    let metrics = Arc::new(Metrics::new().context("registering the metrics")?);

    let listener = listen(&args.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz and /ready", args.metrics_path);
    let (heartbeat, received) = watch::channel(Instant::now());
    let served = server::serve(
        listener,
        &args.metrics_path,
        received,
        Arc::clone(&metrics),
        cluster.clone(),
    );

    let pod = own_pod(&environment, NAME);
    let reporter = Reporter::start(&cluster, NAME, pod);
    tracing::info!(
        delay = ?args.pvc_deletion_delay,
        requests_per_second = args.requests_per_second,
        ?classes,
        "cleaning up after nodes that are gone"
    );
    let view = View::default();
    let watches = view.follow(&cluster, &classes);
    let executor = Executor {
        cluster: cluster.clone(),
        reporter: reporter.clone(),
        metrics,
        classes: classes.clone(),
        delay: args.pvc_deletion_delay,
        request_gap: Duration::from_secs(1) / u32::from(args.requests_per_second.get()),
        next_request: Cell::new(Instant::now()),
        confirmed: tokio::sync::Mutex::default(),
    };
    let controller = Controller {
        executor,
        interval: args.stale_pv_discovery_interval,
        concurrency: args.worker_threads.get().into(),
        heartbeat,
        memories: HashMap::new(),
        report: Report::default(),
    };
    let mut signals = StopSignals::new()?;
    tokio::select! {
        () = controller.run(&view) => {}
        () = watches => {}
        served = served => return served.context("the HTTP server ended"),
        name = signals.received() => tracing::info!("{name}: stopping"),
    }
    reporter.flush(SHUTDOWN_TIMEOUT).await;
    Ok(())
}

/// The API server, and the credentials for it.
async fn config(args: &NodeCleanup) -> Result<Config> {
    let mut config = match &args.kubeconfig {
        None => infer().await?,
        Some(path) => read_kubeconfig(path).await.map_err(|error| {
            UsageError(format!(
                "--kubeconfig {}: {}",
                path.display(),
                chain(&error)
            ))
        })?,
    };
    if let Some(url) = &args.kube_api_endpoint {
        config.cluster_url = url.clone();
    }
    Ok(config)
}

async fn read_kubeconfig(path: &Path) -> Result<Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}

fn class_names(given: &[String]) -> Result<BTreeSet<String>, UsageError> {
    let names = given.iter().map(|name| name.trim().to_owned());
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(UsageError(
            "--storageclass-names is empty: name the StorageClasses whose PersistentVolumes are deleted with their nodes".into(),
        ));
    }
    Ok(names)
}
