//! The HTTP server: metrics, probes and status. It answers from memory and never waits for a disk.

mod connections;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use prometheus::proto::MetricFamily;
use prometheus::{TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;

use crate::metrics::Metrics;
use crate::plan::CleanupState;
use crate::status::Status;

use connections::Connections;

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
    let (probed, asked, shown) = (status.clone(), status.clone(), status.clone());
    let gather = move || {
        let _alone = metrics.scrape.lock();
        read_live_state(&status, &metrics);
        metrics.registry.gather()
    };
    let document = async move || {
        let text = format!("{:#}\n", shown.document());
        ([(header::CONTENT_TYPE, "application/json")], text)
    };
    let (is_healthy, is_ready) = (move || probed.healthy(), move || asked.ready());
    let app = routes(metrics_path, is_healthy, is_ready, gather);
    serve_routes(listener, app.route("/status", get(document))).await
}

/// Serves the routes of any server of this program until the process ends.
pub(crate) async fn serve_routes(listener: TcpListener, routes: Router) -> io::Result<()> {
    raise_file_limit();
    axum::serve(Connections::of(listener), routes).await
}

/// Lets this process open as many files as it may: connections must not use up those that cleaning needs.
fn raise_file_limit() {
    let resource = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(resource).and_then(|(_, hard)| setrlimit(resource, hard, hard));
    if let Err(error) = raised {
        tracing::warn!("the limit of open files cannot be raised: {error}");
    }
}

/// The routes of every server of this program: probes and metrics.
pub(crate) fn routes(
    metrics_path: &str,
    is_healthy: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    is_ready: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    gather: impl Fn() -> Vec<MetricFamily> + Clone + Send + Sync + 'static,
) -> Router {
    let exposition = async move || {
        TextEncoder::new()
            .encode_to_string(&gather())
            .map(|text| ([(header::CONTENT_TYPE, TEXT_FORMAT)], text))
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    };
    Router::new()
        .route("/healthz", get(async move || probe(is_healthy())))
        .route("/ready", get(async move || probe(is_ready())))
        .route(metrics_path, get(exposition))
}

/// The response to a probe: 200, or 503 with the reason.
fn probe(verdict: Result<(), String>) -> impl IntoResponse {
    verdict.map(|()| "ok\n").map_err(|reason| (StatusCode::SERVICE_UNAVAILABLE, reason + "\n"))
}

