//! The provisioner of a node: constructs its parts, and runs them until a stop signal.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::api_server::{self, client_of};
use super::links;
use crate::args::{ApiServer, ConfigDir, Environment, Run};
use crate::cleanup::table::ProcTable;
use crate::cleanup::{CleanupContext, ControllerState, LocalHost};
use crate::cluster::{ApiError, Cluster};
use crate::config::{self, Files, Loaded, Shown};
use crate::controller::{self, Periods, Reloads, unix_time};
use crate::host::kubelet::KubeletDir;
use crate::host::mark::StateDir;
use crate::host::mounts::MountTable;
use crate::host::protection::{FEATURES, unprotected};
use crate::isolation;
use crate::log;
use crate::metrics::Metrics;
use crate::names::{LINK_DIR, provisioner_name};
use crate::plan::Settings;
use crate::plan::job_object::{JobSource, UDEV};
use crate::report::Reporter;
use crate::retry;
use crate::server;
use crate::status::{Pass, Status};
use crate::view::NodeView;

/// The time limit for stopping the cleaners, and for writing the last events.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a pass may take before `/healthz` fails: in periods, and the minimum.
const PASS_TIMEOUT_PERIODS: u32 = 9;
const MIN_PASS_TIMEOUT: Duration = Duration::from_mins(1);

