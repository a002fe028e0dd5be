//! The HTTP server: metrics and probes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::server::{exposition, probe};

/// The longest silence of a healthy loop.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_mins(3);

/// The state that the handlers read.
#[derive(Clone, Debug)]
pub struct Observed {
    /// When the loop last made progress.
    pub heartbeat: watch::Receiver<Instant>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
}

impl Observed {
    fn healthy(&self) -> Result<&'static str, &'static str> {
        let is_alive = self.heartbeat.borrow().elapsed() < HEARTBEAT_TIMEOUT;
        is_alive.then_some("ok").ok_or("the loop makes no progress")
    }

    fn ready(&self) -> Result<&'static str, &'static str> {
        let is_synced = self.metrics.is_synced();
        is_synced
            .then_some("ok")
            .ok_or("Nodes and PersistentVolumes are not listed yet")
    }
}

/// Serves until the process ends.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics_path: &str,
    observed: Observed,
) -> io::Result<()> {
    type Shared = State<Observed>;
    let app = Router::new()
        .route("/healthz", get(async |it: Shared| probe(it.healthy())))
        .route("/ready", get(async |it: Shared| probe(it.ready())))
        .route(
            metrics_path,
            get(async |it: Shared| exposition(&it.metrics.gather())),
        )
        .with_state(observed);
    axum::serve(listener, app).await
}
