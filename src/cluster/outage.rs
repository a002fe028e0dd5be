//! Waits until an unreachable API server answers, with about one probe per second for all watches.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, TIME_LIMIT};

/// The shortest pause before a probe, and the jitter on top: one probe per second on average, and the provisioners
/// of a cluster do not probe in step.
const PROBE_PAUSE: Duration = Duration::from_millis(500);
const JITTER_MILLIS: u64 = 1000;

/// Whether a request failed with its connection: refused, reset, or closed within the response.
pub(crate) fn is_unreachable(error: &kube::Error) -> bool {
    use kube::Error::{HyperError, ReadEvents, Service};
    matches!(error, HyperError(_) | ReadEvents(_) | Service(_))
}

impl Cluster {
    /// Waits, after a failed connection, until the API server answers. One of the waiting watches probes for all.
    pub(crate) async fn until_reachable(&self) {
        let failed = Instant::now();
        let mut answered = self.answered.lock().await;
        while answered.is_none_or(|at| at < failed) {
            let jitter = fastrand::u64(..JITTER_MILLIS);
            sleep(PROBE_PAUSE + Duration::from_millis(jitter)).await;
            // An error response is an answer too: the next request of the watch handles it.
            let probe = timeout(TIME_LIMIT, self.client.apiserver_version()).await;
            if probe.is_ok_and(|answer| !answer.is_err_and(|error| is_unreachable(&error))) {
                *answered = Some(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use kube::Client;

    use crate::metrics::Metrics;

    use super::*;

    #[tokio::test]
    async fn watches_that_fail_together_share_one_probe() {
        let probes = Arc::new(AtomicUsize::new(0));
        let probe = {
            let probes = Arc::clone(&probes);
            move || {
                probes.fetch_add(1, Ordering::Relaxed);
                // An answer, although an error.
                std::future::ready(StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        let server = Router::new().route("/version", get(probe));
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let begun = Instant::now();
        futures::future::join_all((0..5).map(|_| cluster.until_reachable())).await;
        assert_eq!(probes.load(Ordering::Relaxed), 1);
        assert!(begun.elapsed() >= PROBE_PAUSE);
        // A connection that fails after that answer probes again.
        cluster.until_reachable().await;
        assert_eq!(probes.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn only_failed_connections_are_probed() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(is_unreachable(&kube::Error::ReadEvents(reset())));
        assert!(is_unreachable(&kube::Error::Service(reset().into())));
        let denied = kube::core::Status::failure("no", "Forbidden").with_code(403);
        assert!(!is_unreachable(&kube::Error::Api(denied.boxed())));
    }
}
