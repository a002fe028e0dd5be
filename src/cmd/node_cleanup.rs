//! `node-cleanup`: runs once per cluster and cleans up after nodes that are gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Config;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::api_server::{self, client_of};
use super::run::{SHUTDOWN_TIMEOUT, UsageError, listen, own_pod, stop_signal};
use crate::args::{ApiServer, Environment, NodeCleanup};
use crate::cluster::Cluster;
use crate::metrics::Metrics as SharedMetrics;
use crate::node_cleanup::controller::Controller;
use crate::node_cleanup::metrics::Metrics;
use crate::node_cleanup::watches::View;
use crate::report::{Notices, Reporter};
use crate::server::{routes, serve_routes};

/// The name of the reporting instance, and of the pod if its name is unknown.
const NAME: &str = "node-cleanup";
/// The longest silence of a healthy loop.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_mins(3);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`UsageError`] for an error in the command line or the kubeconfig.
pub async fn run(mut args: NodeCleanup, environment: Environment) -> Result<()> {
    let names = args.storageclass_names.iter().map(|name| name.trim());
    let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
    args.storageclass_names = names.collect();
    let text = "--storageclass-names is empty: name the StorageClasses whose PersistentVolumes are deleted with their nodes";
    ensure!(!args.storageclass_names.is_empty(), UsageError(text.into()));
    let drivers: BTreeSet<_> = args.csi_drivers.iter().map(|it| &it.name).collect();
    let text = "--csi-drivers names a CSI driver twice: remove one of the two entries";
    let is_unique = drivers.len() == args.csi_drivers.len();
    ensure!(is_unique, UsageError(text.into()));
    let shared = SharedMetrics::new().context("registering the metrics")?;
    let cluster = Cluster::new(client_of(config(&args).await?)?, Arc::new(shared));
    let metrics = Arc::new(Metrics::new().context("registering the metrics")?);

    let listener = listen(&args.server.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz and /ready", args.server.metrics_path);
    let (heartbeat, received) = watch::channel(Instant::now());
    let is_alive = move || {
        let is_alive = received.borrow().elapsed() < HEARTBEAT_TIMEOUT;
        let error = "the loop makes no progress";
        is_alive.then_some(()).ok_or_else(|| error.to_owned())
    };
    let (synced, shown, asked) = (metrics.clone(), metrics.clone(), cluster.clone());
    let is_synced = move || {
        let error = "Nodes and PersistentVolumes are not listed yet";
        let is_synced = synced.synced.get() != 0;
        is_synced.then_some(()).ok_or_else(|| error.to_owned())
    };
    let gather = move || shown.gather(&asked.metrics, &asked.permissions);
    let app = routes(&args.server.metrics_path, is_alive, is_synced, gather);
    let served = serve_routes(listener, app);

    tracing::info!(
        delay = ?args.pvc_deletion_delay,
        requests_per_second = args.requests_per_second,
        classes = ?args.storageclass_names,
        "cleaning up after nodes that are gone"
    );
    let view = View::default();
    let watches = view.follow(&cluster, &args);
    let period = Duration::from_secs(1) / u32::from(args.requests_per_second.get());
    let mut requests = interval(period);
    requests.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut controller = Controller {
        cluster: cluster.clone(),
        reporter: Reporter::new(&cluster, NAME, own_pod(&environment, NAME)),
        metrics,
        args: args.clone(),
        requests,
        heartbeat,
        confirmed: HashMap::new(),
        memories: HashMap::new(),
        unclear: BTreeMap::new(),
        permissions: Notices::default(),
    };
    tokio::select! {
        () = controller.run(&view) => {}
        () = watches => {}
        served = served.into_future() => return served.context("the HTTP server ended"),
        name = stop_signal()? => tracing::info!("{name}: stopping"),
    }
    controller.reporter.flush(SHUTDOWN_TIMEOUT).await;
    Ok(())
}

/// The API server, and the credentials for it.
async fn config(args: &NodeCleanup) -> Result<Config> {
    let of_file = ApiServer { kubeconfig: args.kubeconfig.clone(), context: None };
    let mut config = api_server::config(&of_file).await?;
    if let Some(url) = &args.kube_api_endpoint {
        config.cluster_url = url.clone();
    }
    Ok(config)
}