/// A usage or configuration error: exit code 2. A retry cannot succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`UsageError`] for a usage or configuration error; other errors may be transient.
#[allow(clippy::too_many_lines, reason = "the wiring, in one piece and in order")]
pub async fn run(args: Run, environment: Environment) -> Result<()> {
    let stopped = stop_signal()?;
    // Before anything that can fail.
    let link_dir = Path::new(LINK_DIR);
    let found = links::remove_all(link_dir).context("removing the links of an earlier process")?;
    let node_name = environment.require_node_name().map_err(UsageError)?;
    if environment.namespace_defaulted {
        tracing::warn!("MY_NAMESPACE is not set; using {:?}", environment.namespace);
    }
    let (files, loaded) = load(&args.config)?;
    log::set_level(loaded.config.log_level);
    let metrics = Arc::new(Metrics::new().context("registering the metrics")?);
    metrics.config_last_reload_successful.set(1);
    metrics.config_last_reload_timestamp.set(unix_time());

    let cluster = Cluster::new(
        client_of(api_server::config(&ApiServer::default()).await?)?,
        Arc::clone(&metrics),
    );
    let installation = environment.installation.clone();
    let listener = listen(&args.server.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz, /ready and /status", args.server.metrics_path);

    let table = Arc::new(ProcTable::new(Instant::now()));
    let state_directory = state_directory(&environment)?;
    // A class with devices would take in a disk whose mark is not there any more.
    let has_devices = |it: &Arc<config::Class>| it.devices.is_some();
    let keeps_all = loaded.config.classes.values().any(has_devices);
    if !keeps_all && let Err(error) = state_directory.prune() {
        tracing::warn!("old marks stay in the state directory: {error}");
    }
    let links = links::open(link_dir, found, &loaded.config, environment.in_pod);
    let kubelet = KubeletDir::new(&args.kubelet.kubelet_dir, environment.pod_uid.clone());
    let unprotected = unprotected(&state_directory, &kubelet);
    for feature in FEATURES {
        let is_on = unprotected.iter().all(|off| off.feature != feature);
        let gauge = metrics.protection.with_label_values(&[feature]);
        gauge.set(is_on.into());
    }
    let (pass, passes) = watch::channel(Arc::new(Pass {
        node: node_name.clone(),
        unprotected: unprotected.into_iter().map(|off| off.text).collect(),
        ..Pass::default()
    }));
    let status = Status {
        pass: passes,
        table: Arc::clone(&table),
        permissions: Arc::clone(&cluster.permissions),
        origin: Arc::clone(&cluster.origin),
        state: state_directory.clone(),
        pass_timeout: (args.discovery_period * PASS_TIMEOUT_PERIODS).max(MIN_PASS_TIMEOUT),
    };
    let metrics_path = args.server.metrics_path.clone();
    let http = server::serve(listener, &metrics_path, status, Arc::clone(&metrics));

    let mut started = None;
    let work = async {
        let node = own_node(&cluster, &node_name).await?;
        let has_marks = state_directory.is_open();
        let mut pod = own_pod(&environment, &node_name);
        pod.uid = pod.uid.filter(|_| environment.is_pod_known);
        cluster.origin.compare(&pod, has_marks);
        until_answered("our cluster", || cluster.ensure_known()).await?;
        let settings = Settings::of(&loaded, 1, installation, cluster.origin.uid());
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
        let reporter = Reporter::new(&cluster, &provisioner, pod).with_host(&node.name);
        started = Some(reporter.clone());
        let wake = Arc::new(Notify::new());
        let job_source = Arc::new(JobSource {
            namespace: environment.namespace.clone(),
            image: environment.job_image.clone(),
            pull_secrets: environment.job_pull_secrets.clone(),
            has_udev: Path::new(UDEV).is_dir(),
            state_directory: environment.state_directory.clone().filter(|_| has_marks),
        });
        let (send, readings) = watch::channel(None);
        let woken = Arc::clone(&wake);
        let notify = move |reading| {
            send.send_replace(Some(Arc::new(reading)));
            woken.notify_one();
        };
        let (dir, period) = (args.config.config, args.config_sync_period);
        tokio::spawn(config::watch(dir.clone(), files.clone(), period, notify));
        let reloads = Reloads {
            dir,
            readings,
            in_force: files,
            shown: Shown::at_start(&settings.config),
            node_isolation: args.node_isolation,
            faults: Vec::new(),
        };
        let (state, known_state) =
            watch::channel(ControllerState { settings, node, occupied: Arc::default() });
        let context = CleanupContext {
            cluster,
            state: known_state,
            host: Arc::new(LocalHost::new(kubelet, state_directory, links)),
            quiet_period: args.release_quiet_period,
            table: Arc::clone(&table),
            wake,
            reporter: reporter.clone(),
            metrics: Arc::clone(&metrics),
            jobs: job_source,
        };
        let periods =
            Periods { discovery: args.discovery_period, absence: args.takeover_after, has_marks };
        controller::run(context, state, reloads, pass, periods).await;
        anyhow::Ok(())
    };
    let result = tokio::select! {
        biased;
        done = work => done,
        served = http => served.context("the HTTP server ended"),
        name = stopped => {
            tracing::info!("{name}: stopping; the next process repeats interrupted cleanups, and Jobs continue");
            Ok(())
        }
    };
    table.cancel_all();
    let idle = async {
        while table.is_running() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, idle).await;
    if let Some(reporter) = started {
        reporter.flush(SHUTDOWN_TIMEOUT).await;
    }
    result
}

/// Reads the configuration, and logs its warnings and faults.
///
/// # Errors
/// [`UsageError`] when it cannot be read or parsed.
pub fn load(dir: &ConfigDir) -> Result<(Files, Loaded), UsageError> {
    let files = config::read_dir(&dir.config).map_err(UsageError)?;
    let loaded = config::from_files(&files).map_err(UsageError)?;
    for warning in &loaded.warnings {
        tracing::warn!("configuration: {warning}");
    }
    for fault in &loaded.faults {
        tracing::error!("configuration: {fault}");
    }
    Ok((files, loaded))
}

/// Listens on `--listen-address`. Without a host, on all addresses.
pub(super) async fn listen(address: &str) -> Result<TcpListener, UsageError> {
    let bound = if address.starts_with(':') {
        // The IPv6 wildcard also serves IPv4, but the kernel may have no IPv6.
        let bound = TcpListener::bind(format!("[::]{address}"));
        bound.or_else(|_| TcpListener::bind(format!("0.0.0.0{address}"))).await
    } else {
        TcpListener::bind(address).await
    };
    bound.map_err(|error| {
        UsageError(format!(
            "cannot listen on {address}: {error}; write --listen-address as [HOST]:PORT, such as :8080"
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

/// Reads our Node. An unknown name is a [`UsageError`].
async fn own_node(cluster: &Cluster, name: &str) -> Result<NodeView, UsageError> {
    let found = until_answered("our Node", || cluster.node(name)).await;
    let unknown = |_| {
        UsageError(format!(
            "there is no Node {name:?}; MY_NODE_NAME must be the name of this node's object (spec.nodeName by the downward API)"
        ))
    };
    NodeView::from_metadata(&found.map_err(unknown)?).map_err(UsageError)
}

/// Repeats a read until the API server answers: with the object, or that there is none.
async fn until_answered<T>(
    what: &str,
    read: impl AsyncFn() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    loop {
        match read().await {
            Err(error) if !matches!(error, ApiError::NotFound) => {
                tracing::warn!(%error, "reading {what} failed; trying again in {:?}", retry::START);
            }
            answer => return answer,
        }
        sleep(retry::START).await;
    }
}

/// Opens the state directory, if one is configured. Without one, devices have no marks.
///
/// # Errors
/// When the mount table cannot be read.
pub(super) fn state_directory(environment: &Environment) -> Result<StateDir> {
    let Some(path) = &environment.state_directory else {
        return Ok(StateDir::default());
    };
    let opened = StateDir::open(Path::new(path), environment.in_pod, &MountTable::read()?);
    Ok(opened.unwrap_or_else(|why| {
        tracing::error!("STATE_DIRECTORY: {why}; the PVs of devices are protected without marks");
        StateDir::default()
    }))
}

/// Catches the signals that stop the process, from now on. The future is the name of the first one.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = &'static str>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn address_without_a_host_is_every_address() {
        let listener = listen(":0").await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
        for address in ["127.0.0.1:0", "localhost:0"] {
            let listener = listen(address).await.unwrap();
            assert!(listener.local_addr().unwrap().ip().is_loopback());
        }
        for address in ["8080", ":http", "nowhere", ""] {
            let error = listen(address).await.unwrap_err().to_string();
            assert!(error.contains("--listen-address"), "{error}");
        }
    }
}
