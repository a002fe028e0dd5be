//! The HTTP server: metrics and probes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::cluster::Cluster;
use crate::server::routes;

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
    let is_healthy = move || {
        let is_alive = heartbeat.borrow().elapsed() < HEARTBEAT_TIMEOUT;
        let error = "the loop makes no progress";
        is_alive.then_some(()).ok_or_else(|| error.to_owned())
    };
    let is_ready = move || {
        let error = "Nodes and PersistentVolumes are not listed yet";
        let is_synced = synced.is_synced();
        is_synced.then_some(()).ok_or_else(|| error.to_owned())
    };
    let gather = move || metrics.gather(cluster.metrics(), cluster.permissions());
    axum::serve(listener, routes(metrics_path, is_healthy, is_ready, gather)).await
}
