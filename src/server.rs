//! The HTTP server: metrics, probes and status. It answers from what is known and never waits for a
//! disk.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, TextEncoder};
use tokio::net::TcpListener;

use crate::clean::table::ProcState;
use crate::metrics::Metrics;
use crate::status::Status;

/// What the handlers answer from.
#[derive(Clone, Debug)]
struct Shared {
    status: Status,
    metrics: Arc<Metrics>,
}

/// Binds the first address that can be bound.
///
/// # Errors
/// The last address' error, with the address.
pub async fn bind(candidates: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last = io::Error::other("the address names no host");
    for address in candidates {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Serves until the process ends.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    metrics_path: &str,
    status: Status,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    let app = Router::new()
        .route(
            "/healthz",
            get(async |State(shared): State<Shared>| probe(shared.status.healthy())),
        )
        .route(
            "/ready",
            get(async |State(shared): State<Shared>| probe(shared.status.ready())),
        )
        .route("/status", get(show_status))
        .route(metrics_path, get(show_metrics))
        .with_state(Shared { status, metrics });
    axum::serve(listener, app).await
}

fn probe(verdict: Result<(), String>) -> Response {
    match verdict {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn show_status(State(shared): State<Shared>) -> Response {
    let mut text = format!("{:#}", shared.status.document());
    text.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn show_metrics(State(Shared { status, metrics }): State<Shared>) -> Response {
    read_live_state(&status, &metrics);
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&metrics.registry.gather(), &mut text) {
        Ok(()) => (
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Some gauges are read off what they describe when somebody looks.
#[allow(clippy::cast_possible_wrap, reason = "counts of volumes")]
fn read_live_state(status: &Status, metrics: &Metrics) {
    let counts = status.table.stats();
    metrics.proctable_running.set(counts.running as i64);
    metrics.proctable_succeeded.set(counts.succeeded as i64);
    metrics.proctable_failed.set(counts.failed as i64);
    metrics.cleanup_waiting.set(counts.waiting as i64);
    metrics.cleanup_progress.reset();
    for entry in status.table.entries() {
        let pace = entry.progress.pace(entry.since.elapsed());
        if entry.state == ProcState::Running
            && let Some(ratio) = pace.ratio()
        {
            metrics
                .cleanup_progress
                .with_label_values(&[&entry.pv])
                .set(ratio);
        }
    }
    for ((resource, verb), missing) in status.permissions.seen() {
        metrics
            .missing_permission
            .with_label_values(&[resource, verb])
            .set(missing.into());
    }
}
