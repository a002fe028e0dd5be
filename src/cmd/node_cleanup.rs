//! `node-cleanup`: runs once or twice per cluster, and removes what is left of nodes that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::run::{Misuse, Told, client_of, infer, listen, own_pod};
use crate::args::{Environment, NodeCleanup};
use crate::cluster::{Cluster, chain};
use crate::metrics::Metrics as SharedMetrics;
use crate::node_cleanup::act::Worker;
use crate::node_cleanup::controller::Controller;
use crate::node_cleanup::election::{Election, Leadership, Terms, identity};
use crate::node_cleanup::limiter::Limiter;
use crate::node_cleanup::metrics::Metrics;
use crate::node_cleanup::pulse::Pulse;
use crate::node_cleanup::server::{self as http, Shared};
use crate::report::Reporter;

/// What to call ourselves where the pod's name is not known.
const UNNAMED: &str = "node-cleanup";
/// How long the last events have to be written at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`Misuse`] for what only an administrator can mend; anything else may pass.
pub async fn run(args: NodeCleanup, environment: Environment) -> Result<()> {
    let classes = class_names(&args.storageclass_names)?;
    let namespace = args.leader_elect_lease_namespace.clone();
    let namespace = namespace.unwrap_or_else(|| environment.namespace.clone());
    if args.leader_elect
        && args.leader_elect_lease_namespace.is_none()
        && environment.namespace_defaulted
    {
        tracing::warn!("MY_NAMESPACE is not set; the lease is in {namespace:?}");
    }
    let shared = Arc::new(SharedMetrics::new().context("making the metrics")?);
    let cluster = Cluster::new(client_of(config(&args).await?)?, Arc::clone(&shared));
    let permissions = Arc::clone(cluster.permissions());
    let metrics = Metrics::new(Arc::clone(&shared), Arc::clone(&permissions));
    let metrics = Arc::new(metrics.context("making the metrics")?);

    let listener = listen(&args.listen_address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving {}, /healthz and /ready", args.metrics_path);

    let pod = environment.pod_name.as_deref().unwrap_or(UNNAMED);
    let identity = identity(pod);
    let about_us = own_pod(&environment, UNNAMED);
    let reporter = Reporter::start(
        cluster.client().clone(),
        &format!("node-cleanup-{identity}"),
        about_us,
        shared,
        permissions,
    );
    let beats = args.leader_elect.then(|| Arc::new(Pulse::default()));
    let (mut election, leadership) = match &beats {
        None => (None, Leadership::always()),
        Some(beats) => {
            let terms = Terms {
                namespace,
                name: args.leader_elect_lease_name.clone(),
                identity,
            };
            let (election, leadership) = Election::new(cluster.clone(), terms, Arc::clone(beats));
            (Some(election), leadership)
        }
    };
    let work = Arc::new(Pulse::default());
    let served = http::serve(
        listener,
        &args.metrics_path,
        Shared {
            election: beats,
            work: Arc::clone(&work),
            leadership: leadership.clone(),
            metrics: Arc::clone(&metrics),
        },
    );
    tracing::info!(
        delay = ?args.pvc_deletion_delay,
        requests_per_second = args.requests_per_second,
        "cleaning up after nodes that are gone, for the classes {}",
        Vec::from_iter(&classes).iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ")
    );
    let worker = Arc::new(Worker {
        cluster,
        reporter: reporter.clone(),
        metrics,
        limiter: Limiter::new(args.requests_per_second),
        leadership: leadership.clone(),
        classes,
        delay: args.pvc_deletion_delay,
        confirmed: tokio::sync::Mutex::default(),
    });

    let mut told = Told::new()?;
    tokio::select! {
        () = lead(worker, leadership, &args, work) => {}
        () = take_part(election.as_mut()) => {}
        served = served => return served.context("the HTTP server ended"),
        name = told.stop_wanted() => tracing::info!("{name}: stopping"),
    }
    // Nothing is under way any more, so that the next leader may begin at once.
    if let Some(election) = &mut election {
        election.resign().await;
    }
    reporter.flush(FAREWELL).await;
    Ok(())
}

/// Works whenever we are the leader.
async fn lead(
    worker: Arc<Worker>,
    mut leadership: Leadership,
    args: &NodeCleanup,
    pulse: Arc<Pulse>,
) {
    loop {
        leadership.won().await;
        pulse.beat();
        // A follower watches nothing: it costs a request every two seconds, and no memory.
        let controller = Controller::new(
            Arc::clone(&worker),
            args.stale_pv_discovery_interval,
            args.worker_threads.get().into(),
            Arc::clone(&pulse),
        );
        tokio::select! {
            () = controller.run() => {}
            () = leadership.lost() => {}
        }
    }
}

async fn take_part(election: Option<&mut Election>) {
    match election {
        Some(election) => election.run().await,
        None => std::future::pending().await,
    }
}

/// Which API server, and as whom.
async fn config(args: &NodeCleanup) -> Result<Config> {
    let mut config = match &args.kubeconfig {
        None => infer().await?,
        Some(path) => {
            let misuse = |error: &KubeconfigError| {
                let why = chain(error);
                Misuse(format!("--kubeconfig {}: {why}", path.display()))
            };
            let file = Kubeconfig::read_from(path).map_err(|error| misuse(&error))?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| misuse(&error))?
        }
    };
    if let Some(url) = &args.kube_api_endpoint {
        config.cluster_url = url
            .parse()
            .map_err(|error| Misuse(format!("--kube-api-endpoint {url:?} is no URL: {error}")))?;
    }
    Ok(config)
}

fn class_names(given: &[String]) -> Result<BTreeSet<String>, Misuse> {
    let names = given.iter().map(|name| name.trim());
    let names: BTreeSet<_> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(Misuse(
            "--storageclass-names is empty: name the StorageClasses whose PersistentVolumes go when their nodes do, such as --storageclass-names=fast-disks,slow-disks".into(),
        ));
    }
    Ok(names)
}
