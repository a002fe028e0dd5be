//! The provisioner of a node: constructs its parts, and runs them until a stop signal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::ClientBuilder;
use kube::{Client, Config as ClientConfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use crate::args::{Args, Environment, ListenAddress};
use crate::cleanup::LocalHost;
use crate::cleanup::table::ProcTable;
use crate::cluster::{ApiError, Cluster, retries};
use crate::config::{self, Files, LoadError, Loaded, Shown};
use crate::controller::{self, Parts, Reloads, unix_time};
use crate::host::kubelet::KubeletDir;
use crate::isolation;
use crate::log;
use crate::metrics::Metrics;
use crate::names::provisioner_name;
use crate::plan::job_object::JobSource;
use crate::plan::{NO_JOB_IMAGE, Settings};
use crate::report::Reporter;
use crate::server;
use crate::status::{Pass, Status};
use crate::view::NodeView;

/// The pause between attempts to read our Node at start.
const START_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The time limit for stopping the cleaners, and for writing the last events.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of requests that can wait to be sent, as in the buffer of the client itself.
const REQUEST_BACKLOG: usize = 1024;
/// How long a pass may take before `/healthz` fails: in periods, and the minimum.
const PASS_TIMEOUT_PERIODS: u32 = 3;
const MIN_PASS_TIMEOUT: Duration = Duration::from_mins(1);

/// A usage or configuration error: exit code 2. A retry cannot succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`UsageError`] for a usage or configuration error; other errors may be transient.
#[allow(
    clippy::too_many_lines,
    reason = "the wiring, in one piece and in order"
)]
pub async fn run(args: Args, environment: Environment) -> Result<()> {
    // One instance, since another one would not receive a signal that this one has received.
    let mut signals = StopSignals::new()?;
    let node_name = environment
        .require_node_name()
        .map_err(|error| UsageError(error.to_string()))?;
    if environment.namespace_defaulted {
        tracing::warn!("MY_NAMESPACE is not set; using {:?}", environment.namespace);
    }
    let (files, loaded) = read(&args)?;
    log::set_level(loaded.config.log_level);
    let metrics = Arc::new(Metrics::new().context("registering the metrics")?);
    metrics.config_last_reload_successful.set(1);
    metrics.config_last_reload_timestamp.set(unix_time());

    let cluster = Cluster::new(client().await?, Arc::clone(&metrics));
    let settings = Settings::of(&loaded, 1);
    let listener = listen(&args.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz, /ready and /status", args.metrics_path);

    let table = Arc::new(ProcTable::new(Instant::now()));
    let (pass, passes) = watch::channel(Arc::new(Pass {
        node: node_name.into(),
        ..Pass::default()
    }));
    let status = Status {
        pass: passes,
        table: Arc::clone(&table),
        permissions: Arc::clone(cluster.permissions()),
        pass_timeout: (args.discovery_period * PASS_TIMEOUT_PERIODS).max(MIN_PASS_TIMEOUT),
    };
    let metrics_path = args.metrics_path.clone();
    let http = server::serve(listener, &metrics_path, status, Arc::clone(&metrics));

    let work = async {
        let node = own_node(&cluster, node_name, &mut signals).await?;
        let provisioner =
            provisioner_name(&node.name, &node.uid, settings.config.use_node_name_only);
        tracing::info!(
            provisioner,
            node = node.name,
            hostname = node.hostname,
            "serving this node"
        );
        if args.node_isolation {
            isolation::check(Some(&node), &settings.config).map_err(UsageError)?;
        }
        let pod = own_pod(&environment, &provisioner);
        let reporter = Reporter::start(&cluster, &provisioner, pod);
        let wake = Arc::new(Notify::new());
        let job_source = Arc::new(JobSource {
            namespace: environment.namespace.clone(),
            image: environment.job_image.clone(),
            pull_secrets: environment.job_pull_secrets.clone(),
        });
        if settings.config.use_job_for_cleaning && job_source.image.is_none() {
            tracing::error!("{NO_JOB_IMAGE}");
        }
        let (send, readings) = watch::channel(None);
        let woken = Arc::clone(&wake);
        let notify = move |reading| {
            send.send_replace(Some(Arc::new(reading)));
            woken.notify_one();
        };
        config::watch(
            args.config.clone(),
            files.clone(),
            args.config_sync_period,
            notify,
        )
        .context("starting the thread that reads the configuration")?;
        let reloads = Reloads {
            dir: args.config.clone(),
            readings,
            in_force: files,
            warnings: loaded.warnings,
            shown: Shown::at_start(&settings.config),
            node_isolation: args.node_isolation,
            faults: Vec::new(),
            unsuited: false,
        };
        let kubelet = KubeletDir::new(&args.kubelet_dir, environment.pod_uid.clone());
        let parts = Parts {
            cluster,
            host: Arc::new(LocalHost::new(kubelet)),
            node,
            settings,
            reloads,
            reporter: reporter.clone(),
            table: Arc::clone(&table),
            metrics: Arc::clone(&metrics),
            wake,
            pass,
            period: args.discovery_period,
            quiet_period: args.release_quiet_period,
            job_source,
        };
        tokio::select! {
            biased;
            () = controller::run(parts) => {}
            name = signals.received() => tracing::info!("{name}: stopping; the next process repeats interrupted cleanups, and Jobs continue"),
        }
        table.cancel_all();
        let idle = async {
            while table.is_at_work() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, idle).await;
        reporter.flush(SHUTDOWN_TIMEOUT).await;
        anyhow::Ok(())
    };
    tokio::select! {
        biased;
        done = work => done,
        served = http => served.context("the HTTP server ended"),
    }
}

/// Reads the configuration, and logs its warnings and faults.
///
/// # Errors
/// [`UsageError`] when it cannot be read or parsed.
pub fn load(args: &Args) -> Result<Loaded> {
    Ok(read(args)?.1)
}

fn read(args: &Args) -> Result<(Files, Loaded), UsageError> {
    let usage_error = |error: LoadError| UsageError(crate::errors::chain(&error));
    let files = config::read_dir(&args.config).map_err(usage_error)?;
    let loaded = config::from_files(&files).map_err(usage_error)?;
    for warning in &loaded.warnings {
        tracing::warn!("configuration: {warning}");
    }
    for fault in &loaded.faults {
        tracing::error!("configuration: {fault}");
    }
    Ok((files, loaded))
}

/// A client of the cluster in the environment.
///
/// # Errors
/// [`UsageError`] if the environment has none.
pub async fn client() -> Result<Client> {
    client_of(infer().await?)
}

/// The client configuration in the environment.
pub(super) async fn infer() -> Result<ClientConfig> {
    let config = ClientConfig::infer().await.map_err(|error| {
        UsageError(format!(
            "no API server is configured: {}; run in a pod with a service account, or set KUBECONFIG",
            crate::errors::chain(&error)
        ))
    })?;
    Ok(config)
}

/// Listens on `--listen-address`.
pub(super) async fn listen(address: &ListenAddress) -> Result<TcpListener, UsageError> {
    let candidates = address.candidates().map_err(|error| {
        UsageError(format!(
            "--listen-address {address} cannot be used: {error}"
        ))
    })?;
    server::bind(&candidates).await.map_err(|error| {
        UsageError(format!(
            "cannot listen: {error}; choose another --listen-address"
        ))
    })
}

/// The Pod of this process, for events. `default_name` is used if its name is unknown.
pub(super) fn own_pod(environment: &Environment, default_name: &str) -> ObjectReference {
    let name = environment.pod_name.as_deref().unwrap_or(default_name);
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(environment.namespace.clone()),
        name: Some(name.to_owned()),
        uid: environment.pod_uid.clone(),
        ..ObjectReference::default()
    }
}

