//! Events. They are written in the background, so a caller never waits for the API server.

mod notices;
mod recorder;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::api::ObjectMeta;
use kube::runtime::events::EventType;
use prometheus::IntCounter;
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Cluster;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::About;

use recorder::Recorder;

pub use notices::Notices;

/// How many events can wait to be written. Further ones are dropped and counted.
const BACKLOG: usize = 1024;
/// The API's limit for the message of an event, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API's limit for the instance's name, in bytes.
const INSTANCE_LIMIT: usize = 128;
/// The namespace of events on objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";

enum Message {
    Event(Box<Event>),
    Flush(oneshot::Sender<()>),
}

/// Hands events to the recorder.
#[derive(Clone, Debug)]
pub struct Reporter {
    send: mpsc::Sender<Message>,
    failed: IntCounter,
    instance: String,
    pod: ObjectReference,
}

impl Reporter {
    /// Starts the recorder. `provisioner` is the name of this instance, `pod` the Pod that it runs in.
    #[must_use]
    pub fn start(cluster: &Cluster, provisioner: &str, pod: ObjectReference) -> Self {
        let (send, receive) = mpsc::channel(BACKLOG);
        tokio::spawn(Recorder::new(cluster.clone()).serve(receive));
        Self {
            send,
            failed: cluster.metrics().events_failed_total.clone(),
            instance: cut(provisioner, INSTANCE_LIMIT).into(),
            pod,
        }
    }

    /// Queues an event about a problem.
    pub fn warning(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Warning, about, reason, action, note);
    }

    /// Queues an event about a success.
    pub fn normal(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Normal, about, reason, action, note);
    }

    fn event(&self, type_: EventType, about: &About, reason: &str, action: &str, note: &str) {
        let regarding = match about {
            About::Pod => self.pod.clone(),
            About::Pv(name, uid) => ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolume".into()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
        };
        self.regarding(type_, regarding, reason, action, note);
    }

    /// Queues an event about any object.
    pub fn regarding(
        &self,
        type_: EventType,
        regarding: ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let namespace = regarding.namespace.clone();
        // The reporting component must be a label value, and the instance's name can be too long for one.
        let component = PROVISIONER_PREFIX.to_owned();
        let event = Event {
            metadata: ObjectMeta {
                namespace: namespace.or_else(|| Some(DEFAULT_NAMESPACE.into())),
                ..ObjectMeta::default()
            },
            involved_object: regarding,
            type_: Some(format!("{type_:?}")),
            reason: Some(reason.into()),
            message: Some(cut(note, NOTE_LIMIT).into()),
            action: Some(action.into()),
            source: Some(EventSource {
                component: Some(component.clone()),
                host: None,
            }),
            reporting_component: Some(component),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        if self.send.try_send(Message::Event(Box::new(event))).is_err() {
            self.failed.inc();
        }
    }

    /// Waits up to `limit` until each queued event is written or was retried once more.
    pub async fn flush(&self, limit: Duration) {
        let (done, written) = oneshot::channel();
        let flushed = async {
            if self.send.send(Message::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        let _ = tokio::time::timeout(limit, flushed).await;
    }
}

/// The longest prefix of up to `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_events_are_counted() {
        let (send, _receive) = mpsc::channel(1);
        let reporter = Reporter {
            send,
            failed: IntCounter::new("failed", "Failed.").unwrap(),
            instance: String::new(),
            pod: ObjectReference::default(),
        };
        for failed in [0, 1, 2] {
            reporter.normal(&About::Pod, "Reason", "Action", "note");
            assert_eq!(reporter.failed.get(), failed);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("aé", 2), "a");
    }
}
