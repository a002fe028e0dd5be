//! The HTTP server: metrics, probes and status. It answers from memory and never waits for a disk.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::proto::MetricFamily;
use prometheus::{TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::metrics::series::Series;
use crate::plan::{CleanupState, FOR_A_SLOT};
use crate::status::Status;

/// The state that the handlers read.
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
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    metrics_path: &str,
    status: Status,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    type Observed = State<Shared>;
    let app = Router::new()
        .route(
            "/healthz",
            get(async |it: Observed| probe(it.status.healthy().map(|()| "ok"))),
        )
        .route(
            "/ready",
            get(async |it: Observed| probe(it.status.ready().map(|()| "ok"))),
        )
        .route("/status", get(show_status))
        .route(metrics_path, get(show_metrics))
        .with_state(Shared { status, metrics });
    axum::serve(listener, app).await
}

/// The response to a probe: 200 with a text, or 503 with the reason.
pub(crate) fn probe(verdict: Result<impl Display, impl Display>) -> Response {
    match verdict {
        Ok(text) => (StatusCode::OK, format!("{text}\n")).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// Metrics in the text format of Prometheus.
pub(crate) fn exposition(families: &[MetricFamily]) -> Response {
    match TextEncoder::new().encode_to_string(families) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_status(State(shared): State<Shared>) -> Response {
    let text = format!("{:#}\n", shared.status.document());
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn show_metrics(State(Shared { status, metrics }): State<Shared>) -> Response {
    read_live_state(&status, &metrics);
    exposition(&metrics.registry.gather())
}

/// Sets the gauges whose values are computed at scrape time.
#[allow(clippy::cast_possible_wrap, reason = "counts of volumes")]
fn read_live_state(status: &Status, metrics: &Metrics) {
    let counts = status.table.stats();
    metrics.proctable_running.set(counts.running as i64);
    metrics.proctable_succeeded.set(counts.succeeded as i64);
    metrics.proctable_failed.set(counts.failed as i64);
    metrics.cleanup_waiting.set(counts.waiting as i64);
    metrics.ready.set(status.ready().is_ok().into());
    read_cleanups(status, metrics);
    metrics.set_missing(status.permissions.seen());
}

/// Sets the gauges of each cleanup, by PV.
fn read_cleanups(status: &Status, metrics: &Metrics) {
    let mut waiting = Series::default();
    let mut progress = Series::default();
    let mut stalled = Series::default();
    let mut failed_attempts = Series::default();
    for (pv, entry) in &status.table.by_pv() {
        let (pv, path) = (pv.as_str(), entry.cleanup.path.as_str());
        let lasted = entry.lasted(&status.table);
        match &entry.cleanup.state {
            CleanupState::Waiting { reason, .. } | CleanupState::Blocked { reason, .. } => {
                let for_permit = reason == FOR_A_SLOT;
                let reason = if for_permit { "Permit" } else { "InUse" };
                waiting.set([pv, path, reason], lasted.as_secs_f64());
            }
            CleanupState::Wiping | CleanupState::JobRunning { .. } => {
                if let Some(ratio) = entry.progress.pace(lasted).ratio() {
                    progress.set([pv], ratio);
                }
                stalled.set([pv, path], entry.progress.stalled().as_secs_f64());
            }
            CleanupState::Wiped { .. } | CleanupState::Released | CleanupState::Failed { .. } => {}
        }
        if entry.failures > 0 && entry.cleanup.state != CleanupState::Released {
            failed_attempts.set([pv, path], entry.failures.into());
        }
    }
    waiting.show(&metrics.cleanup_waiting_seconds);
    progress.show(&metrics.cleanup_progress);
    stalled.show(&metrics.cleanup_stalled_seconds);
    failed_attempts.show(&metrics.cleanup_failed_attempts);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::time::Instant;

    use crate::cleanup::NotifyAfter;
    use crate::cleanup::table::ProcTable;
    use crate::cluster::Permissions;
    use crate::plan::Track;
    use crate::status::Pass;
    use crate::types::HostPath;
    use crate::view::Tenancy;

    use super::*;

    /// The series of the metrics whose names start with `name`, without the common prefix.
    fn scrape(status: &Status, metrics: &Metrics, name: &str) -> Vec<String> {
        read_live_state(status, metrics);
        let text = TextEncoder::new()
            .encode_to_string(&metrics.registry.gather())
            .unwrap();
        let prefix = "local_volume_provisioner_";
        let series = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let named = series.filter(|line| line.starts_with(name));
        named.map(str::to_owned).collect()
    }

    fn status(pass: Pass) -> (Status, watch::Sender<Arc<Pass>>) {
        let (sender, pass) = watch::channel(Arc::new(pass));
        let status = Status {
            pass,
            table: Arc::new(ProcTable::new(Instant::now())),
            permissions: Arc::new(Permissions::default()),
            pass_timeout: Duration::from_mins(1),
        };
        (status, sender)
    }

    fn tenancy() -> Tenancy {
        Tenancy {
            pv_uid: "uid".into(),
            claim_uid: None,
        }
    }

    #[test]
    fn series_of_a_cleanup_end_with_its_state() {
        let metrics = Metrics::new().unwrap();
        let (status, _pass) = status(Pass::default());
        let table = &status.table;
        let waits = |reason: &str| CleanupState::Waiting {
            reason: reason.into(),
            job: None,
        };
        let track = |state| Track {
            tenancy: tenancy(),
            pv: "pv-1".into(),
            path: HostPath::from_api("/mnt/a").unwrap(),
            state,
            basis: 1,
        };
        let tenancy = tenancy();
        let cleanups = |name: &str| scrape(&status, &metrics, &format!("cleanup_{name}"));

        table.track(track(waits(FOR_A_SLOT)));
        let waiting = cleanups("waiting_seconds");
        let labels = "{path=\"/mnt/a\",pv=\"pv-1\",reason=\"Permit\"}";
        assert!(waiting[0].contains(labels), "{waiting:?}");
        let notify = Some(NotifyAfter::ShortUse);
        table.mark_blocked(&tenancy, "until it is unmounted", notify);
        let waiting = cleanups("waiting_seconds");
        assert!(
            waiting.len() == 1 && waiting[0].contains("InUse"),
            "{waiting:?}"
        );

        table.mark_wiping(&tenancy);
        let progress = table.get(&tenancy).unwrap().progress;
        progress.set_stalled(Duration::from_mins(2));
        assert_eq!(cleanups("waiting_seconds"), [""; 0]);
        let stalled = "cleanup_stalled_seconds{path=\"/mnt/a\",pv=\"pv-1\"} 120";
        assert_eq!(cleanups("stalled_seconds"), [stalled]);
        assert_eq!(cleanups("failed_attempts"), [""; 0]);

        table.mark_failed(&tenancy, "no", false);
        let once = ["cleanup_failed_attempts{path=\"/mnt/a\",pv=\"pv-1\"} 1"];
        assert_eq!(cleanups("stalled_seconds"), [""; 0]);
        assert_eq!(cleanups("failed_attempts"), once);
        // The count of failures survives the next attempt, and ends with a success.
        table.track(track(waits(FOR_A_SLOT)));
        assert_eq!(cleanups("failed_attempts"), once);
        table.mark_wiping(&tenancy);
        assert_eq!(cleanups("failed_attempts"), once);
        table.mark_released(&tenancy);
        assert_eq!(cleanups("failed_attempts"), [""; 0]);
    }

    #[test]
    fn ready_gauge_follows_readiness() {
        let metrics = Metrics::new().unwrap();
        let ended = Some(Instant::now());
        for (not_ready, expected) in [(vec![], "ready 1"), (vec!["why".to_owned()], "ready 0")] {
            let (status, _pass) = status(Pass {
                not_ready,
                ended,
                ..Pass::default()
            });
            assert_eq!(scrape(&status, &metrics, "ready"), [expected]);
        }
    }
}
