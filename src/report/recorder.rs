//! Writes events to the core API, one at a time, and retries transient errors.
//!
//! A repeated event has the name of the first one, and increments its count.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Reporter;
use crate::backoff::Backoff;
use crate::cluster::ApiError;
use crate::names::fnv1a_64;

const EVENTS: &str = "events";
/// How long an event is retried: long enough for the upgrade of a control plane.
const RETRY_LIMIT: Duration = Duration::from_mins(5);
/// The pauses between retries of an event.
const RETRY_PAUSES: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
};

/// The name of an event: the same for the same object, reason and message.
fn name(event: &Event) -> String {
    let object = &event.involved_object;
    let parts = [&object.uid, &object.name, &event.reason, &event.message];
    let bytes = parts.map(|part| part.as_deref().unwrap_or_default().bytes().chain([0]));
    let name = object.name.as_deref().unwrap_or("unknown");
    format!("{name}.{:016x}", fnv1a_64(bytes.into_iter().flatten()))
}

impl Reporter {
    /// Writes an event. One that fails, as in a namespace that is being deleted, delays no other.
    pub(super) async fn record(&self, event: Event) {
        let begun = Instant::now();
        for failures in 0.. {
            let Err(error) = self.write(&event).await else {
                return;
            };
            // A change: it expired between two requests.
            if !error.is_retriable() || begun.elapsed() >= RETRY_LIMIT {
                tracing::debug!(%error, "an event could not be written");
                break;
            }
            sleep(RETRY_PAUSES.pause(failures)).await;
        }
        self.cluster.metrics.events_failed_total.inc();
    }

    async fn write(&self, event: &Event) -> Result<(), ApiError> {
        let _turn = self.turn.lock().await;
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.cluster.client.clone(), namespace);
        let (name, now) = (name(event), Time(self.cluster.now()));
        let mut first = event.clone();
        first.metadata.name = Some(name.clone());
        (first.first_timestamp, first.last_timestamp) = (Some(now.clone()), Some(now.clone()));
        first.count = Some(1);
        let params = PostParams::default();
        let created = api.create(&params, &first);
        match self.cluster.limited(EVENTS, "create", created).await {
            Err(ApiError::Conflict) => {}
            created => return created.map(drop),
        }
        let merge = async |change: Value| {
            let (params, change) = (PatchParams::default(), Patch::Merge(change));
            let patched = api.patch(&name, &params, &change);
            self.cluster.limited(EVENTS, "patch", patched).await
        };
        // The answer has the count. No role of the provisioner permits to read events.
        let before = merge(json!({ "lastTimestamp": now })).await?;
        let count = before.count.unwrap_or(1) + 1;
        merge(json!({ "count": count })).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::http::{Method, StatusCode};
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::Client;

    use crate::cluster::Cluster;
    use crate::metrics::Metrics;

    use super::*;

    fn event(text: &str) -> Event {
        let event = json!({
            "metadata": { "namespace": "default" }, "involvedObject": { "name": "pv" },
            "reason": "VolumeMissing", "message": text,
        });
        serde_json::from_value(event).unwrap()
    }

    fn reporter(server: Router) -> Reporter {
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        Reporter::new(&cluster, "", ObjectReference::default())
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_expires_while_it_is_repeated_is_created_again() {
        let answers = Arc::new(Mutex::new(vec![201, 404, 409]));
        let left = Arc::clone(&answers);
        let server = Router::new().fallback(move || {
            let code = left.lock().unwrap().pop().unwrap();
            let reason = if code == 409 { "AlreadyExists" } else { "" };
            let body =
                json!({ "reason": reason, "code": code, "involvedObject": {}, "metadata": {} });
            let code = StatusCode::from_u16(code).unwrap();
            std::future::ready((code, body.to_string()))
        });
        reporter(server).record(event("one")).await;
        assert!(answers.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn repeated_event_increments_its_count() {
        let requests = Arc::<Mutex<Vec<(Method, Value)>>>::default();
        let seen = Arc::clone(&requests);
        let server = Router::new().fallback(move |method: Method, body: String| {
            let body: Value = serde_json::from_str(&body).unwrap();
            let mut seen = seen.lock().unwrap();
            let is_known =
                |(_, it): &(_, Value)| it["metadata"]["name"] == body["metadata"]["name"];
            let exists = method == Method::POST && seen.iter().any(is_known);
            seen.push((method, body));
            let conflict = json!({ "status": "Failure", "reason": "AlreadyExists", "code": 409 });
            let found = json!({ "metadata": {}, "involvedObject": {}, "count": 4 });
            std::future::ready(if exists {
                (StatusCode::CONFLICT, conflict.to_string())
            } else {
                (StatusCode::OK, found.to_string())
            })
        });
        let reporter = reporter(server);
        for text in ["one", "two", "one"] {
            reporter.write(&event(text)).await.unwrap();
        }
        let requests = requests.lock().unwrap();
        let methods: Vec<_> = requests.iter().map(|(method, _)| method.as_str()).collect();
        assert_eq!(methods, ["POST", "POST", "POST", "PATCH", "PATCH"]);
        assert_eq!(requests.last().unwrap().1, json!({ "count": 5 }));
    }
}