/// Sets the gauges whose values are computed at scrape time: those of the cleanups, by state and by PV, and others.
fn read_live_state(status: &Status, metrics: &Metrics) {
    let waiting = &metrics.cleanup_waiting_seconds;
    let progress = &metrics.cleanup_progress;
    let stalled = &metrics.cleanup_stalled_seconds;
    let failed_attempts = &metrics.cleanup_failed_attempts;
    for gauges in [waiting, progress, stalled] {
        gauges.reset();
    }
    failed_attempts.reset();
    let (mut waits, mut runs, mut succeeded, mut failed) = (0, 0, 0, 0);
    for (pv, entry) in &status.table.by_pv() {
        let (pv, path) = (pv.as_str(), entry.cleanup.path.as_str());
        let lasted = entry.lasted(&status.table);
        match &entry.cleanup.state {
            state @ (CleanupState::Waiting { .. } | CleanupState::Blocked { .. }) => {
                waits += 1;
                let reason = match state {
                    CleanupState::Waiting { job: None, .. } => "Permit",
                    CleanupState::Waiting { job: Some(_), .. } => "Job",
                    _ => "InUse",
                };
                let series = waiting.with_label_values(&[pv, path, reason]);
                series.set(lasted.as_secs_f64());
            }
            CleanupState::Wiping | CleanupState::JobRunning { .. } => {
                runs += 1;
                if let Some(ratio) = entry.progress.pace(lasted).ratio() {
                    progress.with_label_values(&[pv]).set(ratio);
                }
                let series = stalled.with_label_values(&[pv, path]);
                series.set(entry.progress.stalled().as_secs_f64());
            }
            CleanupState::Wiped { .. } | CleanupState::Released => succeeded += 1,
            CleanupState::Failed { .. } => failed += 1,
        }
        if entry.failures > 0 && entry.cleanup.state != CleanupState::Released {
            let series = failed_attempts.with_label_values(&[pv, path]);
            series.set(entry.failures.into());
        }
    }
    metrics.cleanup_waiting.set(waits);
    metrics.proctable_running.set(runs);
    metrics.proctable_succeeded.set(succeeded);
    metrics.proctable_failed.set(failed);
    metrics.ready.set(status.ready().is_ok().into());
    metrics.set_missing(status.permissions.seen());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::time::Instant;

    use crate::cleanup::table::ProcTable;
    use crate::cluster::Permissions;
    use crate::escape::tenants;
    use crate::host::mark::StateDir;
    use crate::plan::{ClassReport, FOR_A_SLOT, Track, VolumeReport};
    use crate::status::Pass;
    use crate::types::HostPath;
    use crate::view::Tenancy;

    use super::*;

    /// The series of the metrics whose names start with `name`, without the common prefix.
    fn scrape(status: &Status, metrics: &Metrics, name: &str) -> Vec<String> {
        read_live_state(status, metrics);
        let text = TextEncoder::new().encode_to_string(&metrics.registry.gather()).unwrap();
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
            origin: Arc::default(),
            pass_timeout: Duration::from_mins(1),
            state: StateDir::default(),
        };
        (status, sender)
    }

    fn tenancy() -> Tenancy {
        Tenancy { pv_uid: "uid".into(), claim_uid: None }
    }

    fn track(state: CleanupState) -> Track {
        Track {
            tenancy: tenancy(),
            pv: "pv-1".into(),
            path: HostPath::from_api("/mnt/a").unwrap(),
            state,
            basis: 1,
        }
    }

    #[test]
    fn series_of_a_cleanup_end_with_its_state() {
        let metrics = Metrics::new().unwrap();
        let (status, _pass) = status(Pass::default());
        let table = &status.table;
        let waits = |reason: &str| CleanupState::Waiting { reason: reason.into(), job: None };
        let tenancy = tenancy();
        let cleanups = |name: &str| scrape(&status, &metrics, &format!("cleanup_{name}"));

        table.track(track(waits(FOR_A_SLOT)));
        let waiting = cleanups("waiting_seconds");
        let labels = "{path=\"/mnt/a\",pv=\"pv-1\",reason=\"Permit\"}";
        assert!(waiting[0].contains(labels), "{waiting:?}");
        let (reason, job) = ("for Job a/b".to_owned(), Some("a/b".to_owned()));
        table.track(track(CleanupState::Waiting { reason, job }));
        assert!(cleanups("waiting_seconds")[0].contains("reason=\"Job\""));
        table.mark_blocked(&tenancy, "until it is unmounted", Some(Duration::ZERO));
        let waiting = cleanups("waiting_seconds");
        assert!(waiting.len() == 1 && waiting[0].contains("InUse"), "{waiting:?}");

        table.mark_wiping(&tenancy);
        let progress = table.get(&tenancy).unwrap().progress;
        progress.set_stalled(Duration::from_mins(2));
        assert_eq!(cleanups("waiting_seconds"), [""; 0]);
        let stalled = "cleanup_stalled_seconds{path=\"/mnt/a\",pv=\"pv-1\"} 120";
        assert_eq!(cleanups("stalled_seconds"), [stalled]);
        assert_eq!(cleanups("failed_attempts"), [""; 0]);

        table.mark_failed(&tenancy, "no");
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
    fn answers_have_no_names_of_tenants() {
        let metrics = Metrics::new().unwrap();
        let because = |what: &str| format!("{what}: {}", tenants(b"secret"));
        let volume = VolumeReport {
            pv: Some("pv-1".into()),
            detail: Some(because("it holds")),
            ..VolumeReport::default()
        };
        let (status, _pass) = status(Pass {
            not_ready: vec![because("not ready")],
            degraded: vec![because("degraded")],
            classes: vec![ClassReport {
                name: "fast".into(),
                ready: false,
                faults: vec![because("fault")],
                volumes: vec![volume],
                ..ClassReport::default()
            }],
            ended: Some(Instant::now()),
            ..Pass::default()
        });
        status.table.track(track(CleanupState::Blocked {
            reason: because("in use"),
            notify_at: None,
            retry_at: Duration::MAX,
        }));
        let blocked = status.document().to_string();
        let metrics = scrape(&status, &metrics, "").join("\n");
        status.table.mark_failed(&tenancy(), &because("cannot remove"));
        let document = status.document().to_string();
        let ready = status.ready().unwrap_err();
        for (answer, shown) in [
            (&blocked, &["in use", "it holds", "not ready", "degraded", "fault"][..]),
            (&document, &["cannot remove"]),
            (&ready, &["not ready"]),
            (&metrics, &["pv-1"]),
        ] {
            assert!(!answer.contains("secret"), "{answer}");
            for shown in shown {
                assert!(answer.contains(shown), "{answer}");
            }
        }
    }

    #[test]
    fn ready_gauge_follows_readiness() {
        let metrics = Metrics::new().unwrap();
        let ended = Some(Instant::now());
        for (not_ready, expected) in [(vec![], "ready 1"), (vec!["why".to_owned()], "ready 0")] {
            let (status, _pass) = status(Pass { not_ready, ended, ..Pass::default() });
            assert_eq!(scrape(&status, &metrics, "ready"), [expected]);
        }
    }
}
