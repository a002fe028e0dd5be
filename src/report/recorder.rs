//! Writes events to the core API, one at a time, and retries transient errors.
//!
//! A repeated event within six minutes increments the count of the first one. The recorder remembers a bounded
//! number of events, each by a hash and a name.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{BACKLOG, Message};
use crate::backoff::Backoff;
use crate::cluster::{ApiError, Cluster};

const EVENTS: &str = "events";
/// How long an event is retried: long enough for the upgrade of a control plane.
const RETRY_LIMIT: Duration = Duration::from_mins(5);
/// The pauses between retries of all events that failed.
const RETRY_PAUSES: Backoff = Backoff {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
};
/// How long a repeated event increments the count of the first one.
const SERIES_WINDOW: Duration = Duration::from_mins(6);
/// How many written events are remembered, at about 200 bytes each. Further ones are written without a count.
const MAX_REMEMBERED: usize = 512;

pub(super) struct Recorder {
    cluster: Cluster,
    /// The written events by [`key`].
    written: HashMap<u64, Written>,
    /// The events to retry, and when each was first tried.
    failed: Vec<(Box<Event>, Instant)>,
}

struct Written {
    name: String,
    count: i32,
    at: Instant,
}

/// A hash of object, reason and message: equal for a repeated event.
fn key(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    let object = &event.involved_object;
    (&object.uid, &object.name, &event.reason, &event.message).hash(&mut hasher);
    hasher.finish()
}

impl Recorder {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            written: HashMap::new(),
            failed: Vec::new(),
        }
    }

    /// Runs until all senders are gone.
    pub(super) async fn serve(mut self, mut receive: mpsc::Receiver<Message>) {
        let (mut retries, mut retry_at) = (0, Instant::now());
        loop {
            tokio::select! {
                biased;
                () = sleep_until(retry_at), if !self.failed.is_empty() => {
                    self.retry().await;
                    retries += 1;
                    retry_at = Instant::now() + RETRY_PAUSES.pause(retries);
                }
                message = receive.recv() => match message {
                    None => return,
                    Some(Message::Event(event)) => {
                        if self.failed.is_empty() {
                            retries = 0;
                            retry_at = Instant::now() + RETRY_PAUSES.pause(retries);
                        }
                        self.attempt(event, Instant::now()).await;
                    }
                    Some(Message::Flush(done)) => {
                        self.retry().await;
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    async fn retry(&mut self) {
        for (event, since) in std::mem::take(&mut self.failed) {
            self.attempt(event, since).await;
        }
    }

    /// Writes an event, which was first tried at `since`. One that fails, as in a namespace that is being deleted,
    /// delays no other.
    async fn attempt(&mut self, event: Box<Event>, since: Instant) {
        let Err(error) = self.write(&event).await else {
            return;
        };
        let is_over = since.elapsed() >= RETRY_LIMIT || self.failed.len() >= BACKLOG;
        if error.is_passing() && !is_over {
            self.failed.push((event, since));
            return;
        }
        tracing::debug!(%error, "an event could not be written");
        self.cluster.metrics().events_failed_total.inc();
    }

    async fn write(&mut self, event: &Event) -> Result<(), ApiError> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.cluster.client().clone(), namespace);
        let (key, now) = (key(event), self.cluster.now());
        self.written.retain(|_, it| it.at.elapsed() < SERIES_WINDOW);
        if let Some(before) = self.written.get_mut(&key) {
            let count = before.count + 1;
            let patch = Patch::Merge(json!({ "count": count, "lastTimestamp": Time(now) }));
            let params = PatchParams::default();
            let patched = api.patch(&before.name, &params, &patch);
            match self.cluster.limited(EVENTS, "patch", patched).await {
                // The event has expired or was deleted, so it is created again.
                Err(ApiError::NotFound) => {}
                answer => {
                    answer?;
                    (before.count, before.at) = (count, Instant::now());
                    return Ok(());
                }
            }
        }
        let object = event.involved_object.name.as_deref().unwrap_or("unknown");
        let name = format!("{object}.{:x}", now.as_nanosecond());
        let mut event = event.clone();
        event.metadata.name = Some(name.clone());
        (event.first_timestamp, event.last_timestamp) = (Some(Time(now)), Some(Time(now)));
        event.count = Some(1);
        let params = PostParams::default();
        let created = api.create(&params, &event);
        self.cluster.limited(EVENTS, "create", created).await?;
        if self.written.len() < MAX_REMEMBERED {
            let at = Instant::now();
            let count = 1;
            self.written.insert(key, Written { name, count, at });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::http::{Method, StatusCode};
    use kube::Client;

    use crate::metrics::Metrics;

    use super::*;

    /// A recorder, and the methods of the requests that its API server has answered.
    fn recorder() -> (Recorder, Arc<Mutex<Vec<Method>>>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let answer = move |method: Method| {
            seen.lock().unwrap().push(method);
            std::future::ready((StatusCode::CREATED, json!({ "metadata": {} }).to_string()))
        };
        let server = Router::new().fallback(answer);
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        (Recorder::new(cluster), requests)
    }

    fn event(text: &str) -> Event {
        let event = json!({
            "metadata": { "namespace": "default" }, "involvedObject": { "name": "pv" },
            "reason": "VolumeMissing", "message": text,
        });
        serde_json::from_value(event).unwrap()
    }

    #[tokio::test]
    async fn repeated_event_increments_its_count() {
        let (mut recorder, requests) = recorder();
        for text in ["one", "one", "two"] {
            recorder.write(&event(text)).await.unwrap();
        }
        let expected = [Method::POST, Method::PATCH, Method::POST];
        assert_eq!(*requests.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn remembered_events_are_bounded() {
        let (mut recorder, requests) = recorder();
        for number in 0..=MAX_REMEMBERED {
            recorder.write(&event(&number.to_string())).await.unwrap();
        }
        assert_eq!(recorder.written.len(), MAX_REMEMBERED);
        requests.lock().unwrap().clear();
        for text in ["0", &MAX_REMEMBERED.to_string()] {
            recorder.write(&event(text)).await.unwrap();
        }
        assert_eq!(*requests.lock().unwrap(), [Method::PATCH, Method::POST]);
    }
}
