//! Writes events to the core API, one at a time, and retries transient errors.
//!
//! A repeated event within six minutes increments the count of the first one. The recorder remembers a bounded
//! number of events, each by a hash and a name.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{BACKLOG, Message};
use crate::cluster::{ApiError, Cluster};

const EVENTS: &str = "events";
/// How long an event is retried: long enough for the upgrade of a control plane.
const RETRY_LIMIT: Duration = Duration::from_mins(5);
/// The first pause before a retry and the longest; each is twice the one before.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a repeated event increments the count of the first one.
const SERIES_WINDOW: Duration = Duration::from_mins(6);
/// How many written events are remembered, at about 200 bytes each. The oldest is evicted first.
const MAX_REMEMBERED: usize = 512;

pub(super) struct Recorder {
    cluster: Cluster,
    /// The written events, the oldest first.
    written: VecDeque<Written>,
    later: Vec<Waiting>,
}

struct Written {
    key: u64,
    name: String,
    count: i32,
    at: Instant,
}

/// An event that is not written yet.
struct Waiting {
    event: Box<Event>,
    since: Instant,
    pause: Duration,
    due: Instant,
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
            written: VecDeque::new(),
            later: Vec::new(),
        }
    }

    /// Runs until all senders are gone.
    pub(super) async fn serve(mut self, mut receive: mpsc::Receiver<Message>) {
        loop {
            let next = self.later.iter().map(|waiting| waiting.due).min();
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => self.retry(Instant::now()).await,
                message = receive.recv() => match message {
                    None => return,
                    Some(Message::Event(event)) => {
                        let now = Instant::now();
                        let pause = RETRY_PAUSES.0;
                        self.attempt(Waiting { event, since: now, pause, due: now }).await;
                    }
                    Some(Message::Flush(done)) => {
                        let all = self.later.iter().map(|waiting| waiting.due).max();
                        self.retry(all.unwrap_or_else(Instant::now)).await;
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    /// Retries the events that are due by `by`.
    async fn retry(&mut self, by: Instant) {
        let due = self.later.extract_if(.., |waiting| waiting.due <= by);
        for waiting in due.collect::<Vec<_>>() {
            self.attempt(waiting).await;
        }
    }

    /// Writes an event. A refused one, as in a namespace that is being deleted, delays no other.
    async fn attempt(&mut self, mut waiting: Waiting) {
        let Err(error) = self.write(&waiting.event).await else {
            return;
        };
        let is_over = waiting.since.elapsed() >= RETRY_LIMIT || self.later.len() >= BACKLOG;
        if !error.is_passing() || is_over {
            tracing::debug!(%error, "an event could not be written");
            self.cluster.metrics().events_failed_total.inc();
            return;
        }
        waiting.due = Instant::now() + waiting.pause;
        waiting.pause = (waiting.pause * 2).min(RETRY_PAUSES.1);
        self.later.push(waiting);
    }

    async fn write(&mut self, event: &Event) -> Result<(), ApiError> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.cluster.client().clone(), namespace);
        let (key, now) = (key(event), Timestamp::now());
        self.written.retain(|it| it.at.elapsed() < SERIES_WINDOW);
        let before = self.written.iter().position(|it| it.key == key);
        let before = before.and_then(|index| self.written.remove(index));
        if let Some(mut before) = before {
            let count = before.count + 1;
            let patch = Patch::Merge(json!({ "count": count, "lastTimestamp": Time(now) }));
            let params = PatchParams::default();
            let patched = api.patch(&before.name, &params, &patch);
            match self.cluster.limited(EVENTS, "patch", patched).await {
                // The event has expired or was deleted, so it is created again.
                Err(ApiError::NotFound) => {}
                answer => {
                    if answer.is_ok() {
                        (before.count, before.at) = (count, Instant::now());
                    }
                    self.remember(before);
                    return answer.map(drop);
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
        self.remember(Written {
            key,
            name,
            count: 1,
            at: Instant::now(),
        });
        Ok(())
    }

    fn remember(&mut self, written: Written) {
        if self.written.len() >= MAX_REMEMBERED {
            self.written.pop_front();
        }
        self.written.push_back(written);
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
    async fn remembered_events_are_bounded_and_the_oldest_is_evicted() {
        let (mut recorder, requests) = recorder();
        for number in 0..=MAX_REMEMBERED {
            recorder.write(&event(&number.to_string())).await.unwrap();
        }
        assert_eq!(recorder.written.len(), MAX_REMEMBERED);
        requests.lock().unwrap().clear();
        for text in ["0", &MAX_REMEMBERED.to_string()] {
            recorder.write(&event(text)).await.unwrap();
        }
        assert_eq!(*requests.lock().unwrap(), [Method::POST, Method::PATCH]);
    }
}
