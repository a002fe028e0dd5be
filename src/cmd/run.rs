//! What the program does on every node: puts the parts together and runs until it is told to stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::ClientBuilder;
use kube::{Client, Config as ClientConfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use crate::act::Actor;
use crate::args::{Args, Environment, ListenAddress};
use crate::cache::{ClassCache, JobCache, NodeCache};
use crate::cleanup::table::ProcTable;
use crate::cleanup::{CleanupContext, ControllerState};
use crate::cluster::{ApiError, Cluster, retries};
use crate::config::{self, Files, LoadError, Loaded, Shown};
use crate::controller::{Controller, Reloads, unix_time};
use crate::host::kubelet::KubeletDir;
use crate::isolation;
use crate::log;
use crate::metrics::Metrics;
use crate::names::provisioner_name;
use crate::plan::job_object::JobSource;
use crate::plan::{NO_JOB_IMAGE, Occupied, Settings};
use crate::report::Reporter;
use crate::server;
use crate::status::{Pass, Status};
use crate::view::NodeView;

/// How long to wait between tries to read our Node at start.
const START_RETRY: Duration = Duration::from_secs(2);
/// How long the cleaners have to stop, and the last events to be written, at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How many requests may wait to be sent; the buffer of the client itself is as long.
const BACKLOG: usize = 1024;
/// How many periods the loop may be silent before `/healthz` says so, and how long at least.
const SILENT_PERIODS: u32 = 3;
const SILENCE: Duration = Duration::from_mins(1);

/// An error of the administrator's: exit code 2, and no use in trying again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`Misuse`] for what only an administrator can mend; anything else may pass.
#[allow(
    clippy::too_many_lines,
    reason = "the wiring, in one piece and in order"
)]
pub async fn run(args: Args, environment: Environment) -> Result<()> {
    let epoch = Instant::now();
    // One for all: another would not hear what this one has heard.
    let mut told = Told::new()?;
    let node_name = environment
        .require_node_name()
        .map_err(|error| Misuse(error.to_string()))?;
    if environment.namespace_defaulted {
        tracing::warn!(
            "MY_NAMESPACE is not set; taking {:?}",
            environment.namespace
        );
    }
    let (files, loaded) = read(&args)?;
    log::set_level(loaded.config.log_level);
    let metrics = Arc::new(Metrics::new().context("making the metrics")?);
    metrics.config_last_reload_successful.set(1);
    metrics.config_last_reload_timestamp.set(unix_time());

    let cluster = Cluster::new(client().await?, Arc::clone(&metrics));
    let settings = Settings::of(&loaded, 1);
    let listener = listen(&args.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz, /ready and /status", args.metrics_path);

    let table = Arc::new(ProcTable::new(epoch));
    let (pass, passes) = watch::channel(Arc::new(Pass {
        node: node_name.into(),
        ..Pass::default()
    }));
    let status = Status {
        pass: passes,
        table: Arc::clone(&table),
        permissions: Arc::clone(cluster.permissions()),
        pass_timeout: (args.discovery_period * SILENT_PERIODS).max(SILENCE),
    };
    let metrics_path = args.metrics_path.clone();
    let http = server::serve(listener, &metrics_path, status, Arc::clone(&metrics));

    let work = async {
        let node = own_node(&cluster, node_name, &mut told).await?;
        let provisioner =
            provisioner_name(&node.name, &node.uid, settings.config.use_node_name_only);
        tracing::info!(
            provisioner,
            node = node.name,
            hostname = node.hostname,
            "serving this node"
        );
        if args.node_isolation {
            isolation::check(Some(&node), &settings.config)
                .map_err(|refused| Misuse(refused.to_string()))?;
        }
        let pod = own_pod(&environment, &provisioner);
        let reporter = Reporter::start(&cluster, &provisioner, pod);
        let wake = Arc::new(Notify::new());
        let (state, known_state) = watch::channel(ControllerState {
            settings: settings.clone(),
            node: node.clone(),
            occupied: Arc::new(Occupied::default()),
            // Until the first pass has looked.
            paused: true,
        });
        let jobs = JobCache::new(&cluster, &environment.namespace, Arc::clone(&wake));
        let job_source = Arc::new(JobSource {
            namespace: environment.namespace.clone(),
            image: environment.job_image.clone(),
            pull_secrets: environment.job_pull_secrets.clone(),
        });
        if settings.config.use_job_for_cleaning && job_source.image.is_none() {
            tracing::error!("{NO_JOB_IMAGE}");
        }
        let context = Arc::new(CleanupContext {
            cluster: cluster.clone(),
            state: known_state,
            kubelet: Arc::new(KubeletDir::new(
                &args.kubelet_dir,
                environment.pod_uid.clone(),
            )),
            quiet_period: args.release_quiet_period,
            table: Arc::clone(&table),
            wake: Arc::clone(&wake),
            reporter: reporter.clone(),
            metrics: Arc::clone(&metrics),
            jobs: Arc::clone(&job_source),
        });
        let class_names = settings.config.classes.keys().cloned().collect();
        let (send, readings) = watch::channel(None);
        let woken = Arc::clone(&wake);
        let tell = move |reading| {
            send.send_replace(Some(Arc::new(reading)));
            woken.notify_one();
        };
        config::watch(&args.config, files.clone(), args.config_sync_period, tell)
            .context("starting the thread that watches the configuration")?;
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
        let controller = Controller {
            settings,
            reloads,
            node: NodeCache::start(&cluster, node, Arc::clone(&wake)),
            storage_classes: ClassCache::start(&cluster, class_names, Arc::clone(&wake)),
            cluster: cluster.clone(),
            actor: Actor::new(context, jobs.subscribe()),
            table: Arc::clone(&table),
            reporter: reporter.clone(),
            metrics: Arc::clone(&metrics),
            wake,
            state,
            pass,
            epoch,
            period: args.discovery_period,
            job_source,
        };
        tokio::select! {
            () = controller.run(jobs) => {}
            name = told.stop_wanted() => tracing::info!("{name}: stopping; volumes that are being cleaned here are cleaned anew by the next process, and Jobs go on"),
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
        done = work => done,
        served = http => served.context("the HTTP server ended"),
    }
}

/// Reads the configuration and says what is wrong with it.
///
/// # Errors
/// [`Misuse`] when nothing can be made of it.
pub fn load(args: &Args) -> Result<Loaded> {
    Ok(read(args)?.1)
}

fn read(args: &Args) -> Result<(Files, Loaded), Misuse> {
    let in_words = |error: LoadError| Misuse(crate::errors::chain(&error));
    let files = config::read_dir(&args.config).map_err(in_words)?;
    let loaded = config::from_files(&files).map_err(in_words)?;
    for warning in &loaded.warnings {
        tracing::warn!("configuration: {warning}");
    }
    for fault in &loaded.faults {
        tracing::error!("configuration: {fault}");
    }
    Ok((files, loaded))
}

/// A client of the cluster that the environment names.
///
/// # Errors
/// [`Misuse`] where it names none.
pub async fn client() -> Result<Client> {
    client_of(infer().await?)
}

/// The cluster that the environment names.
pub(super) async fn infer() -> Result<ClientConfig> {
    let config = ClientConfig::infer().await.map_err(|error| {
        Misuse(format!(
            "no cluster to talk to: {}; run in a pod with a service account, or set KUBECONFIG",
            crate::errors::chain(&error)
        ))
    })?;
    Ok(config)
}

/// Listens where `--listen-address` says.
pub(super) async fn listen(address: &ListenAddress) -> Result<TcpListener, Misuse> {
    let candidates = address.candidates().map_err(|error| {
        Misuse(format!(
            "--listen-address {address} cannot be used: {error}"
        ))
    })?;
    server::bind(&candidates).await.map_err(|error| {
        Misuse(format!(
            "cannot listen: {error}; choose another --listen-address"
        ))
    })
}

/// The Pod that this is, for events on it. Where its name is not known, `instead` stands for it.
pub(super) fn own_pod(environment: &Environment, instead: &str) -> ObjectReference {
    let name = environment.pod_name.as_deref().unwrap_or(instead);
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(environment.namespace.clone()),
        name: Some(name.to_owned()),
        uid: environment.pod_uid.clone(),
        ..ObjectReference::default()
    }
}

/// A client of this cluster, with retries of ours in place of its own.
pub(super) fn client_of(mut config: ClientConfig) -> Result<Client> {
    config.default_retry = false;
    let retries = retries().context("making the API client")?;
    let client = ClientBuilder::try_from(config).context("making the API client")?;
    // A retry requires a service that can be cloned.
    let client = client.with_layer(&BufferLayer::new(BACKLOG));
    Ok(client.with_layer(&RetryLayer::new(retries)).build())
}

/// Our Node, as soon as the API server answers. A name that it does not know is a mistake.
async fn own_node(cluster: &Cluster, name: &str, told: &mut Told) -> Result<NodeView> {
    tokio::select! {
        node = until_read(cluster, name) => node,
        signal = told.stop_wanted() => anyhow::bail!("{signal} before the API server answered"),
    }
}

async fn until_read(cluster: &Cluster, name: &str) -> Result<NodeView> {
    loop {
        let error = match cluster.node(name).await {
            Ok(metadata) => match NodeView::from_metadata(&metadata) {
                Ok(node) => return Ok(node),
                Err(fault) => return Err(Misuse(fault.to_string()).into()),
            },
            Err(ApiError::NotFound) => {
                let text = format!(
                    "there is no Node {name:?}; MY_NODE_NAME must be the name of this node's object (spec.nodeName by the downward API)"
                );
                return Err(Misuse(text).into());
            }
            Err(error) => error,
        };
        tracing::warn!(node = name, %error, "reading our Node failed; trying again in {START_RETRY:?}");
        tokio::time::sleep(START_RETRY).await;
    }
}

/// The signals that end the process.
pub(super) struct Told {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Told {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn stop_wanted(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
