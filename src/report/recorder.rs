//! Writes events to the core API, one at a time, and retries transient errors and denied permissions.
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
use crate::cluster::ApiError;
use crate::names::fnv1a_64;
use crate::retry;

const EVENTS: &str = "events";
/// How long an event is retried: long enough for the upgrade of a control plane.
const RETRY_LIMIT: Duration = Duration::from_mins(5);

/// The name of an event: the same for the same node, object, reason and message.
fn name(event: &Event) -> String {
    let object = &event.involved_object;
    let host = event.source.as_ref().and_then(|it| it.host.clone());
    let parts = [&object.uid, &object.name, &event.reason, &event.message, &host];
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
            // A change: it expired between two requests. An API server that starts may deny every permission.
            let may_pass = error.is_retriable() || matches!(error, ApiError::Forbidden { .. });
            let pause = retry::EVENT.pause(failures);
            if !may_pass || begun.elapsed() + pause > RETRY_LIMIT {
                tracing::debug!(%error, "an event could not be written");
                break;
            }
            sleep(pause).await;
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

    /// Writes the events "one" and "two" at once to an API server that refuses "one" for a time with 403 and this text.
    /// Returns the answers in order, how long it took, and how many events are lost.
    async fn refused(text: &'static str, time: Duration) -> (Vec<(Value, u16)>, Duration, u64) {
        let answers = Arc::<Mutex<Vec<(Value, u16)>>>::default();
        let (seen, begun) = (Arc::clone(&answers), Instant::now());
        let server = Router::new().fallback(move |body: String| {
            let mut event: Value = serde_json::from_str(&body).unwrap();
            let message = event["message"].take();
            let is_refused = message == "one" && begun.elapsed() < time;
            let code = if is_refused { 403 } else { 201 };
            seen.lock().unwrap().push((message, code));
            let refusal = json!({ "reason": "Forbidden", "code": code, "message": text });
            let body = if is_refused { refusal } else { event };
            let code = StatusCode::from_u16(code).unwrap();
            std::future::ready((code, body.to_string()))
        });
        let reporter = reporter(server);
        let [one, two] = ["one", "two"].map(event);
        tokio::join!(reporter.record(one), reporter.record(two));
        let lost = reporter.cluster.metrics.events_failed_total.get();
        let answers = std::mem::take(&mut *answers.lock().unwrap());
        (answers, begun.elapsed(), lost)
    }

    const DENIED: &str = r#"events is forbidden: User "lvp" cannot create resource "events" in API group "" in the namespace "default""#;

    #[tokio::test(start_paused = true)]
    async fn denied_event_is_written_when_the_denial_has_passed() {
        let (answers, took, lost) = refused(DENIED, Duration::from_mins(1)).await;
        let [one, two] = ["one", "two"].map(Value::from);
        // The pauses: 0.5, 1, 2, 4, 8, and then 10 s.
        let mut expected = vec![(one.clone(), 403), (two, 201)];
        expected.extend(vec![(one.clone(), 403); 9]);
        expected.push((one, 201));
        assert_eq!((answers, lost), (expected, 0));
        assert!(took < Duration::from_secs(70), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_stays_denied_is_lost_after_five_minutes() {
        let (answers, took, lost) = refused(DENIED, Duration::MAX).await;
        assert_eq!((answers.len(), lost), (35, 1));
        assert!(took <= RETRY_LIMIT, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_is_refused_for_another_reason_is_not_retried() {
        let text = r#"events "pv" is forbidden: unable to create new content in namespace default because it is being terminated"#;
        let (answers, took, lost) = refused(text, Duration::from_secs(1)).await;
        let [one, two] = ["one", "two"].map(Value::from);
        assert_eq!((answers, lost), (vec![(one, 403), (two, 201)], 1));
        assert_eq!(took, Duration::ZERO);
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
