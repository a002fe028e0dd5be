//! The HTTP server: metrics and probes.

use std::future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::cluster::Cluster;
use crate::server::{exposition, probe};

/// The longest silence of a healthy loop.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_mins(3);

/// Serves until the process ends. `heartbeat` is when the loop last made progress.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics_path: &str,
    heartbeat: watch::Receiver<Instant>,
    metrics: Arc<Metrics>,
    cluster: Cluster,
) -> io::Result<()> {
    let synced = Arc::clone(&metrics);
    let answer = |is_fine: bool, why| future::ready(probe(is_fine.then_some("ok").ok_or(why)));
    let healthy = move || {
        let is_alive = heartbeat.borrow().elapsed() < HEARTBEAT_TIMEOUT;
        answer(is_alive, "the loop makes no progress")
    };
    let ready = move || {
        let unlisted = "Nodes and PersistentVolumes are not listed yet";
        answer(synced.is_synced(), unlisted)
    };
    let show = move || {
        let families = metrics.gather(cluster.metrics(), cluster.permissions());
        future::ready(exposition(&families))
    };
    let app = Router::new()
        .route("/healthz", get(healthy))
        .route("/ready", get(ready))
        .route(metrics_path, get(show));
    axum::serve(listener, app).await
}
