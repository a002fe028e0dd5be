//! The HTTP server: metrics and probes.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;

use super::election::Leadership;
use super::metrics::Metrics;
use super::pulse::Pulse;
use crate::server::{exposition, probe};

/// What the handlers answer from.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Of the election; `None` without one.
    pub election: Option<Arc<Pulse>>,
    /// Of the work, while we are the leader.
    pub work: Arc<Pulse>,
    /// Whether we are.
    pub leadership: Leadership,
    /// All metrics.
    pub metrics: Arc<Metrics>,
}

impl Shared {
    fn healthy(&self) -> Result<&'static str, &'static str> {
        match &self.election {
            Some(election) if !election.is_felt() => Err("the election makes no progress"),
            _ if !self.leadership.is_held() => Ok("follower"),
            _ if self.work.is_felt() => Ok("leader"),
            _ => Err("the work makes no progress"),
        }
    }

    fn ready(&self) -> Result<&'static str, &'static str> {
        if !self.leadership.is_held() {
            Ok("follower")
        } else if self.metrics.is_synced() {
            Ok("leader")
        } else {
            Err("Nodes and PersistentVolumes have not been listed yet")
        }
    }
}

/// Serves until the process ends.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(listener: TcpListener, metrics_path: &str, shared: Shared) -> io::Result<()> {
    let app = Router::new()
        .route(
            "/healthz",
            get(async |State(shared): State<Shared>| probe(shared.healthy())),
        )
        .route(
            "/ready",
            get(async |State(shared): State<Shared>| probe(shared.ready())),
        )
        .route(metrics_path, get(show_metrics))
        .with_state(shared);
    axum::serve(listener, app).await
}

async fn show_metrics(State(shared): State<Shared>) -> Response {
    shared
        .metrics
        .leader
        .set(shared.leadership.is_held().into());
    exposition(&shared.metrics.gather())
}
