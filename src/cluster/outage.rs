//! Waits until an unreachable API server of our cluster answers, with about one probe per second for all watches.
//!
//! The probe also shows whether etcd was restored: its version is then lower than one that a watch has shown. A watch
//! that resumed from a later version would show no change up to it.

use std::sync::atomic::Ordering;

use kube::api::ListParams;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::pvs::PVS;
use super::{Cluster, TIME_LIMIT};
use crate::retry;

/// An API server that starts denies everything at first, so the first error responses are no answer.
const MAX_REFUSALS: usize = 3;

/// Whether a request failed with its connection: refused, reset, or closed within the response.
pub(crate) fn is_unreachable(error: &kube::Error) -> bool {
    use kube::Error::{HyperError, ReadEvents, Service};
    matches!(error, HyperError(_) | ReadEvents(_) | Service(_))
}

impl Cluster {
    /// Waits, after a failed connection, until the API server answers. One of the waiting watches probes for all.
    pub(crate) async fn until_reachable(&self) {
        let failed = Instant::now();
        self.origin.doubt("the connection failed");
        let mut answered = self.answered.lock().await;
        let mut refusals = 0;
        while answered.is_none_or(|at| at < failed) {
            sleep(retry::OUTAGE + retry::OUTAGE_JITTER.mul_f64(fastrand::f64())).await;
            // A watch that listed another cluster would show every object as gone.
            if self.ensure_known().await.is_err() {
                continue;
            }
            let is_answered = match timeout(TIME_LIMIT, self.find_restore()).await {
                Ok(Err(error)) if !is_unreachable(&error) => {
                    refusals += 1;
                    // The next request of the watch handles the error.
                    refusals > MAX_REFUSALS
                }
                answer => matches!(answer, Ok(Ok(()))),
            };
            if is_answered {
                *answered = Some(Instant::now());
                self.outages.send_modify(|ended| *ended += 1);
            }
        }
    }

    /// Only a list from etcd proves a restore: a cache of the API server may lag.
    async fn find_restore(&self) -> kube::Result<()> {
        let first = ListParams::default().limit(1);
        let version = self.pvs().list_metadata(&first).await?.metadata;
        if let Some(version) = number(version.resource_version.as_ref())
            && version < self.newest_pv.fetch_min(version, Ordering::Relaxed)
        {
            self.restores.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// How many outages have ended.
    pub(crate) fn outages(&self) -> watch::Receiver<u64> {
        self.outages.subscribe()
    }

    /// How often etcd was restored.
    pub(crate) fn restores(&self) -> u64 {
        self.restores.load(Ordering::Relaxed)
    }

    /// Records the version of an object that a watch has shown.
    pub(crate) fn has_seen(&self, resource: &str, version: Option<&String>) {
        if let Some(version) = number(version).filter(|_| resource == PVS) {
            self.newest_pv.fetch_max(version, Ordering::Relaxed);
        }
    }
}

fn number(version: Option<&String>) -> Option<u64> {
    version?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use kube::Client;
    use serde_json::json;

    use crate::metrics::Metrics;

    use super::*;

    fn list(version: &str) -> (StatusCode, String) {
        let list = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "resourceVersion": version }, "items": [],
        });
        (StatusCode::OK, list.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_fail_together_share_one_probe() {
        let denied = || (StatusCode::FORBIDDEN, String::new());
        for (answer, requests, restores) in [(list("7"), 1, 1), (list("8"), 1, 0), (denied(), 4, 0)]
        {
            let probes = Arc::new(AtomicUsize::new(0));
            let probe = {
                let probes = Arc::clone(&probes);
                move || {
                    probes.fetch_add(1, Ordering::Relaxed);
                    std::future::ready(answer)
                }
            };
            let server = Router::new().route("/api/v1/persistentvolumes", get(probe));
            let metrics = Arc::new(Metrics::new().unwrap());
            let cluster = Cluster::new(Client::new(server, "default"), metrics);
            cluster.has_seen(PVS, Some(&"8".to_owned()));
            let begun = Instant::now();
            futures::future::join_all((0..5).map(|_| cluster.until_reachable())).await;
            assert_eq!(probes.load(Ordering::Relaxed), requests);
            assert!(begun.elapsed() >= retry::OUTAGE);
            // A connection that fails after that answer probes again. The restored version is known.
            sleep(Duration::from_millis(1)).await;
            cluster.until_reachable().await;
            assert_eq!(probes.load(Ordering::Relaxed), 2 * requests);
            assert_eq!(cluster.restores(), restores);
        }
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