/// A client of this cluster, with our retry policy instead of the default one.
pub(super) fn client_of(mut config: ClientConfig) -> Result<Client> {
    config.default_retry = false;
    let retries = retries().context("creating the API client")?;
    let client = ClientBuilder::try_from(config).context("creating the API client")?;
    // The retry layer requires a service that can be cloned.
    let client = client.with_layer(&BufferLayer::new(REQUEST_BACKLOG));
    Ok(client.with_layer(&RetryLayer::new(retries)).build())
}

/// Reads our Node, and retries until the API server answers. An unknown name is a [`UsageError`].
async fn own_node(cluster: &Cluster, name: &str, signals: &mut StopSignals) -> Result<NodeView> {
    tokio::select! {
        biased;
        node = until_read(cluster, name) => node,
        signal = signals.received() => anyhow::bail!("{signal} before the API server answered"),
    }
}

async fn until_read(cluster: &Cluster, name: &str) -> Result<NodeView> {
    loop {
        let error = match cluster.node(name).await {
            Ok(metadata) => match NodeView::from_metadata(&metadata) {
                Ok(node) => return Ok(node),
                Err(fault) => return Err(UsageError(fault.to_string()).into()),
            },
            Err(ApiError::NotFound) => {
                let text = format!(
                    "there is no Node {name:?}; MY_NODE_NAME must be the name of this node's object (spec.nodeName by the downward API)"
                );
                return Err(UsageError(text).into());
            }
            Err(error) => error,
        };
        tracing::warn!(node = name, %error, "reading our Node failed; trying again in {START_RETRY_PAUSE:?}");
        tokio::time::sleep(START_RETRY_PAUSE).await;
    }
}

/// The signals that stop the process.
pub(super) struct StopSignals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl StopSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn received(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
